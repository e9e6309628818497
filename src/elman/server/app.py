"""The routes of a server, and their description as OpenAPI."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from elman import __version__
from elman.errors import ElmanError
from elman.server import schemas
from elman.server.answers import extra_headers, problem
from elman.server.batching import BusyError
from elman.server.completing import Writing
from elman.server.pages import Pages
from elman.server.service import Service, UnknownModelError
from elman.server.session_routes import add_session_routes
from elman.server.sessions import GoneError, UnknownSessionError

NameInPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": description}
    for status, description in {
        400: "The request is no JSON, or no HTTP.",
        401: "There is no token, or a wrong one.",
        404: "There is no such thing.",
        410: "The session has ended.",
        413: "The request is too long.",
        422: "The request is not as described, or the model cannot do that; the message says what helps.",
        503: "The server is busy; come back after the seconds of Retry-After.",
    }.items()
}


def make_app(service: Service) -> FastAPI:
    """The application; the token and the fast way of predictions are in ``front.py``."""
    app = FastAPI(
        title="Elman",
        version=__version__,
        description="Trained runs, with the state of a stream kept between requests.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirection would name a host that the client said
        responses=PROBLEMS,
    )
    add_problems(app)
    add_health(app, service)
    add_models(app, service)
    add_answers(app, service)
    add_session_routes(app, service)
    Pages().add(app)
    return app


def answer(status: int, message: str, details: Sequence[object] = ()) -> Response:
    headers = {name.decode(): value.decode() for name, value in extra_headers(status)}
    return Response(problem(status, message, details), status, headers, media_type="application/json")


def problem_of(error: Exception) -> Response:
    """What an error of a request is as an answer."""
    if isinstance(error, RequestValidationError):
        details = [
            {"place": [str(one)[:100] for one in e["loc"]], "message": e["msg"]} for e in error.errors()[:20]
        ]
        return answer(422, "; ".join(f"{'.'.join(d['place'])}: {d['message']}" for d in details[:3]), details)
    if isinstance(error, UnknownModelError):
        return answer(404, "there is no such model; GET /v1/models names them")
    if isinstance(error, GoneError):
        return answer(410, "the session has ended; begin another")
    if isinstance(error, UnknownSessionError):
        return answer(404, "there is no such session")
    if isinstance(error, BusyError):
        return answer(503, "the server is busy; come back in a second")
    if isinstance(error, HTTPException):
        found = answer(error.status_code, str(error.detail))
        found.headers.update(error.headers or {})
        return found
    if isinstance(error, ElmanError):
        return answer(422, str(error))
    return answer(500, "something went wrong here, and the server has written down what")


def add_problems(app: FastAPI) -> None:
    kinds = (RequestValidationError, UnknownModelError, GoneError, UnknownSessionError, BusyError)
    for kind in (*kinds, HTTPException, ElmanError, Exception):

        async def handle(request: Request, error: Exception) -> Response:
            return problem_of(error)

        app.add_exception_handler(kind, handle)


def add_health(app: FastAPI, service: Service) -> None:
    @app.get("/v2/health/live", tags=["health"], response_model_exclude_none=True)
    async def live() -> schemas.Health:
        """Whether the server answers."""
        return schemas.Health(live=True)

    @app.get("/v2/health/ready", tags=["health"], response_model_exclude_none=True)
    async def ready() -> schemas.Health:
        """Whether a real pass through every model, not older than a second, went well."""
        if not await service.ready():
            raise BusyError
        return schemas.Health(ready=True)

    @app.get("/metrics", tags=["health"], response_class=Response)
    async def metrics() -> Response:
        """Counts and times for Prometheus."""
        return Response(service.metrics.written(), media_type="text/plain; version=0.0.4")


def add_models(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models", tags=["models"])
    async def models() -> schemas.Models:
        """The runs, in OpenAI's shape with more beside it."""
        return schemas.Models(data=[schemas.Model(**run.described) for run in service.runs.values()])

    @app.get("/v1/models/{name}", tags=["models"])
    async def model(name: NameInPath) -> schemas.Model:
        """One run."""
        return schemas.Model(**service.run(name).described)

    @app.get("/v2", tags=["models"])
    async def server() -> schemas.ServerMetadata:
        """The server, as the Open Inference Protocol describes it."""
        return schemas.ServerMetadata(name="elman", version=__version__, extensions=[])

    @app.get("/v2/models/{name}", tags=["models"])
    async def metadata(name: NameInPath) -> schemas.ModelMetadata:
        """One run, as the Open Inference Protocol describes it."""
        run = service.run(name)
        text = schemas.Tensor(name="inputs", datatype="BYTES", shape=[-1])
        found = schemas.Tensor(name="predictions", datatype="BYTES", shape=[-1])
        return schemas.ModelMetadata(
            name=run.name, versions=["1"], platform=f"elman_{run.task}", inputs=[text], outputs=[found]
        )

    @app.get("/v2/models/{name}/ready", tags=["models"], response_model_exclude_none=True)
    async def model_ready(name: NameInPath) -> schemas.Health:
        """Whether it works, as ``/v2/health/ready`` tells it."""
        service.run(name)
        if not await service.ready():
            raise BusyError
        return schemas.Health(name=name, ready=True)


