"""Settings: TOML and ``key=value`` in, validated sections out; all mistakes are reported at once.

A setting that is None is chosen from the data when training starts (``Task.fill_defaults``) and kept.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from elman.errors import ConfigError, is_text, nearest, shortened
from elman.registry import PartName
from elman.trust import Trust

DATA_VARIABLE = "ELMAN_DATA"
DEEPEST = 30  # tables and lists within each other, and parts of a key
BITS = 128  # of a whole number
LARGEST = 1 << 24  # characters of a file of settings
MOST = 20  # mistakes that a message lists

# Strings and comments of TOML, up to the end of the text where one is not closed; and a key of many parts.
_QUOTED = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\\?\Z)|"(?:\\.|[^"\\\n])*+"?' r"|'''.*?(?:'''|\Z)|'[^'\n]*+'?|#[^\n]*+",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf'(?<![\w"-])(?:[\w"-]++[ \t]*+\.[ \t]*+){{{DEEPEST}}}')
Rate = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Widths = Count | Annotated[list[Count], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]  # what torch takes


def _part_name(value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> PartName:
    """A name remembers whose word it is, also where settings are made of settings."""
    name = check(value)
    return value if isinstance(value, PartName) else PartName(name, info.context)


Part = Annotated[str, WrapValidator(_part_name)]  # a name that a registry knows, or a class in a user's code


class Section(BaseModel):
    """A table of settings; unknown keys are mistakes, and a section does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


class DataSettings(Section):
    """Where the examples are and how their files are laid out."""

    train: str | None = Field(None, description="training file; builtin:NAME is a built-in corpus")
    train_target: str | None = Field(None, description="second, line-aligned training file")
    dev: str | None = Field(
        None, description="validation file; unset: a part of the training file is held out"
    )
    dev_target: str | None = Field(None, description="second, line-aligned validation file")
    held_out: Rate = Field(0.1, description="share of the training file held out where dev is unset")
    columns: dict[str, int | str] | None = Field(None, description="which column is what, by number or name")
    delimiter: str | None = Field(
        None, description="tab, comma, space, or one character; unset: by the file's name"
    )
    separator: str | None = Field(None, description="what stands between the two sides of a line")
    prefix: str | None = Field(None, description="what every line with a separator begins with")
    format: Literal["text", "conllu", "columns", "delimited", "jsonl", "parallel", "separated"] | None = (
        Field(None, description="layout of the files; unset: by the separator or the file's name")
    )


class TextSettings(Section):
    """From text to tokens."""

    unit: Literal["word", "character", "byte", "bpe"] = Field("word", description="what a token is")
    lowercase: bool = Field(False, description="lower-case everything")
    min_count: Count | None = Field(None, description="rarer tokens become <unk>")
    vocabulary_size: Count | None = Field(
        None, description="keep this many tokens; for bpe: its number of units"
    )
    vocabulary: list[str] | None = Field(None, description="exactly these tokens, in this order")
    vectors: str | None = Field(
        None, description="pretrained vectors in the word2vec, GloVe or fastText text form"
    )
    tune_vectors: bool = Field(True, description="train the pretrained vectors on; false: frozen")


class NetworkSettings(Section):
    """A recurrent network; every cell fits every task."""

    cell: Part = Field("lstm", description="name of a cell")
    cell_options: dict[str, Any] = Field({}, description="options of the cell's constructor")
    hidden: Widths | None = Field(None, description="width; a list: one a layer")
    layers: Count | None = Field(None, description="stacked layers")
    bidirectional: bool = Field(False, description="read in both directions")
    embedding: Annotated[int, Field(ge=0)] | None = Field(None, description="width of a token; 0: one-hot")
    dropout: Rate | None = Field(None, description="between layers and on outputs")
    input_dropout: Rate | None = Field(None, description="on embeddings")
    locked: bool = Field(
        True, description="dropout on embeddings and outputs draws one mask a sequence, not one a position"
    )
    token_dropout: Rate | None = Field(None, description="share of positions shown as <unk> in training")
    rare_dropout: Annotated[float, Field(ge=0)] | None = Field(
        None, description="α: a token that occurs n times is shown as <unk> in α/(α+n) of the batches"
    )

    recurrent_dropout: Rate = Field(0.0, description="variational dropout on the recurrent state")
    zoneout: Rate = Field(0.0, description="share of state units that keep their old value in a step")
    weight_drop: Rate = Field(0.0, description="dropout on the recurrent weights")
    initial_state: Literal["zero", "learned"] = Field("zero", description="the state before the first token")
    backend: Literal["auto", "loop", "cpu", "triton"] = Field("auto", description="engine of the recurrence")


