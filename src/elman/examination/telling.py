"""An examination as people read it: what was read, what was found, and a closing line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from elman.errors import shortened
from elman.examination.examination import Examination
from elman.examination.findings import SEVERITIES, Finding, counted, printable, share
from elman.examination.texts import Texts

WIDTH = 100


def told(done: Examination) -> str:
    """The whole report."""
    lines = [*_read(done), ""]
    for severity in SEVERITIES:
        for one in done.findings:
            if one.severity == severity:
                lines += [*_finding(one), ""]
    return "\n".join([*lines, closing(done)])


def _read(done: Examination) -> Iterator[str]:
    for part in done.parts:
        yield f"{part.name}: {counted(part.examples, 'example')} from {printable(part.path)} ({part.layout})"
        for path, count in part.files.items():
            yield f"  {printable(path)}: {count:,}"
    if done.held_out and done.parts:
        yield "dev: none; training holds out about a tenth of the examples"
    for role, texts in done.texts.items():
        if texts.count:
            yield f"{texts.view.noun(role)}: {_lengths(done, role, texts)}"
            yield f"  {_words(done, role)}"
    if done.labels is not None and done.labels.train:
        labels = done.labels
        shown = [
            f"{printable(shortened(name, 30))} ({count:,})" for name, count in labels.train.most_common(8)
        ]
        more = [f"{len(labels.train) - 8:,} more"] if len(labels.train) > 8 else []
        scheme = f" ({done.scheme})" if done.scheme else ""
        number = counted(len(labels.train), labels.noun, labels.nouns)
        yield f"{labels.nouns}: {number.partition(' ')[0]}{scheme}: {', '.join([*shown, *more])}"
    reasons = {key: reason for key, reason in done.reasons.items() if key in done.chosen}
    if reasons:
        yield "training would choose:"
    for key, reason in reasons.items():
        value = done.chosen[key]
        yield f"  {key}: {str(value).lower() if isinstance(value, bool) else value}, {reason}"


def _lengths(done: Examination, role: str, texts: Texts) -> str:
    lengths = texts.lengths
    unit = texts.view.unit_noun(role)
    place = lengths.place
    where = f" at {printable(place.path)}:{place.line}" if place is not None else ""
    middle, most = lengths.percentile(0.5), lengths.percentile(0.95)
    unit = unit.removesuffix("s") if middle == 1 else unit
    return f"{middle:,} {unit} in the median, 95 % at most {most:,}, longest {lengths.longest:,}{where}"


def _words(done: Examination, role: str) -> str:
    texts, words = done.texts[role], done.words[role]
    scripts = texts.scripts
    parts = [f"{counted(words.train.total(), 'token')} of {counted(len(words.train), 'type')}"]
    parts.append(f"{share(words.once, len(words.train))} of the types occur once")
    if words.dev_tokens:
        unknown = share(words.unknown.total(), words.dev_tokens)
        parts.append(f"{unknown} of the validation tokens unknown")
    large = {name: count for name, count in scripts.most_common(4) if count > 0.005 * scripts.total()}
    named = [f"{name} {share(count, scripts.total())}" for name, count in large.items()]
    parts.append(", ".join(named) if len(named) > 1 else "".join(large))
    if texts.raw is not None and not texts.view.listed:
        parts.append("raw text" if texts.raw else "tokenised")
    return "; ".join(part for part in parts if part)


def _finding(one: Finding) -> Iterator[str]:
    if one.severity == "error":  # its message has the number, the place and the remedy
        yield f"error  {printable(one.sentence)}"
        return
    yield from _wrapped(f"{one.severity}  {one.code}: {printable(one.sentence)}", "  ")
    for place in one.places:
        yield f"    {place}"
    yield from _wrapped(f"  → {one.remedy}", "    ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def closing(done: Examination) -> str:
    """How it stands, in a line."""
    counts = {one: sum(f.severity == one for f in done.findings) for one in SEVERITIES}
    said = [counted(count, severity) for severity, count in counts.items() if count]
    if counts["error"]:
        rest = " What comes after the error was not looked at." if done.parts else ""
        return f"{', '.join(said)}: elman train would stop.{rest}"
    if counts["warning"]:
        return f"{', '.join(said)}: elman train would go on."
    return f"Nothing to worry about{': ' + said[0] if said else ''}."