def add_answers(app: FastAPI, service: Service) -> None:
    @app.post("/v1/predict", tags=["answers"], response_model=schemas.PredictAnswer)
    async def predict(asked: schemas.PredictRequest) -> Response:
        """A prediction a text, of any task, as ``elman predict --json`` prints it."""
        found = await service.predict(asked.model, asked.inputs)
        return Response(together(found), media_type="application/json")

    @app.post("/v1/inspect", tags=["answers"], response_class=Response, responses=INSPECTED)
    async def inspect(asked: schemas.InspectRequest) -> Response:
        """What happens inside while a model reads or writes a text, as ``elman inspect --json`` prints it.

        With another model or a change there are several: a list.
        """
        found = await service.thread.run_slowly(service.inspect, asked)
        return Response(found, media_type="application/json")

    @app.post(
        "/v1/completions",
        tags=["answers"],
        response_model=schemas.Completion,
        responses=STREAMED,
    )
    async def completions(asked: schemas.CompletionRequest, request: Request) -> Response:
        """Text that goes on from prompts; with ``stream``, by events as OpenAI clients expect."""
        writings = service.writings(asked)
        name, created = f"cmpl-{secrets.token_hex(12)}", int(time.time())

        def event(choices: list[schemas.Choice], usage: schemas.Usage | None = None) -> bytes:
            said = schemas.Completion(
                id=name, created=created, model=asked.model, choices=choices, usage=usage
            )
            return said.model_dump_json().encode()

        if asked.stream:
            events = streamed(service, writings, event, echo=bool(asked.echo))
            if request.scope["http_version"] == "1.0":  # which knows no pieces: they come together
                return Response(b"".join([one async for one in events]), media_type="text/event-stream")
            unheld = {"x-accel-buffering": "no"}  # by nginx
            return StreamingResponse(events, media_type="text/event-stream", headers=unheld)
        choices = []
        with service.written():
            for index, one in enumerate(writings):
                text = one.prompt if asked.echo else ""
                while one.finished is None and not await request.is_disconnected():
                    text += await service.thread.run(one.more)
                choices.append(schemas.Choice(text=text, index=index, finish_reason=one.finished))
        read, wrote = sum(one.read for one in writings), sum(len(one.tokens) for one in writings)
        usage = schemas.Usage(prompt_tokens=read, completion_tokens=wrote, total_tokens=read + wrote)
        return Response(event(choices, usage), media_type="application/json")


EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": EVENT}}}}
INSPECTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The inspection.", "content": {"application/json": {"schema": {}}}}
}


async def streamed(
    service: Service, writings: list[Writing], event: Callable[..., bytes], *, echo: bool
) -> AsyncIterator[bytes]:
    """Server-sent events: a few tokens each, of the completions in turn."""
    live = dict(enumerate(writings))
    with service.written():
        if echo:
            for index, one in live.items():
                yield b"data: " + event([schemas.Choice(text=one.prompt, index=index)]) + b"\n\n"
        while live:
            for index, one in [*live.items()]:
                text = await service.thread.run(one.more, 1)
                if text or one.finished:
                    choice = schemas.Choice(text=text, index=index, finish_reason=one.finished)
                    yield b"data: " + event([choice]) + b"\n\n"
                if one.finished:
                    del live[index]
        yield b"data: [DONE]\n\n"


def together(found: list[bytes]) -> bytes:
    """Predictions as one JSON object."""
    return b'{"predictions":[' + b",".join(found) + b"]}"


def described(app: FastAPI) -> str:
    """The OpenAPI description as JSON."""
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False)