class ModelSettings(NetworkSettings):
    """The network; every cell fits every task."""

    encoder: Literal["rnn", "window", "bag", "ngram"] = Field(
        "rnn", description="rnn; or a comparator without recurrence: a fixed window, a bag of words"
    )
    order: Count | None = Field(None, description="tokens of the longest n-gram that is counted")
    window: Count = Field(5, description="tokens that the window sees")


class TrainingSettings(Section):
    """How the weights are found."""

    epochs: Count | None = Field(None, description="passes over the training data, at most")
    max_steps: Count | None = Field(None, description="updates, at most")
    batch_size: Count | None = Field(None, description="examples in a batch (rows of a stream)")
    batch_tokens: Count | None = Field(None, description="tokens in a batch, padding included")
    accumulate: Count = Field(1, description="batches whose gradients make one update")
    truncate: Count | None = Field(None, description="steps of truncated backpropagation in a stream")
    optimizer: Literal["adam", "adamw", "sgd", "asgd", "incremental"] = Field(
        "adamw", description="incremental: example by example, W ← W − η ∇ℓ; asgd: averaged SGD"
    )
    learning_rate: Positive | None = Field(None, description="η")
    momentum: Rate = Field(0.0, description="of sgd")
    betas: tuple[Rate, Rate] = Field((0.9, 0.999), description="of adam and adamw")
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.0, description="on matrices; of all optimisers but incremental"
    )
    schedule: Literal["constant", "warmup", "cosine", "one-cycle", "plateau"] | None = Field(
        None, description="of the learning rate"
    )
    warmup: Share = Field(0.05, description="share of all updates in which the rate rises")
    final_rate: Share = Field(0.01, description="share of the rate that is left at the end")
    decay: Rate = Field(0.5, description="factor of the rate at a plateau")
    plateau: Annotated[int, Field(ge=0)] = Field(
        0, description="validations without a lower loss that a plateau forgives"
    )
    clip: Annotated[float, Field(ge=0)] | None = Field(
        None, description="largest norm of the gradient; 0: any"
    )
    reduction: Literal["mean", "sum"] | None = Field(
        None, description="mean over tokens, or the sum of all losses"
    )
    loss: Literal["cross-entropy", "squared"] = Field("cross-entropy", description="l(δ): −log p, or ½‖δ‖²")
    label_smoothing: Rate = Field(0.0, description="share of the target spread over all outcomes")
    regulariser: Literal["none", "l1", "l2"] = Field("none", description="R(w): Σ|w| or ½Σw²")
    regularisation: Annotated[float, Field(ge=0)] = Field(0.0, description="λ of (λ/n) R(w)")
    averaging: Literal["none", "ema", "tail"] | None = Field(
        None, description="average of the weights that is kept"
    )
    average_decay: Rate = Field(0.999, description="of ema")
    metric: str | None = Field(
        None, description="what early stopping and best look at; unset: the task's own"
    )
    patience: Count | None = Field(None, description="validations without improvement before stopping")
    validate_every: Count | None = Field(
        None, description="updates between validations; unset: an epoch, at least 300 and at most 2,000"
    )
    tolerance: Annotated[float, Field(ge=0)] | None = Field(
        None, description="converged when 20 passes in a row change the objective by less than this share"
    )
    log_every: Count | None = Field(None, description="updates between lines of metrics.jsonl")
    save_seconds: Positive = Field(
        60.0, description="seconds between checkpoints, besides those of validations"
    )
    seed: Seed = Field(1, description="of weights, order and dropout")
    device: str = Field("cpu", description="cpu or cuda")
    threads: Count | None = Field(
        None, description="threads of torch; kept, so that a continued run adds in the same order"
    )
    precision: Literal["float32", "tf32", "bfloat16", "float16"] = Field(
        "float32", description="of matrix products; tf32: on cuda only, 16-bit ones: by autocast"
    )

    @model_validator(mode="after")
    def _rounds_where_it_can(self) -> TrainingSettings:
        if self.precision == "tf32" and not self.device.startswith("cuda"):
            raise ValueError(
                f"precision 'tf32' is for cuda, and device is {self.device!r}; "
                "set training.device = 'cuda', or training.precision = 'float32'"
            )
        return self


