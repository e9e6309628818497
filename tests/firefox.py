"""A headless Firefox whose page a test asks; it speaks Marionette over a socket."""

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSER = shutil.which("firefox-esr") or shutil.which("firefox")
QUIET = {  # nothing but the page is loaded
    "app.normandy.enabled": False,
    "app.update.auto": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}


class Firefox:
    """One browser process with one page."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {**QUIET, "marionette.port": port}
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items()]
        profile.mkdir(exist_ok=True)
        (profile / "user.js").write_text("".join(lines))
        command = [BROWSER, "--marionette", "--headless", "--no-remote", "--profile", str(profile)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
        self._rest, self._number, end = b"", 0, time.monotonic() + 60
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                break
            except OSError:
                assert time.monotonic() < end, "Firefox does not answer"
                assert self.process.poll() is None, "Firefox has gone"
                time.sleep(0.1)
        self._message()
        self.call("WebDriver:NewSession")

    def call(self, command: str, **parameters: Any) -> Any:
        """A command of Marionette, and what it answers."""
        self._number += 1
        message = json.dumps([0, self._number, command, parameters]).encode()
        self._socket.sendall(f"{len(message)}:".encode() + message)
        _, _, error, found = self._message()
        assert error is None, error
        return found

    def _message(self) -> Any:
        while b":" not in self._rest:
            self._read()
        size, _, self._rest = self._rest.partition(b":")
        while len(self._rest) < int(size):
            self._read()
        message, self._rest = self._rest[: int(size)], self._rest[int(size) :]
        return json.loads(message)

    def _read(self) -> None:
        piece = self._socket.recv(1 << 20)
        assert piece, "Firefox has gone"
        self._rest += piece

    def open(self, address: str) -> None:
        self.call("WebDriver:Navigate", url=address)

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        told = self.call("WebDriver:ExecuteScript", script=f"return {script}", args=[], sandbox=None)
        return told["value"]

    def wait(self, script: str, seconds: float = 20) -> None:
        """Until an expression is something; a page that never gets there fails."""
        end = time.monotonic() + seconds
        while not self.ask(f"Boolean({script})"):
            assert time.monotonic() < end, f"{script}; the page shows:\n{self.ask('document.body.innerText')}"
            time.sleep(0.02)

    def close(self) -> None:
        try:
            self.call("Marionette:Quit", flags=["eForceQuit"])
        except (AssertionError, OSError):
            self.process.kill()
        self._socket.close()
        self.process.wait(20)
