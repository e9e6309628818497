"""``docs/deploy.md``: what it says to type and to write into files, as far as a plain machine can run it."""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import httpx
import pytest

from elman.server import limits
from elman.server.completing import Writing
from served import Served
from tiny import elman
from tiny_tasks import descend, ready, save

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
NOBODY = 65534


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def unit():
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str
    [text] = blocks("ini")
    parsed.read_string(text)
    return parsed


def commands():
    """The arguments of every ``elman serve`` of the page."""
    [dockerfile] = blocks("dockerfile")
    found = [shlex.split(unit()["Service"]["ExecStart"])[1:]]
    start, usual = (
        re.search(rf"^{word} (\[.*\])$", dockerfile, re.MULTILINE) for word in ("ENTRYPOINT", "CMD")
    )
    found.append([*json.loads(start[1])[1:], *json.loads(usual[1])])
    typed = [line for block in blocks("sh") for line in block.splitlines()]
    found += [shlex.split(line)[1:] for line in typed if line.startswith("elman ")]
    assert len(found) == 3
    return found


@pytest.mark.parametrize("arguments", commands())
def test_every_option_exists(arguments):
    assert arguments[0] == "serve"
    known = elman("serve", "--help").out
    for one in arguments:
        assert not one.startswith("--") or re.search(rf"{one}\b", known), one


def test_shell_commands_are_commands_of_a_shell():
    for block in blocks("sh"):
        subprocess.run(["sh", "-n"], input=block, text=True, check=True)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_a_token_made_so_is_taken(tmp_path):
    lines = next(block for block in blocks("sh") if "install -m 600" in block).splitlines()
    for line in lines[:2]:
        subprocess.run(shlex.split(line) if ">" not in line else ["sh", "-c", line], cwd=tmp_path, check=True)
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600
    from elman.server.auth import read_tokens

    assert re.fullmatch("[0-9a-f]{64}", *read_tokens(tmp_path / "tokens"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.slow
def test_systemd_reads_the_unit(tmp_path):
    [text] = blocks("ini")
    path = tmp_path / "elman.service"
    path.write_text(text.replace("/opt/elman/bin/elman", sys.executable))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60
    )
    assert "elman.service" not in told.stderr, told.stderr
    path.write_text(path.read_text() + "Hardened=very\n")  # it does tell what it does not know
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60
    )
    assert "Hardened" in told.stderr
    path.write_text(text.replace("/opt/elman/bin/elman", sys.executable))
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    exposure = re.search(r"Overall exposure level for elman\.service: ([\d.]+)", rated.stdout)
    assert exposure is None or float(exposure[1]) < 3, rated.stdout


def test_proxies_go_where_the_server_is():
    port = commands()[0][commands()[0].index("--port") + 1]
    [nginx], [caddy] = blocks("nginx"), blocks("caddy")
    assert f"proxy_pass http://127.0.0.1:{port};" in nginx
    assert f"reverse_proxy 127.0.0.1:{port} " in caddy
    for text in (nginx, caddy):
        assert text.count("{") == text.count("}")
    assert int(re.search(r"client_max_body_size (\d+)m;", nginx)[1]) << 20 >= limits.BODY
    longest = max(limits.DEADLINE, limits.BODY_SECONDS, limits.WRITE_SECONDS)
    assert int(re.search(r"proxy_read_timeout (\d+)s;", nginx)[1]) > longest
    assert int(unit()["Service"]["TimeoutStopSec"]) > limits.STOP_SECONDS


def nginx_at(port, folder):
    [text] = blocks("nginx")
    text = re.sub(r"\n +ssl_.*", "", text.replace("listen 443 ssl", f"listen 127.0.0.1:{port}"))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder / kind};" for kind in kinds)
    own = "" if os.geteuid() else "user root;"  # its workers write what is large into that folder
    head = f"{own} daemon off; pid {folder / 'pid'}; error_log {folder}/log; events {{}}"
    (folder / "nginx.conf").write_text(f"{head}\nhttp {{ access_log off; {places}\n{text} }}\n")
    return ["nginx", "-c", folder / "nginx.conf"]


def caddy_at(port, folder):
    [text] = blocks("caddy")
    text = text.replace("elman.example.org", f"http://127.0.0.1:{port}")
    (folder / "Caddyfile").write_text("{\n admin off\n auto_https off\n}\n" + text)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_a_proxy_passes_on_what_comes_as_it_comes(name, runs, tmp_path, monkeypatch):
    """Behind the real one, without TLS: the end of a stream is written when its beginning has been read."""
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name}")
    step, first_read = Writing._step, threading.Event()

    def held(writing):
        if len(writing.tokens) == 3:
            assert first_read.wait(30)
        step(writing)

    monkeypatch.setattr(Writing, "_step", held)
    one, port = Served({"lm": runs["lm"]}), free_port()
    command = {"nginx": nginx_at, "caddy": caddy_at}[name](port, tmp_path)
    settings = command[-1].read_text()
    command[-1].write_text(settings.replace("127.0.0.1:8000", f"127.0.0.1:{one.host[1]}"))
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    proxy = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    asked = {"model": "lm", "prompt": "the", "max_tokens": 9, "temperature": 0, "stream": True}
    address = f"http://127.0.0.1:{port}"
    try:
        latest = time.monotonic() + 20
        while True:
            with suppress(httpx.TransportError):
                assert httpx.get(f"{address}/v2/health/ready").json()["ready"]
                break
            assert proxy.poll() is None
            assert time.monotonic() < latest
            time.sleep(0.05)
        with httpx.stream("POST", f"{address}/v1/completions", json=asked, timeout=30) as found:
            lines = found.iter_lines()
            assert next(lines).startswith("data: ")
            first_read.set()
            assert "data: [DONE]" in [*lines]
        found = httpx.post(f"{address}/v1/predict", content=b"x" * (limits.BODY + 1))
        assert found.status_code == 413, found.text
    finally:
        first_read.set()
        proxy.terminate()
        proxy.wait(20)
        one.close()


