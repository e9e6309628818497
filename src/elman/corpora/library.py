"""Source text of the modules of the standard library that corpora are made of."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from elman.errors import ArgumentError

MODULES = """
_pydecimal argparse ast bisect calendar cmd code colorsys configparser contextlib copy csv dataclasses difflib
doctest email.header email.message enum fractions ftplib functools gettext glob heapq http.client
http.cookiejar imaplib inspect ipaddress json.decoder json.encoder locale logging mailbox mimetypes netrc
optparse pathlib pdb pickletools poplib pprint pydoc queue random sched selectors shelve shlex shutil smtplib
socketserver statistics string subprocess tarfile tempfile textwrap threading timeit tokenize trace traceback
typing unittest.case unittest.mock urllib.parse urllib.request uuid weakref xml.dom.minidom zipfile
"""


def library_sources() -> Iterator[str]:
    """The text of each module, read without importing it."""
    for name in MODULES.split():
        spec = importlib.util.find_spec(name)
        source = spec.loader.get_source(name) if spec and spec.loader else None  # type: ignore[attr-defined]
        if source is None:
            raise ArgumentError(f"this Python lacks the source of {name!r}; use one with its whole library")
        yield str(source)
