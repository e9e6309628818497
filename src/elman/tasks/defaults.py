"""Settings that the user left open, filled from the data and from what is usual."""

from typing import Any, NamedTuple, TypeVar

from elman.config import (
    Config,
    changed,
    check_read,
    given_keys,
    lookup,
    open_options,
    why_unread,
)
from elman.errors import ConfigError
from elman.tasks.statistics import Statistics
from elman.tensors.threads import all_threads

INCREMENTAL = {  # row G2: example by example, plain steps, the summed loss
    "training.batch_size": 1,
    "training.batch_tokens": None,
    "training.schedule": "constant",
    "training.averaging": "none",
    "training.clip": 0.0,
    "training.reduction": "sum",
}
DISTORTING = ("momentum", "weight_decay")
FASTEST = 0.1  # learning rate of incremental descent where an example has few losses
SHARED = 0.5  # where it has many, divided by their number: they are summed, and nothing is clipped
DROPOUTS = tuple(f"model.{name}" for name in ("dropout", "input_dropout", "token_dropout", "rare_dropout"))

PATIENCE = 5  # validations without a better one, after which a training is over
COOLDOWN = 0.25  # share of the updates so far in which its rate comes to its end then
ENDING = ("one-cycle", "cosine")  # schedules whose rate does
MOST_READ = 30_000_000  # tokens, all passes together, that one core reads in about an hour
FEWEST = 4  # passes, however many tokens that are

ROOM = 16_384  # positions of a batch that are never too many
FAR_LONGER = 4  # than a batch of texts of the typical length: such a batch is cut

C = TypeVar("C", bound=Config)
Choices = dict[str, Any]  # values for settings that the user left open, by their keys, or a ``Choice`` each


class Choice(NamedTuple):
    """A value for a setting that the user left open, and why it suits these data."""

    value: object
    reason: str


def filled(config: C, choices: Choices, statistics: Statistics) -> C:
    """The settings with those filled that are open and that something reads: first as a task chooses.

    A task may give a plain value, or a ``Choice``, whose reason is noted in the statistics if it is taken.
    """
    check_read(config, given_keys(config))
    given = config
    choices = _until_over(config, choices) | _not_for_hours(config, choices, statistics)
    reasons = {key: one.reason for key, one in choices.items() if isinstance(one, Choice)}
    choices = {key: one.value if isinstance(one, Choice) else one for key, one in choices.items()}
    hidden = config.model.hidden
    usual: Choices = {
        "model.layers": len(hidden) if isinstance(hidden, list) else 1,
        "training.optimizer": "adamw",
        "training.schedule": "constant",
        "training.clip": 1.0,
        "training.reduction": "mean",
        "training.precision": "float32",
        "model.weight_drop": 0.0,
    } | choices
    size = config.training.batch_size or usual.get("training.batch_size")
    if size:
        usual.setdefault("training.batch_tokens", usual_limit(statistics, size))
    if (config.training.optimizer or usual["training.optimizer"]) == "incremental":
        _check_incremental(config)
        usual |= {"training.learning_rate": None} if "training.optimizer" not in choices else {}
        usual |= INCREMENTAL | dict.fromkeys(DROPOUTS, 0.0) | {"training.tolerance": 0.003}
        usual["training.repeats"] = "all"
    if config.training.optimizer == "asgd":
        usual["training.averaging"] = "tail"
    if config.training.max_steps is not None:
        usual.pop("training.epochs", None)  # the number of updates says it all
    config = _filled(config, usual)
    rest: Choices = {}
    if config.training.learning_rate is None:
        rest["training.learning_rate"] = float(f"{min(FASTEST, SHARED / statistics.losses_of_example):.2g}")
    for key in ("optimizer", "schedule"):
        rest |= {f"training.{name}": value for name, value in open_options(config.training, key).items()}
    rest["training.threads"] = 1 if config.training.batch_size == 1 else all_threads()
    config = _filled(config, rest)
    check_read(config, given_keys(config))
    taken = (key for key in reasons if _has(config, key) and lookup(config, key) != lookup(given, key))
    statistics.reasons |= {key: reasons[key] for key in taken if lookup(config, key) == choices[key]}
    return config


def _until_over(config: Config, choices: Choices) -> Choices:
    """What a task chooses and, where the length of a training is open, to end it when it is over."""
    training, schedule = config.training, config.training.schedule or choices.get("training.schedule")
    if schedule not in ENDING or training.epochs is not None or training.max_steps is not None:
        return choices
    why = "since the number of updates was left open"
    return {"training.patience": Choice(PATIENCE, why), "training.cooldown": COOLDOWN} | choices


def _not_for_hours(config: Config, choices: Choices, statistics: Statistics) -> Choices:
    """Fewer passes than a task chooses where its examples are so long that a CPU would take hours."""
    chosen = choices.get("training.epochs")
    epochs = chosen.value if isinstance(chosen, Choice) else chosen
    most = max(FEWEST, MOST_READ // max(1, statistics.tokens))
    if not isinstance(epochs, int) or epochs <= most or config.training.device != "cpu":
        return {}
    why = f"since {epochs} passes over {statistics.tokens:,} tokens would take hours"
    return {"training.epochs": Choice(most, why)}


def usual_limit(statistics: Statistics, size: int) -> int:
    """Positions of a batch of so many examples, where a few of them are much longer than the others."""
    return max(ROOM, FAR_LONGER * size * statistics.typical)


def _filled(config: C, usual: Choices) -> C:
    """Values for open settings; one that the task does not have, or that nothing reads, stays open."""
    chosen = {key: value for key, value in usual.items() if _has(config, key) and lookup(config, key) is None}
    parts = {key: value for key, value in chosen.items() if isinstance(value, str)}
    config = changed(config, _read(config, parts))  # which decide what else is read
    return changed(config, _read(config, chosen))


def _read(config: Config, settings: Choices) -> Choices:
    return {key: value for key, value in settings.items() if why_unread(config, key) is None}


def _has(config: Config, key: str) -> bool:
    section, name = key.split(".")
    return name in type(getattr(config, section)).model_fields


def _check_incremental(config: Config) -> None:
    """Incremental descent is one thing exactly; a setting that would change it is a mistake (row G2)."""
    wrong = [key for key, value in INCREMENTAL.items() if lookup(config, key) not in (None, value)]
    wrong += ["training.accumulate"] if config.training.accumulate != 1 else []
    wrong += [f"training.{name}" for name in DISTORTING if getattr(config.training, name)]
    if wrong:
        raise ConfigError(
            f"training.optimizer is 'incremental': one example, one plain step of the summed loss; "
            f"{', '.join(wrong)} would make it something else. Remove it, or take optimizer = 'sgd'"
        )