class DecodingSettings(Section):
    """How sequences are generated."""

    strategy: Part | None = Field(
        None,
        description="greedy, beam, sample or diverse; unset: beam if beam is above 1, sample if temperature, "
        "top_k or top_p is set, else greedy",
    )
    beam: Count | None = Field(None, description="sequences that beam search keeps; unset: 5")
    temperature: Positive | None = Field(
        None, description="of drawing: below 1 bolder towards the probable; unset: 1"
    )
    top_k: Count | None = Field(None, description="draw among this many")
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="draw among the likeliest that make this share"
    )
    min_length: Annotated[int, Field(ge=0)] = Field(0, description="tokens before the end marker may come")
    max_length: Count | None = Field(None, description="tokens at most")
    length_penalty: Annotated[float, Field(ge=0)] = Field(
        1.0, description="α of log p / length^α, by which beam search ranks; 0: log p itself"
    )
    coverage_penalty: Annotated[float, Field(ge=0)] = Field(
        0.0, description="what beam search takes off for source tokens that attention left out"
    )
    n_best: Count = Field(1, description="sequences of each example; greedy has one")
    no_repeat: Annotated[int, Field(ge=0)] = Field(
        0, description="no so many tokens in a row come twice; 0: they may"
    )
    banned: list[str] = Field([], description="tokens that never come")
    prefix: str = Field("", description="text that the output begins with")
    stop: list[str] = Field([], description="tokens that end the sequence")
    seed: Seed = Field(1, description="of drawing")
    copy_unknown: bool | None = Field(
        None, description="replace <unk> by the source token that attention looks at"
    )


class Config(Section):
    """All settings of a run; a task replaces sections by its own."""

    task: Part = Field(description="lm, tag, classify, seq2seq or class2seq")
    data: DataSettings = DataSettings()
    text: TextSettings = TextSettings()
    model: NetworkSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    decoding: DecodingSettings = DecodingSettings()


C = TypeVar("C", bound=Section)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; a mistake of syntax is an error with its line."""
    try:
        with open(path, encoding="utf-8-sig") as file:  # a byte order mark is no mistake
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse_toml(text, path)


def parse_toml(text: str, path: str | Path) -> dict[str, Any]:
    """The tables of a text that stands in ``path``."""
    try:
        tables = _tables(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return expanded(tables)


def expanded(tables: dict[str, Any]) -> dict[str, Any]:
    """``$ELMAN_DATA`` at the beginning of a path replaced by the folder it names; so recipes travel."""
    folder = os.environ.get(DATA_VARIABLE)

    def expand(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: expand(part) for key, part in value.items()}
        if not isinstance(value, str) or not value.startswith(f"${DATA_VARIABLE}/"):
            return value
        if folder is None:
            raise ConfigError(f"{value}: set the variable {DATA_VARIABLE} to the folder of the corpora")
        return str(Path(folder) / value.removeprefix(f"${DATA_VARIABLE}/"))

    return {key: expand(value) for key, value in tables.items()}


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """``["model.hidden=200", "model.cell=gru"]`` as nested tables; values are TOML, or plain words.

    >>> parse_settings(["model.hidden=[64, 32]", "model.cell=gru"])
    {'model': {'hidden': [64, 32], 'cell': 'gru'}}
    """
    tables: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", key.strip()):
            raise ConfigError(f"{shortened(pair)!r} is not key=value, as in model.hidden=200")
        put(tables, key.strip(), _value(value.strip()))
    return expanded(tables)


def put(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in nested tables."""
    *path, last = key.split(".")
    if len(path) > DEEPEST:
        raise ConfigError(f"{shortened(key)!r} has {len(path) + 1} parts; {DEEPEST} are allowed")
    for name in path:
        tables = tables.setdefault(name, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"{key!r} goes through {name!r}, which is no table")
    tables[last] = value


