"""The page and its files: a table made at start, of which a request names an entry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from elman.server.page import ASSETS

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}


class Pages:
    """Files by their names, with what they are."""

    def __init__(self, files: Mapping[str, Path] = ASSETS) -> None:
        self.table = {name: (path.read_bytes(), TYPES[path.suffix]) for name, path in files.items()}

    def file(self, name: str) -> Response:
        if name not in self.table:
            raise HTTPException(404, "there is no such page")
        content, kind = self.table[name]
        return Response(content, media_type=kind)

    def add(self, app: FastAPI) -> None:
        @app.get("/", include_in_schema=False)
        async def index() -> Response:
            return self.file("index.html")

        @app.get("/page/{name}", include_in_schema=False)
        async def page(name: str) -> Response:
            return self.file(name)
