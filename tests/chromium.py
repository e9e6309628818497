"""A headless Chromium whose pages a test types into, looks at and asks; it speaks over two pipes."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


class Chromium:
    """One browser process with one page; ``complaints`` are what its console said of errors."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        command = [BROWSER, *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        # The browser reads from 3 and writes to 4; a shell puts the pipes there, from other numbers.
        ends = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (to_read, to_write)]
        shell = ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", *command]
        self.process = subprocess.Popen(shell, pass_fds=ends, stderr=subprocess.DEVNULL)
        for one in (to_read, to_write, *ends):
            os.close(one)
        self._numbers, self._rest, self._session = itertools.count(1), b"", ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in pages if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol, and what it answers."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self) -> Any:
        while b"\0" not in self._rest:
            piece = os.read(self._in, 1 << 20)
            assert piece, "the browser has gone"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        told = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(told["exceptionDetails"]["exception"].get("description", str(told)))
            case "Runtime.consoleAPICalled" if told["type"] == "error":
                self.complaints.append(str(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                self.complaints.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
        return message

    def open(self, address: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a page afresh, at that size."""
        self.complaints, self.requests = [], []
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait("location.protocol !== 'about:' && document.readyState === 'complete'")

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 20) -> None:
        """Until an expression is something; a page that never gets there fails."""
        end = time.monotonic() + seconds
        while not self.ask(f"Boolean({script})"):
            assert time.monotonic() < end, f"{script}; the page shows:\n{self.ask('document.body.innerText')}"
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """Type into what has the focus, letter by letter."""
        for letter in text:
            self.call("Input.dispatchKeyEvent", type="char", text=letter)

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self._session = ""
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            self.process.kill()
        self.process.wait(20)
        os.close(self._in)
        os.close(self._out)


KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
