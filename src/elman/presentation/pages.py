"""Pages out of templates, in which every value is text and nothing of the page itself."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from elman.storage.files import write_bytes

TEMPLATES = Path(__file__).parent / "templates"


@cache
def template(name: str, escape: Callable[[str], str]) -> Template:
    """A template that shows every value by ``escape``, unless it is marked ``safe``."""

    def shown(value: str | int) -> Markup:
        return value if isinstance(value, Markup) else Markup(escape(str(value)))

    def lines(text: str) -> Markup:
        return Markup("\n").join(shown(line) for line in text.split("\n"))

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        finalize=shown,
        autoescape=True,
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["lines"] = lines
    return environment.get_template(name)


def write_page(path: Path, text: str) -> Path:
    """Write the whole page; what cannot be encoded, half of a surrogate pair, becomes a question mark."""
    write_bytes(path, text.encode("utf-8", errors="replace"))
    return path
