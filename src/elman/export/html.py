"""``--to html``: one page that opens anywhere, without a server and without a network."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from pathlib import Path

from elman.errors import ExportError
from elman.export.js import asked_by_node, module_text
from elman.export.options import Answering, ExportOptions
from elman.export.program import source
from elman.inspection.saving import MODULE_LINES
from elman.predictor import Predictor
from elman.storage.files import write_text

WANTED = {"lm": "A text that it goes on from", "class2seq": "A class that it writes from"}

MODEL = re.compile(r"/\*model\*/\n(.*?)\n/\*end\*/", re.DOTALL)


def write(predictor: Predictor, folder: Path, options: ExportOptions) -> None:
    module = module_text(predictor, options)
    task = predictor.config.task
    generation = predictor.task.generation
    usual = [] if generation is None else generation.writer.usual_prompts()
    style, *drawing = (
        files("elman.inspection").joinpath("page", one).read_text(encoding="utf-8")
        for one in ("page.css", "drawing.js", "parts.js")
    )
    parts = {
        "NAME": escape(options.name),
        "SUBJECT": escape(f"{task} model"),
        "DESCRIPTION": escape(predictor.task.describe(predictor.model)[0]),
        "WANTED": WANTED.get(task, "A text, which it reads as you type"),
        "PLACEHOLDER": escape(", ".join(usual[:5])),
        "STYLE": style,
        "MODEL": module,
        "DRAWING": MODULE_LINES.sub("", "".join(drawing)),
        "SCRIPT": source("page.js"),
    }
    pattern = re.compile("|".join(rf"\b{name}\b" for name in parts))
    page = pattern.sub(lambda found: parts[found.group()], source("page.html"))
    write_text(folder / f"{options.name}.html", page)


def open_written(folder: Path) -> Answering:
    """The script of the page, asked outside of it."""
    [path] = folder.glob("*.html")
    found = MODEL.search(path.read_text(encoding="utf-8"))
    if found is None:
        raise ExportError("the page has no model")
    return asked_by_node(found.group(1))
