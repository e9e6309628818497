"""Language models: what is chosen for the data and the device where the user says nothing."""

from elman.tasks.base import network_kind
from elman.tasks.defaults import Choice, Choices, usual_limit
from elman.tasks.lm_settings import LmModel, LmSettings
from elman.tasks.statistics import Statistics
from elman.text.fields import LARGEST

ADAPTIVE = 50_000  # entries of a vocabulary above which an adaptive softmax pays
FEW_WORDS = 300_000  # tokens up to which a text is small
FEW_CHARACTERS = 500_000
LARGE = 512  # units from which on a network wants the regularisation of a large one
WIDE = 1024  # units of a layer whose weights a large GPU keeps on the chip
ENOUGH = 2_000_000  # tokens from which on the full regularisation would be too much
MOST_ENTRIES = 250_000
VALIDATIONS = 15  # of a training on a GPU, where an epoch takes seconds


def on_gpu(config: LmSettings) -> bool:
    """Will the model be trained on a GPU?"""
    return config.training.device.startswith("cuda")


def largest_vocabulary(config: LmSettings) -> int:
    """Entries that a vocabulary has at most where nothing is said; a GPU has room for more of them."""
    return MOST_ENTRIES if on_gpu(config) else LARGEST


def usual_truncate(*, characters: bool) -> int:
    """Steps of truncated backpropagation."""
    return 64 if characters else 35


def lm_choices(config: LmSettings, statistics: Statistics, *, vocabulary: int, characters: bool) -> Choices:
    """Values for settings that the user left open, with reasons where they depend on data or device."""
    model, training, streams = config.model, config.training, config.text.context == "stream"
    N = max(1, statistics.tokens)
    few = (FEW_CHARACTERS if characters else FEW_WORDS) >= N
    chosen = _small(N, few=few, characters=characters)
    if on_gpu(config) and streams and not few and _may_be_large(model):
        chosen |= _large_characters(model, N) if characters else _large_words(model, N)
    rows, seen, most = (chosen.pop(name) for name in ("rows", "seen", "most"))
    truncate = training.truncate or chosen.pop("training.truncate")
    batch = training.batch_size or max(1, min(rows, N // (20 * truncate)))
    epochs = max(2, min(most, round(seen / N)))
    if "training.validate_every" in chosen:
        updates = training.max_steps or (training.epochs or epochs) * N // (batch * truncate)
        chosen["training.validate_every"] = max(300, updates // VALIDATIONS)
    adaptive = (
        Choice(True, f"since the vocabulary has {vocabulary:,} entries") if vocabulary > ADAPTIVE else False
    )
    if model.tied or network_kind(model).counted:
        adaptive = False
    plain = not (model.adaptive_softmax if model.adaptive_softmax is not None else adaptive)
    limit = usual_limit(statistics, training.batch_size) if training.batch_size else 1000
    return chosen | {
        "model.order": 7 if characters else 5,
        "model.tied": not characters and model.embedding != 0 and plain,
        "model.adaptive_softmax": adaptive,
        "model.token_dropout": 0.0,
        "model.rare_dropout": 0.0,
        "training.truncate": truncate,
        "training.batch_size": batch if streams else None,
        "training.batch_tokens": None if streams else limit,
        "training.schedule": "one-cycle",
        "training.averaging": "ema",
        "training.epochs": Choice(epochs, f"so that about {epochs * N / 1e6:.1f} million tokens are read"),
    }


def _may_be_large(model: LmModel) -> bool:
    """Does the user leave the width of a recurrent network open, or say a large one?"""
    widths = [model.hidden] if isinstance(model.hidden, int) else model.hidden or [LARGE]
    return network_kind(model).stacked and max(widths) >= LARGE


def _small(N: int, *, few: bool, characters: bool) -> Choices:
    """A network for two cores; with a large vocabulary it is the softmax that costs most."""
    if characters:
        hidden, embedding, dropout = (256, 48, 0.2) if few else (512, 64, 0.3)
        rows, seen, most = 16, 14_000_000, 40
    else:
        hidden, embedding, dropout = (128, 64, 0.3) if few else (650, 200, 0.5)
        rows, seen, most = 20, 7_500_000, 40 if few else 12
    size = f"since the text has {N:,} tokens"
    return {
        "rows": rows,
        "seen": seen,
        "most": most,
        "model.hidden": Choice(hidden, size),
        "model.embedding": Choice(embedding, size),
        "model.dropout": Choice(dropout, size),
        "model.input_dropout": 0.0 if characters else dropout / 2,
        "model.embedding_dropout": 0.0,
        "training.truncate": usual_truncate(characters=characters),
        "training.vary_truncate": False,
        "training.activation_regularisation": 0.0,
        "training.temporal_regularisation": 0.0,
        "training.learning_rate": 3e-3,
    }


def _large_words(model: LmModel, N: int) -> Choices:
    """AWD-LSTM (Merity et al. 2018), by AdamW with an average of its weights: a GPU trains it in minutes."""
    narrow = 400 if model.embedding is None else model.embedding or WIDE  # the last layer is tied
    layers = model.layers or 3
    return {
        **_large(model, [WIDE] * (layers - 1) + [narrow]),
        **_regularised(
            N, dropout=0.5, layer_dropout=0.3, input_dropout=0.5, embedding_dropout=0.1, weight_drop=0.6
        ),
        "rows": 32,
        "seen": 158_000_000,
        "most": 200,
        "model.embedding": 400,
        "training.truncate": 70,
        "training.activation_regularisation": 2.0,
        "training.temporal_regularisation": 1.0,
        "training.learning_rate": 1.5e-3,
    }


def _large_characters(model: LmModel, N: int) -> Choices:
    """The same for characters, of which one says less about the next but one."""
    return {
        **_large(model, [512] * (model.layers or 3)),
        **_regularised(
            N, dropout=0.4, layer_dropout=0.3, input_dropout=0.1, embedding_dropout=0.0, weight_drop=0.3
        ),
        "rows": 32,
        "seen": 40_000_000,
        "most": 100,
        "model.embedding": 128,
        "training.truncate": 128,
        "training.learning_rate": 2e-3,
    }


def _large(model: LmModel, hidden: list[int]) -> Choices:
    """A network for a GPU; one whose width the user says has the depth that the user says."""
    room = Choice(hidden, "since a GPU trains a large network in minutes")
    deep = {"model.hidden": room, "model.layers": len(hidden)} if model.hidden is None else {}
    return deep | {
        "training.vary_truncate": True,
        "training.weight_decay": 0.03,
        "training.precision": Choice("bfloat16", "since a GPU then keeps the weights of a layer on its chip"),
        "training.validate_every": None,
    }


def _regularised(N: int, **rates: float) -> Choices:
    """Rates for a text of up to two million tokens; a larger one needs less."""
    share = min(1.0, (ENOUGH / N) ** 0.25)
    reason = f"since a large network would learn {N:,} tokens by heart"
    scaled = {f"model.{name}": round(rate * share, 2) for name, rate in rates.items()}
    return {name: Choice(rate, reason) if rate else rate for name, rate in scaled.items()}
