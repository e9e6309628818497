"""Source text of the modules of the standard library that corpora are made of."""

import importlib.util
from collections.abc import Iterator
from importlib.abc import InspectLoader

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
        loader = spec.loader if spec else None
        source = loader.get_source(name) if isinstance(loader, InspectLoader) else None
        if source is None:
            raise ArgumentError(f"this Python lacks the source of {name!r}; use one with its whole library")
        yield source
