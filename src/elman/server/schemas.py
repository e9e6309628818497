"""What requests and answers are; every number and every text of a request has a bound."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from elman.server import limits

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Text = Annotated[str, StringConstraints(max_length=limits.TEXT)]
Short = Annotated[str, StringConstraints(max_length=limits.INSPECTED)]
Token = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Place = Annotated[int, Field(ge=1, le=limits.INSPECTED)]
Changes = Annotated[  # JSON has no numbers as keys
    dict[Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,2}$")], Token],
    Field(max_length=limits.CHANGES, json_schema_extra={"additionalProperties": False}),
]
Part = Literal["unrolled", "gates", "gradients", "attention", "beam", "influence", "neighbours", "example"]
Json = dict[str, Any]


class Asked(BaseModel):
    """A request: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class PredictRequest(Asked):
    """Texts, or for a tagger also lists of words."""

    model: Name
    inputs: list[Text | Annotated[list[Token], Field(max_length=2000)]] = Field(
        min_length=1, max_length=limits.INPUTS
    )


class PredictAnswer(BaseModel):
    """A prediction a text, each as ``elman predict --json`` prints it."""

    predictions: list[Json]


class CompletionRequest(BaseModel):
    """As OpenAI's; what a recurrent language model has no use for is ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    model: Name
    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=limits.PROMPTS)] = ""
    max_tokens: int | None = Field(16, ge=1, le=limits.WRITTEN)
    temperature: float | None = Field(1.0, ge=0, le=10)
    top_p: float | None = Field(1.0, gt=0, le=1)
    top_k: int | None = Field(None, ge=1, le=100_000)
    n: int | None = Field(1, ge=1, le=limits.DRAWN)
    stop: Token | Annotated[list[Token], Field(max_length=limits.STOPS)] | None = None
    seed: int | None = Field(None, ge=0, le=2**31 - 1)
    stream: bool | None = False
    echo: bool | None = False

    @model_validator(mode="after")
    def all_together(self) -> CompletionRequest:
        prompts = 1 if isinstance(self.prompt, str) else len(self.prompt)
        if prompts * (self.n or 1) * (self.max_tokens or 16) > limits.ALL_WRITTEN:
            raise ValueError(f"all completions together have at most {limits.ALL_WRITTEN:,} tokens")
        return self


class Choice(BaseModel):
    text: str
    index: int
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None = None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class InspectRequest(Asked):
    """As ``elman inspect --json``: what if is asked by ``replace``, ``remove``, ``force`` and ``clamp``."""

    model: Name
    text: Short
    parts: list[Part] | None = Field(None, max_length=20)
    target: Short | None = None
    against: Annotated[list[Name], Field(max_length=4)] | Name = []
    replace: Changes = {}
    remove: list[Place] = Field([], max_length=limits.CHANGES)
    force: Changes = {}
    clamp: list[Annotated[str, StringConstraints(max_length=100)]] = Field([], max_length=limits.CHANGES)


class SessionRequest(Asked):
    """A new session; ``tokens`` are those of a saved one, which are read first."""

    model: Name
    tokens: list[Token] = Field([], max_length=limits.LONGEST)


class FeedRequest(Asked):
    """A piece of text, which is cut as the model's texts are, or tokens as they are."""

    text: Text | None = None
    tokens: list[Token] | None = Field(None, max_length=limits.FED)
    top: int = Field(5, ge=1, le=limits.TOP)

    @model_validator(mode="after")
    def one_of_them(self) -> FeedRequest:
        if (self.text is None) == (self.tokens is None):
            raise ValueError("give text or tokens, one of them")
        return self


class RewindRequest(Asked):
    """Where to go back to: so many tokens from the beginning."""

    position: int = Field(ge=0, le=limits.LONGEST)


class Session(BaseModel):
    """A session as it stands; ``expires_in``: seconds without a request after which it ends."""

    id: str
    model: str
    task: str
    position: int
    expires_in: float


class Step(BaseModel):
    """What the model says after a token; which of tag, label and next there is, its task decides."""

    model_config = ConfigDict(extra="allow")

    token: str
    position: int
    probability: float
    top: list[Json]


class Fed(BaseModel):
    """What was said after each token."""

    position: int
    steps: list[Step]


class Saved(BaseModel):
    """All that makes a session: give it to ``POST /v1/sessions`` to have it again."""

    model: str
    tokens: list[str]


class Model(BaseModel):
    """A run, in OpenAI's shape with more beside it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str
    summary: str
    streams: bool
    labels: list[str] | None
    parts: list[str]
    unit: str


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class Problem(BaseModel):
    """What went wrong, in OpenAI's shape."""

    error: Json


class Tensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """A model, as the Open Inference Protocol describes it."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]


class ServerMetadata(BaseModel):
    name: str
    version: str
    extensions: list[str]


class Health(BaseModel):
    """Whether it is so."""

    name: str | None = None
    live: bool | None = None
    ready: bool | None = None
