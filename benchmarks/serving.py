"""How fast a trained run answers over HTTP: ``python benchmarks/serving.py [load] [step] [memory]``.

Server and client share the machine's cores; the client is wrk, which must be installed. ``load``: a
classifier of 256 units in one direction is asked about texts of 24 words, by 32 clients and by 512, and what
a request costs the server is set against the same texts in bare batches. ``step``: a token through a session
of a tagger, beside a request that does nothing and the same step without a server. ``memory``: what the
server holds after many requests and sessions.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-c", "from elman.cli.main import run; run()"]
TICK = os.sysconf("SC_CLK_TCK")
SMALL = ("model.bidirectional=false", "model.layers=1", "model.hidden=256", "training.max_steps=30")
LUA = """
local asked, n = {}, 0
local headers = {["Host"] = "localhost", ["content-type"] = "application/json"}
for line in io.lines("%s") do
  asked[#asked + 1] = wrk.format("POST", "/v1/predict", headers, line)
end
function setup(thread) one = thread end
function request() n = n %% #asked + 1; return asked[n] end
good, busy, other = 0, 0, 0
function response(status)
  if status == 200 then good = good + 1 elseif status == 503 then busy = busy + 1 else other = other + 1 end
end
function done(summary, latency)
  local e = summary.errors
  local function tell(name, value) io.write(string.format('"%%s": %%f, ', name, value)) end
  io.write("{")
  tell("good", one:get("good")) tell("busy", one:get("busy")) tell("other", one:get("other"))
  tell("p50", latency:percentile(50) / 1e3) tell("p99", latency:percentile(99) / 1e3)
  tell("broken", e.connect + e.read + e.write + e.timeout)
  io.write(string.format('"seconds": %%f}\\n', summary.duration / 1e6))
end
"""
BARE = """
import sys, time, torch, elman
from pydantic_core import to_json
torch.set_num_threads(1)
predictor, texts = elman.load(sys.argv[1]), open(sys.argv[2]).read().splitlines()
batches = [texts[n : n + 32] for n in range(0, len(texts), 32)]
for turn in range(4):
    start = time.process_time()
    for batch in batches:
        [to_json(one.as_json()) for one in predictor.details(batch)]
    if turn:
        print((time.process_time() - start) / len(texts))
"""
STEP = """
import sys, time, torch, elman
from elman.tasks.streaming import StreamState
torch.set_num_threads(1)
stream, words = elman.load(sys.argv[1]).stream(), open(sys.argv[2]).read().split()[:256]
with torch.no_grad():
    vectors, reading, hidden = [stream.vector((word,)) for word in words], StreamState(), None
    for turn in range(12):
        start = time.process_time()
        for vector in vectors:
            _, hidden = stream.model.encoder.step(vector, hidden)
        middle = time.process_time()
        for word in words:
            _, reading = stream.read(word, reading)
        if turn > 1:
            print((middle - start) / len(words), (time.process_time() - middle) / len(words))
"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("parts", nargs="*", default=["load", "step", "memory"])
    options.add_argument("--seconds", type=int, default=30, help="of the load by 32 clients")
    options.add_argument("--requests", type=int, default=500_000, help="of the look at memory")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--folder", type=Path, help="where the runs are kept for another time")
    given = options.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed, which is the client here")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        prepare(folder)
        with serving(folder, given.workers) as server:
            for part in given.parts:
                {"load": load, "step": step, "memory": memory}[part](server, folder, given)


def prepare(folder: Path) -> None:
    """Two runs, trained for moments, and what they are asked."""
    draw = random.Random(3)
    words = [f"{draw.choice('bdgklmnprst')}{draw.choice('aeiou')}{n}" for n in range(8000)]
    texts = [" ".join(draw.choices(words, k=24)) for _ in range(3000)]
    folder.mkdir(exist_ok=True)
    (folder / "texts.txt").write_text("".join(f"{one}\n" for one in texts))
    asked = (json.dumps({"model": "classifier", "inputs": [one]}) for one in texts)
    (folder / "asked.jsonl").write_text("".join(f"{one}\n" for one in asked))
    (folder / "load.lua").write_text(LUA % (folder / "asked.jsonl"))
    data = {
        "classifier": "".join(f"{one}\t{draw.choice(('good', 'bad', 'so'))}\n" for one in texts),
        "tagger": "\n".join(
            "".join(f"{w}\t{draw.choice('ABCD')}\n" for w in one.split()) for one in texts[:1000]
        ),
    }
    for name, task, more in (
        ("classifier", "classify", ()),
        ("tagger", "tag", ("model.crf=false", "model.shortcut=false")),
    ):
        if not (folder / name).exists():
            path = folder / f"{name}.{'tsv' if task == 'classify' else 'txt'}"
            path.write_text(data[name])
            settings = [part for one in (*SMALL, *more) for part in ("--set", one)]
            command = [*COMMAND, "train", task, "--train", path, "--out", folder / name, "--quiet", *settings]
            subprocess.run([*map(str, command)], check=True, capture_output=True)


class Server:
    """A server at work: where, and what its processes cost and hold."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def pids(self) -> list[int]:
        listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
        pairs = [(int(a), int(b)) for a, b in (line.split() for line in listed.splitlines()[1:])]
        found = [self.process.pid]
        for _ in range(3):
            found += [child for child, parent in pairs if parent in found and child not in found]
        return found

    def cpu(self) -> float:
        """Seconds of all its processes."""
        found = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            found += int(fields[11]) + int(fields[12])
        return found / TICK

    def resident(self) -> float:
        """MiB of all its processes."""
        pages = (int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids())
        return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def wrk(self, folder: Path, clients: int, seconds: int) -> dict[str, float]:
        command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}", "-s", str(folder / "load.lua")]
        told = subprocess.run(
            [*command, f"http://127.0.0.1:{self.port}"], capture_output=True, text=True, check=True
        ).stdout
        found: dict[str, float] = json.loads(told.splitlines()[-1])
        return found


@contextmanager
def serving(folder: Path, workers: int) -> Iterator[Server]:
    runs = [str(folder / name) for name in ("classifier", "tagger")]
    command = [*COMMAND, "serve", *runs, "--port", "0", "--workers", str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r":(\d+)/", process.stderr.readline())
    assert found is not None, process.stderr.read()
    try:
        yield Server(process, int(found[1]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def load(server: Server, folder: Path, given: argparse.Namespace) -> None:
    server.wrk(folder, 32, 3)
    before = server.cpu()
    few = server.wrk(folder, 32, given.seconds)
    cost = (server.cpu() - before) / few["good"]
    many = server.wrk(folder, 512, max(10, given.seconds // 2))
    time.sleep(2)
    after = server.wrk(folder, 32, 5)
    for clients, one in ((32, few), (512, many), (32, after)):
        print(
            f"{clients:4} clients: {one['good'] / one['seconds']:,.0f} answers/s, {one['busy']:,.0f} × 503, "
            f"{one['other'] + one['broken']:,.0f} else, p50 {one['p50']:.1f} ms, p99 {one['p99']:.1f} ms"
        )
    share = many["good"] / many["seconds"] / (few["good"] / few["seconds"])
    print(f"under 512 clients {share:.0%} of the answers/s (at least 70 %)")
    bare = min(map(float, output(BARE, folder / "classifier", folder / "texts.txt")))
    print(f"a request: {cost * 1e6:.0f} µs of CPU, {cost / bare:.2f} of a bare batch's {bare * 1e6:.0f} µs")


def step(server: Server, folder: Path, given: argparse.Namespace) -> None:
    pairs = [
        tuple(map(float, line.split())) for line in output(STEP, folder / "tagger", folder / "texts.txt")
    ]
    bare, read = (min(values) for values in zip(*pairs, strict=True))
    with socket.create_connection(("127.0.0.1", server.port)) as one:
        name = json.loads(ask(one, "POST", "/v1/sessions", {"model": "tagger"}))["id"]
        words = (folder / "texts.txt").read_text().split()[:256]
        costs: dict[str, list[float]] = {"live": [], "feed": []}
        for _ in range(6):
            ask(one, "POST", f"/v1/sessions/{name}/rewind", {"position": 0})
            start = server.cpu()
            for _ in range(2):
                for word in words:
                    ask(one, "POST", f"/v1/sessions/{name}/feed", {"tokens": [word]})
            costs["feed"].append((server.cpu() - start) / len(words) / 2)
            start = server.cpu()
            for _ in range(4 * len(words)):
                ask(one, "POST", "/v2/health/live", {"tokens": ["word"]})
            costs["live"].append((server.cpu() - start) / len(words) / 4)
    feed, live = sorted(costs["feed"])[3], sorted(costs["live"])[3]
    print(f"a token through a session: {feed * 1e6:.0f} µs of the server's CPU; the network's step", end=" ")
    print(f"{bare * 1e6:.0f} µs, all of a stream's {read * 1e6:.0f}; a request without work {live * 1e6:.0f}")
    print(f"beside HTTP {(feed - live) / read:.2f} of a bare step of the stream (at most 3)", end=", ")
    print(f"{(feed - live) / bare:.2f} of the network's alone")


def memory(server: Server, folder: Path, given: argparse.Namespace) -> None:
    """After a beginning that fills what is kept anyway, nothing grows."""
    seen = []
    for part in range(11):
        done = 0
        while done < given.requests // 10 and part:
            done += int(server.wrk(folder, 32, 5)["good"])
        with socket.create_connection(("127.0.0.1", server.port)) as one:
            for _ in range(2000):
                name = json.loads(ask(one, "POST", "/v1/sessions", {"model": "tagger"}))["id"]
                ask(one, "POST", f"/v1/sessions/{name}/feed", {"tokens": ["word"] * 3})
                ask(one, "DELETE", f"/v1/sessions/{name}")
        seen.append(server.resident())
    print("MiB:", ", ".join(f"{one:.0f}" for one in seen))
    print(f"grown by {seen[-1] / seen[1] - 1:.1%} (at most 5 %) in {given.requests:,} requests", end=" ")
    print("and 20,000 sessions")


def ask(one: socket.socket, method: str, path: str, body: object = None) -> bytes:
    """The body of an answer, over a connection that stays."""
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    one.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    found = b""
    while b"\r\n\r\n" not in found:
        found += one.recv(1 << 16)
    start, _, rest = found.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", start)
    while length is not None and len(rest) < int(length[1]):
        rest += one.recv(1 << 16)
    return rest


def output(code: str, *arguments: Path) -> list[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    main()
