"""Numbers, lengths of time, texts, networks and ends of trainings as people read them."""

import unicodedata
from typing import Any

ACRONYMS = {"lstm", "gru", "mgu", "sru", "rnn"}
REASONS = {
    "epochs": "all epochs done",
    "max_steps": "all updates done",
    "patience": "no improvement for a while",
    "converged": "the objective no longer changes",
    "counted": "counted, not trained",
}


def number(value: float) -> str:
    """A number as people read it.

    >>> number(0.94712), number(12.345), number(1234567), number(0.0012), number(86123.4), number(1e304)
    ('0.9471', '12.35', '1,234,567', '0.0012', '86,123', '1e+304')
    """
    size = abs(value)
    if isinstance(value, int) or 1000 <= size < 1e9:
        return f"{value:,.0f}"
    if 0 < size < 0.01 or size >= 1e9:
        return f"{value:.3g}"
    return f"{value:.4f}" if size < 10 else f"{value:.2f}"


def duration(seconds: float) -> str:
    """A length of time in its two largest units.

    >>> duration(7.4), duration(750), duration(7500), duration(100_000)
    ('7.4 s', '12 min 30 s', '2 h 05 min', '1 d 03 h')
    """
    whole = round(seconds)
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part:02d} {smaller}"
    return f"{whole} s" if whole >= 10 else f"{seconds:.1f} s"


def roughly(seconds: float) -> str:
    """A length of time that nobody knows exactly.

    >>> roughly(3.2), roughly(63), roughly(750), roughly(7500)
    ('3 seconds', '1 minute', '12 minutes', '2.1 hours')
    """
    if seconds < 55:
        size, unit = f"{max(1, round(seconds))}", "second"
    elif seconds < 5400:
        size, unit = f"{round(seconds / 60)}", "minute"
    else:
        size, unit = f"{seconds / 3600:.1f}", "hour"
    return f"{size} {unit}{'s' * (size != '1')}"


def printable(text: str) -> str:
    """The text on one line, without characters that steer a terminal."""
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in text)


def short_count(value: int) -> str:
    """A large count in three digits.

    >>> short_count(912), short_count(1_234_567), short_count(999_999)
    ('912', '1.23 M', '1 M')
    """
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g} {unit}"
    return str(value)


def ending(reason: str) -> str:
    """Why a training ended.

    >>> ending("patience")
    'no improvement for a while'
    """
    return REASONS.get(reason, reason)


def network_name(model: dict[str, Any]) -> str:
    """The network in two or three words.

    >>> network_name({"cell": "lstm", "bidirectional": True}), network_name({"network": "bag"})
    ('bidirectional LSTM', 'bag of words')
    """
    if "encoder" in model:  # an encoder and a decoder, each with what differs from the whole
        shared = {key: value for key, value in model.items() if key not in ("encoder", "decoder")}
        reads, writes = (
            network_name({**shared, "bidirectional": both, **model.get(side, {})})
            for side, both in (("encoder", model.get("bidirectional")), ("decoder", False))
        )
        score = model.get("attention") or "none"
        return f"{reads} → {writes}" + (f", {score} attention" if score != "none" else "")
    network = str(model.get("network", "rnn"))
    if network != "rnn":
        return {"bag": "bag of words", "window": f"window of {model.get('window', 5)}"}.get(network, network)
    cell = str(model.get("cell", "rnn"))
    shown = " ".join(word.upper() if word in ACRONYMS else word for word in cell.split("_"))
    return f"bidirectional {shown}" if model.get("bidirectional") else shown
