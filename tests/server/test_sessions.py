"""Sessions: each is its own stream, whoever else streams meanwhile; they fork, go back, come again, and end.

``ELMAN_SESSIONS=1000 pytest tests/server/test_sessions.py`` lets so many stream at once.
"""

import asyncio
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from elman.server import limits
from elman.server.sessions import GoneError, Session, Sessions, UnknownSessionError
from elman.tasks.streaming import StreamState
from served import STREAMING, Served

MANY = int(os.environ.get("ELMAN_SESSIONS", "60"))
WORDS = ["the", "a", "dog", "cat", "sees", "runs", "stones", "lie", "there", "home", "and", "unknown"]


def solo(run, tokens):
    """What a stream that is alone says after each token."""
    stream, state, found = run.stream, StreamState(), []
    for token in tokens:
        said, state = stream.read(token, state)
        found.append(said)
    return found


def same(told, expected):
    assert [one["token"] for one in told] == [one["token"] for one in expected]
    for one, other in zip(told, expected, strict=True):
        says = next(iter(other["top"][0]))
        assert one[says] == other[says]
        assert abs(one["probability"] - other["probability"]) <= 1e-5
        assert one["position"] == other["position"]


@pytest.mark.slow
def test_many_sessions_are_what_each_would_be_alone(served):
    """In random order and pieces, with other requests between them."""
    draw = random.Random(5)
    plans = []
    for n in range(MANY):
        tokens = draw.choices(WORDS, k=draw.randint(3, 12))
        plans.append(([*STREAMING][n % len(STREAMING)], tokens))

    async def stream(client, model, tokens):
        pause = random.Random(model + tokens[0])
        name = (await client.post("/v1/sessions", json={"model": model})).json()["id"]
        told, place = [], 0
        while place < len(tokens):
            piece = tokens[place : place + pause.randint(1, 3)]
            place += len(piece)
            await asyncio.sleep(pause.random() * 0.02)
            found = await client.post(f"/v1/sessions/{name}/feed", json={"tokens": piece})
            assert found.status_code == 200, found.text
            told += found.json()["steps"]
        assert (await client.delete(f"/v1/sessions/{name}")).status_code == 204
        return told

    async def all_of_them():
        bound = httpx.Limits(max_connections=200)
        client = httpx.AsyncClient(base_url=served.address, timeout=120, limits=bound)
        async with client, asyncio.TaskGroup() as group:
            return [group.create_task(stream(client, *plan)) for plan in plans]

    for task, (model, tokens) in zip(asyncio.run(all_of_them()), plans, strict=True):
        same(task.result(), solo(served.service.runs[model], tokens))
    assert len(served.service.sessions) == 0
    assert served.service.sessions._bytes == 0


