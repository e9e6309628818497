"""A server as commands start it: what it needs is installed, and a page that a browser opens."""

import os
import re
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from elman.cli.output import say
from elman.cli.startup import quick_imports
from elman.errors import ArgumentError

NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client", "starlette")
HOST, PORT = "127.0.0.1", 8000  # where a page is looked for; another port where this one is taken


@contextmanager
def server_needed() -> Iterator[None]:
    """The server is imported inside; where what it needs is not installed, that is said."""
    with quick_imports():
        try:
            yield
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in NEEDED:
                raise
            raise ArgumentError(
                f"{missing} is not installed, which a server needs; run pip install 'elman[serve]'"
            ) from None


def check_server() -> None:
    """Whether there can be a server at all: told before a training, not after it."""
    with server_needed():
        import elman.server.serving  # noqa: F401


def serve_page(name: str, run: Path, **shown: str) -> None:
    """Serve a run until somebody ends it, and open its page in a browser, where there is one.

    What the page shows at first is the fragment of its address, as in ``text="3 mai 2021", view="beam"``.
    """
    with server_needed():
        from elman.server.serving import Options, bound, serve
    try:
        bound(HOST, PORT).close()
        port = PORT
    except ArgumentError:
        port = 0

    def tell(sentence: str) -> None:
        say(sentence)
        if has_browser() and (address := re.search(r"http://\S+", sentence)):
            # A browser may wait for the page before it returns, and the page for this to return.
            page = f"{address[0]}#{urlencode(shown)}"
            threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()

    serve(Options({name: run}, host=HOST, port=port), tell)


def has_browser() -> bool:
    """Whether a window can open: without a screen, Python would start a browser of the terminal."""
    named = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(one) for one in named)