def merge(*many: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables laid over each other; later ones win."""
    result: dict[str, Any] = {}
    for tables in many:
        for key, value in tables.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merge(result[key], value) if both else value
    return result


def validate(
    kind: type[C], tables: Mapping[str, Any], path: str | Path | None = None, trust: Trust | None = None
) -> C:
    """A section from its tables; ``path`` is the file they came from, for the places of mistakes.

    ``trust`` is given where a run says them: then the code that they name must be trusted before it runs.
    """
    places = _Places(path)
    if unsound := [f"{places.of(keys)}{_named(keys)} {said}" for keys, said in _unsound(tables)]:
        raise _mistakes(unsound)
    found = dict(_misplaced_truths(kind, tables, places))
    try:
        valid = kind.model_validate(dict(tables), context=trust)
    except ValidationError as error:
        branches: dict[str, list[tuple[tuple[int, bool], str]]] = {}
        for problem in error.errors(include_url=False):
            if len(branches) > MOST:
                break
            key, line = _mistake(kind, tables, problem, places)
            branches.setdefault(key, []).append((_depth(problem), line))
        for key, lines in branches.items():  # of a union, the branch that fitted best is enough
            found.setdefault(key, min(lines, key=lambda one: one[0])[1])
    if found:
        raise _mistakes(list(found.values()))
    return valid


def changed(config: C, settings: Mapping[str, Any]) -> C:
    """The same settings with some dotted keys replaced, validated again."""
    tables = config.model_dump(exclude_unset=True)
    for key, value in settings.items():
        put(tables, key, value)
    return validate(type(config), tables)


def part_names(config: Section, prefix: str = "") -> Iterator[tuple[str, PartName]]:
    """The settings that name a part, by their dotted keys."""
    for name, value in config:
        if isinstance(value, Section):
            yield from part_names(value, f"{prefix}{name}.")
        elif isinstance(value, PartName):
            yield f"{prefix}{name}", value


def to_toml(config: Section, *, comments: bool = False, within: str = "") -> str:
    """The settings as TOML that reads back equal; None is left out, or stands as a comment."""
    lines: list[str] = []
    tables: list[tuple[str, Section]] = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Section):
            tables.append((name, value))
        elif value is not None or comments:
            lines += _entry(name, value, field.description or "", comments)
    for name, table in tables:
        heading = [f"# {(type(table).__doc__ or '').strip()}"] if comments else []
        inner = to_toml(table, comments=comments, within=f"{within}{name}.").rstrip("\n")
        lines += ["", *heading, f"[{within}{name}]", inner]
    return "\n".join(lines).strip("\n") + "\n"


def describe(kind: type[Section], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """(key, type, default, description) of every setting: the reference is made of these."""
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Section):
            yield from describe(type(default), f"{prefix}{name}.")
        else:
            shown = "" if field.is_required() else "from the data" if default is None else _toml(default)
            yield f"{prefix}{name}", _type_name(field.annotation), shown, field.description or ""


def _entry(name: str, value: Any, description: str, comments: bool) -> list[str]:
    if not comments:
        return [f"{name} = {_toml(value)}"]
    unset = "" if value is not None else f"# {name} =  (unset)  "
    return [f"{unset or f'{name} = {_toml(value)}  '}# {description}".rstrip()]


def _value(text: str) -> Any:
    try:
        tables = _tables(f"value = {text}")
    except ValueError:
        return text
    return tables["value"] if len(tables) == 1 else text  # a second line would be a setting nobody asked for


def _tables(text: str) -> dict[str, Any]:
    """The tables of a TOML text; whatever is wrong with it is a ValueError that says what.

    tomllib alone takes quadratic time for a key of many parts, and meets Python's own limits of depth and
    of digits unprepared.
    """
    if len(text) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} characters; is this a file of settings?")
    too_deep = ValueError(f"tables or lists are nested too deeply; {DEEPEST} within each other are allowed")
    if _LONG_KEY.search(_QUOTED.sub('""', text)):
        raise too_deep
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise ValueError("a whole number has thousands of digits") from None
    depth = 0
    level: list[Any] = [tables]
    while level:
        depth += 1
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [part for parts in inner for part in parts if isinstance(part, (dict, list))]
    if depth > DEEPEST:
        raise too_deep
    return tables


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    return value.isoformat() if isinstance(value, (date, time)) else repr(value)


class _Places:
    """Where keys stand in the file that settings came from; it is read when the first is asked for."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = path

    def of(self, keys: Iterable[str]) -> str:
        """``file:12: ``, or ``file: `` where the key is not found, or nothing without a file."""
        if self.path is None:
            return ""
        line = self._lines.get(".".join(keys))
        return f"{self.path}: " if line is None else f"{self.path}:{line}: "

    @cached_property
    def _lines(self) -> dict[str, int]:
        try:
            text = Path(str(self.path)).read_text(encoding="utf-8-sig")
        except (OSError, ValueError):
            return {}
        lines: dict[str, int] = {}
        table = ""
        for number, line in enumerate(text.split("\n"), 1):
            heading = re.match(r"\s*\[([\w.]+)\]", line)
            table = heading[1] if heading else table
            entry = re.match(r"\s*([\w.]+)\s*=", line)
            if entry:
                lines.setdefault(".".join(filter(None, (table, entry[1]))), number)
        return lines


def _mistakes(said: list[str]) -> ConfigError:
    if len(said) > MOST:
        said = [f"more than {MOST} mistakes, the first of them", *said[:MOST]]
    elif len(said) > 1:
        said = [f"{len(said)} mistakes", *said]
    return ConfigError("\n  ".join(said))


def _unsound(tables: Mapping[str, Any]) -> Iterator[tuple[list[str], str]]:
    """Values that no file of settings can keep, by their keys; the first ones of very many."""
    waiting: list[tuple[list[str], Any]] = [([], tables)]
    told = 0
    for keys, value in waiting:  # which grows meanwhile
        if told > MOST:
            return
        if flaw := _flaw(value, len(keys)):
            told += 1
            yield keys, flaw
        elif isinstance(value, (Mapping, list, tuple)):
            parts = value.items() if isinstance(value, Mapping) else enumerate(value)
            waiting += [([*keys, str(key)], part) for key, part in parts]


def _flaw(value: Any, depth: int) -> str | None:
    if isinstance(value, str) and not is_text(value):
        return f"is {shortened(value)!r}, which is not UTF-8, as settings are; give the file another name"
    if isinstance(value, int) and value.bit_length() > BITS:
        return f"is a whole number of more than {BITS} bits"
    if isinstance(value, (Mapping, list, tuple)) and depth > 2 * DEEPEST:
        return f"is nested too deeply; {DEEPEST} tables or lists within each other are allowed"
    if isinstance(value, Mapping) and not all(is_text(str(key)) for key in value):
        return "has a key that is no text; write it as UTF-8"
    return None


def _named(keys: Iterable[str]) -> str:
    return shortened(".".join(keys), 100)


def _misplaced_truths(
    kind: type[Section], tables: Mapping[str, Any], places: _Places, within: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Settings that are true or false where a number is wanted, which Python would take for 1 or 0."""
    for name, value in tables.items():
        field = kind.model_fields.get(name)
        default = None if field is None else field.get_default()
        if isinstance(default, Section) and isinstance(value, Mapping):
            yield from _misplaced_truths(type(default), value, places, (*within, name))
        elif (
            field is not None
            and not isinstance(default, Section)
            and not {"bool", "Any"} & set(re.findall(r"\w+", _type_name(field.annotation)))
        ):
            parts = value.values() if isinstance(value, Mapping) else value
            inner = parts if isinstance(value, (Mapping, list, tuple)) else [value]
            if any(isinstance(part, bool) for part in inner):
                key = ".".join((*within, name))
                shown, wanted = shortened(_toml(value), 200), _type_name(field.annotation)
                yield key, f"{places.of([*within, name])}{key} is {shown}: input should be {wanted}"


def _depth(problem: Any) -> tuple[int, bool]:
    """How far a value was read before the problem, the furthest first; a wrong type is found at once."""
    return -len(problem["loc"]), problem["type"].endswith("_type")


def _mistake(
    kind: type[Section], tables: Mapping[str, Any], problem: Any, places: _Places
) -> tuple[str, str]:
    names = [str(part) for part in problem["loc"]]
    section: Any = kind
    keys: list[str] = []
    for name in names:  # what follows a field's own name tells the branch of a union, which helps nobody
        fields = getattr(section, "model_fields", {})
        keys.append(name)
        if name not in fields:
            break
        section = (
            type(fields[name].get_default()) if isinstance(fields[name].get_default(), Section) else None
        )
        if section is None:
            break
    key, place = _named(keys), places.of(keys)
    if problem["type"] == "extra_forbidden":
        return key, f"{place}{key} is unknown; {nearest(keys[-1], section.model_fields)}"
    inside = _inside(tables, problem["loc"], len(keys))
    if problem["type"] == "missing":
        return key, f"{place}{key}{inside} is missing"
    if problem["type"] == "value_error":  # settings that do not go together: the message names them
        said = shortened(str(problem["ctx"]["error"]), 500)
        return f"{key} {problem['msg']}", f"{place}{key}{': ' if key else ''}{said}"
    shown = f"{key}{inside} is {shortened(repr(problem['input']), 200)}"
    return key, f"{place}{shown}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _inside(tables: Any, place: tuple[int | str, ...], depth: int) -> str:
    """Where in the value of a setting a problem is: ``[1]`` of a list, ``.text`` of a table, or nothing."""
    shown = ""
    for number, part in enumerate(place):
        if isinstance(tables, Mapping) and part in tables:
            tables, step = tables[part], f".{part}"
        elif isinstance(tables, (list, tuple)) and isinstance(part, int):
            tables, step = tables[part] if part < len(tables) else None, f"[{part}]"
        else:
            continue  # the branch of a union
        shown += step if number >= depth else ""
    return shortened(shown)


def _type_name(annotation: Any) -> str:
    if getattr(annotation, "__origin__", None) is Literal:
        return " | ".join(json.dumps(choice) for choice in annotation.__args__)
    arguments = [a for a in getattr(annotation, "__args__", ()) if a is not type(None) and a is not Ellipsis]
    if getattr(annotation, "__metadata__", None):
        return _type_name(annotation.__origin__)
    if (
        arguments
        and not isinstance(annotation, type)
        and getattr(annotation, "__origin__", None) in (list, dict, tuple)
    ):
        return f"{annotation.__origin__.__name__}[{', '.join(map(_type_name, arguments))}]"
    if arguments:
        return " | ".join(dict.fromkeys(map(_type_name, arguments)))
    return getattr(annotation, "__name__", str(annotation))