@pytest.mark.parametrize("model", STREAMING)
def test_fork_rewind_save_and_restore(model, client, served, monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT", 4)
    tokens = random.Random(3).choices(WORDS, k=11)
    alone = solo(served.service.runs[model], tokens)

    def feed(name, more, **said):
        found = client.post(f"/v1/sessions/{name}/feed", json={"tokens": more} | said)
        assert found.status_code == 200, found.text
        return found.json()["steps"]

    first = client.post("/v1/sessions", json={"model": model}).json()
    assert (first["position"], first["model"]) == (0, model)
    name = first["id"]
    same(feed(name, tokens[:9]), alone[:9])
    fork = client.post(f"/v1/sessions/{name}/fork").json()
    assert fork["position"] == 9
    for position in (6, 4, 1):
        back = client.post(f"/v1/sessions/{name}/rewind", json={"position": position})
        assert back.json()["position"] == position
        assert client.get(f"/v1/sessions/{name}").json()["position"] == position
        same(feed(name, tokens[position:9]), alone[position:9])
    same(feed(name, tokens[9:]), alone[9:])
    same(feed(fork["id"], tokens[9:]), alone[9:])  # nothing of the other one reached it
    saved = client.get(f"/v1/sessions/{fork['id']}/state").json()
    assert saved == {"model": model, "tokens": tokens}
    again = client.post("/v1/sessions", json=saved | {"tokens": tokens[:10]}).json()
    assert again["position"] == 10
    same(feed(again["id"], tokens[10:], top=1), [one | {"top": one["top"][:1]} for one in alone[10:]])
    assert client.post(f"/v1/sessions/{name}/rewind", json={"position": 99}).status_code == 422
    assert client.delete(f"/v1/sessions/{name}").status_code == 204
    for method, rest in (("GET", ""), ("POST", "/fork"), ("DELETE", ""), ("GET", "/state")):
        gone = client.request(method, f"/v1/sessions/{name}{rest}")
        assert (gone.status_code, gone.json()["error"]["type"]) == (410, "gone")


def test_text_is_cut_as_the_model_does(client):
    name = client.post("/v1/sessions", json={"model": "lm"}).json()["id"]
    found = client.post(f"/v1/sessions/{name}/feed", json={"text": "the cat\na dog"}).json()
    assert [one["token"] for one in found["steps"]] == ["the", "cat", "\n", "a", "dog"]
    assert all("next" in one for one in found["steps"])
    empty = client.post(f"/v1/sessions/{name}/feed", json={"text": ""}).json()
    assert (empty["position"], empty["steps"]) == (5, [])
    for body in ({}, {"text": "a", "tokens": ["a"]}, {"tokens": ["a"], "top": 21}, {"tokens": [""]}):
        assert client.post(f"/v1/sessions/{name}/feed", json=body).status_code == 422


@pytest.mark.parametrize(
    ("model", "said"),
    [("tag", "model.bidirectional=false"), ("classify", "model.bidirectional=false"), ("seq2seq", "predict")],
)
def test_who_cannot_stream_says_what_helps(model, said, client):
    refused = client.post("/v1/sessions", json={"model": model})
    assert refused.status_code == 422
    assert said in refused.json()["error"]["message"]


def test_a_session_has_an_end(client, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST", 10)
    name = client.post("/v1/sessions", json={"model": "tagger"}).json()["id"]
    assert client.post(f"/v1/sessions/{name}/feed", json={"tokens": ["a"] * 9}).status_code == 200
    refused = client.post(f"/v1/sessions/{name}/feed", json={"tokens": ["a"] * 2})
    assert (refused.status_code, "at most 10" in refused.text) == (422, True)
    assert client.get(f"/v1/sessions/{name}").json()["position"] == 9  # nothing of it was read
    refused = client.post(f"/v1/sessions/{name}/feed", json={"tokens": ["a"] * (limits.FED + 1)})
    assert refused.status_code == 422


def test_room_for_sessions_is_bounded_and_nobody_loses_one(served, client, monkeypatch):
    own = client.post("/v1/sessions", json={"model": "tagger"}).json()["id"]
    monkeypatch.setattr(limits, "SESSIONS", len(served.service.sessions))
    for path, body in (("/v1/sessions", {"model": "tagger"}), (f"/v1/sessions/{own}/fork", None)):
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert client.post(f"/v1/sessions/{own}/feed", json={"tokens": ["a"]}).status_code == 200
    monkeypatch.setattr(limits, "SESSION_BYTES", 1)
    assert client.post(f"/v1/sessions/{own}/feed", json={"tokens": ["a"]}).status_code == 503
    assert client.delete(f"/v1/sessions/{own}").status_code == 204
    assert served.service.sessions._bytes >= 0


def test_ids_are_unguessable_and_unused_sessions_expire(served, monkeypatch):
    sessions, run = Sessions(b"secret", 3, idle=10.0), served.service.runs["tagger"]
    names = {sessions.add(Session(run), "owner") for _ in range(50)}
    assert len({name[13:45] for name in names}) == 50  # 128 bits of chance each
    name = names.pop()
    assert (sessions.worker_of(name, "owner"), len(sessions)) == (3, 50)
    wrong = [name + "0", name[:-1], name.replace("s3", "s4"), "s3", "", name.upper()]
    for one, owner in [(name, "other"), (name, ""), *((one, "owner") for one in wrong)]:
        with pytest.raises(UnknownSessionError):
            sessions.find(one, owner)
    other = Sessions(b"secret", 3)  # the same worker after its death
    with pytest.raises(GoneError):
        other.find(name, "owner")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 9.0)
    sessions.find(name, "owner")
    monkeypatch.setattr(time, "monotonic", lambda: now + 12.0)
    assert sessions.find(name, "owner")
    assert len(sessions) == 1
    monkeypatch.setattr(time, "monotonic", lambda: now + 23.0)
    with pytest.raises(GoneError):
        sessions.find(name, "owner")
    assert (len(sessions), sessions._bytes) == (0, 0)


def test_sessions_expire_though_nobody_asks(runs):
    one = Served({"tagger": runs["tagger"]}, session_idle=0.1)
    try:
        for _ in range(3):
            httpx.post(f"{one.address}v1/sessions", json={"model": "tagger"})
        assert len(one.service.sessions) > 0
        latest = time.monotonic() + 10
        while "elman_sessions 0.0" not in httpx.get(f"{one.address}metrics").text:
            assert time.monotonic() < latest
            time.sleep(0.05)
        assert len(one.service.sessions) == 0
    finally:
        one.close()


def test_what_comes_too_late_changes_nothing(served, client, monkeypatch):
    """A feed whose turn came too late is told so, and may be asked again."""
    name = client.post("/v1/sessions", json={"model": "tagger"}).json()["id"]
    monkeypatch.setattr(limits, "DEADLINE", 0.05)
    go = threading.Event()
    held = served.service.thread._quick.submit(go.wait)
    threading.Timer(0.4, go.set).start()
    late = client.post(f"/v1/sessions/{name}/feed", json={"tokens": ["a"]})
    held.result()
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")
    assert client.get(f"/v1/sessions/{name}").json()["position"] == 0


@pytest.mark.slow
def test_a_long_feed_is_one_and_leaves_others_their_turn(served, client, monkeypatch):
    stream = served.service.runs["tagger"].stream
    read = stream.read
    monkeypatch.setattr(stream, "read", lambda *given, **more: time.sleep(0.004) or read(*given, **more))
    name, other = (client.post("/v1/sessions", json={"model": "tagger"}).json()["id"] for _ in range(2))

    def feed(name, tokens):
        found = httpx.post(f"{served.address}v1/sessions/{name}/feed", json={"tokens": tokens}, timeout=30)
        return [one["position"] for one in found.json()["steps"]], time.monotonic()

    with ThreadPoolExecutor(3) as pool:
        both = [pool.submit(feed, name, ["a"] * 100) for _ in range(2)]
        time.sleep(0.1)
        _, early = feed(other, ["a"])
        position = client.get(f"/v1/sessions/{name}").json()["position"]
        saved = client.get(f"/v1/sessions/{name}/state").json()["tokens"]
        (first, one), (second, two) = (found.result() for found in both)
    assert early < min(one, two)
    assert position in (0, 100)
    assert len(saved) in (100, 200)
    assert sorted([first, second]) == [[*range(1, 101)], [*range(101, 201)]]
    assert client.post(f"/v1/sessions/{name}/rewind", json={"position": 77}).json()["position"] == 77