def test_a_container_is_nobody_and_writes_nowhere():
    [dockerfile] = blocks("dockerfile")
    assert f"USER {NOBODY}:{NOBODY}" in dockerfile
    cache = Path(re.search(r"^ENV ELMAN_CACHE=(.*)$", dockerfile, re.MULTILINE)[1])
    run = next(line for block in blocks("sh") for line in block.splitlines() if line.startswith("docker run"))
    words = shlex.split(run)
    assert "--read-only" in words
    place, _, options = words[words.index("--tmpfs") + 1].partition(":")
    assert Path(place) in cache.parents
    assert "exec" in options.split(",")  # libraries are loaded from there
    assert f":{commands()[1][-1]}:ro" in run
    published = words[words.index("--publish") + 1].split(":")
    assert published[-1] == commands()[1][commands()[1].index("--port") + 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "as_nobody"),
    [(0, False), (0, True), (1, True)],
    ids=["unit", "unit as nobody", "container as nobody"],
)
def test_the_server_of_the_page_answers(place, as_nobody, tmp_path_factory):
    """As another user where that is possible, in a folder that it cannot write to."""
    if as_nobody and not others_can_run("--workers" in commands()[place]):
        pytest.skip("another user cannot start this Python here, or its processes")
    folder = tmp_path_factory.mktemp("deployed")
    one = ready("classify", folder, {"model.hidden": 5})
    descend(one, 2)
    run = save(one, folder / "dates")
    tokens, cache, port = folder / "tokens", folder / "cache", free_port()
    tokens.write_text("0123456789abcdef0123\n")
    cache.mkdir()
    replaced = {
        r"(dates=)?/\w.*/dates": lambda found: f"{found[1] or ''}{run}",
        r".*/tokens": lambda found: str(tokens),
        r"8000": lambda found: str(port),
        r"0\.0\.0\.0": lambda found: "127.0.0.1",
    }
    arguments = commands()[place]
    for pattern, value in replaced.items():
        arguments = [value(found) if (found := re.fullmatch(pattern, one)) else one for one in arguments]
    program = "from elman.cli.main import run; run()"
    command = [sys.executable, "-c", program, *arguments]
    if as_nobody:
        for path in (*folder.rglob("*"), folder):
            path.chmod(0o755 if path.is_dir() else 0o644)
        for path in list(folder.parents)[:-2]:
            if path.stat().st_mode & 0o001 == 0:
                path.chmod(path.stat().st_mode | 0o011)
        tokens.chmod(0o400)
        for path in (cache, tokens):
            os.chown(path, NOBODY, NOBODY)
        command = [*AS_NOBODY, *command]
    run.chmod(0o555)
    environment = {**os.environ, "ELMAN_CACHE": str(cache), "HOME": "/nonexistent", "TMPDIR": str(cache)}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    process = subprocess.Popen(command, cwd=run, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        said = process.stderr.readline()
        assert f"serving dates at http://127.0.0.1:{port}/" in said, said + process.stderr.read()
        if as_nobody:
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert re.search(rf"^Uid:\s+{NOBODY}\s+{NOBODY}", status, re.MULTILINE)
        address = f"http://127.0.0.1:{port}"
        with urlopen(f"{address}/v2/health/live", timeout=20) as found:
            assert json.load(found)["live"]
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{address}/v2/health/ready", timeout=20)
        body = json.dumps({"model": "dates", "inputs": ["a dog"]}).encode()
        headers = {"Authorization": "Bearer 0123456789abcdef0123", "Content-Type": "application/json"}
        with urlopen(Request(f"{address}/v1/predict", body, headers), timeout=20) as found:
            assert json.load(found)["predictions"][0]["prediction"] in ("animal", "thing")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stderr.close()
    assert before == {path: path.stat().st_mtime_ns for path in run.rglob("*")}


AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "--"]


def others_can_run(workers):
    """Whether this one may become another user, who can start this Python, and workers of it if need be."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    program = f"import torch; open({str(ROOT / 'src/elman/__init__.py')!r}).close()\n"
    if workers:  # Python's own way to start them, without Elman
        program += "import multiprocessing as m; one = m.get_context('forkserver').Process(target=print)\n"
        program += "one.start(); one.join(); raise SystemExit(one.exitcode)"
    command = [*AS_NOBODY, sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, cwd="/").returncode == 0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]
