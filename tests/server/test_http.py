"""What the routes of a server answer, each asked over HTTP."""

import json
import re

import httpx
import pytest

from elman.server import limits
from served import STREAMING, TOKEN, Served
from tiny_tasks import DATA, TEXTS

ASKED = {name: TEXTS[name] for name in DATA}


def posted(client, path, **body):
    return client.post(path, json=body)


@pytest.mark.parametrize("task", DATA)
def test_predictions_are_those_of_the_command_line(task, client, served):
    found = posted(client, "/v1/predict", model=task, inputs=ASKED[task])
    assert found.status_code == 200
    predictor = served.service.runs[task].predictor
    expected = [one.as_json() for one in predictor.details(ASKED[task])]
    assert len(found.json()["predictions"]) == len(expected)
    for told, one in zip(found.json()["predictions"], json.loads(json.dumps(expected)), strict=True):
        assert told.keys() == one.keys()
        assert told["prediction"] == one["prediction"]


def test_words_that_are_cut_already(client):
    both = posted(client, "/v1/predict", model="tagger", inputs=["the cat runs", ["the", "cat", "runs"]])
    first, second = both.json()["predictions"]
    assert first["prediction"] == second["prediction"]
    refused = posted(client, "/v1/predict", model="classify", inputs=[["the", "cat"]])
    assert refused.status_code == 422
    assert "must be a string" in refused.json()["error"]["message"]


def test_one_wrong_text_spoils_nobody_elses(client):
    both = posted(client, "/v1/predict", model="class2seq", inputs=["it", "nobody"])
    assert (both.status_code, "nobody" in both.json()["error"]["message"]) == (422, True)
    assert posted(client, "/v1/predict", model="class2seq", inputs=["it"]).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "nobody", "inputs": ["a"]}, 404),
        ({"model": "../lm", "inputs": ["a"]}, 422),
        ({"model": "lm"}, 422),
        ({"model": "lm", "inputs": []}, 422),
        ({"model": "lm", "inputs": ["a"] * (limits.INPUTS + 1)}, 422),
        ({"model": "lm", "inputs": ["a" * (limits.TEXT + 1)]}, 422),
        ({"model": "lm", "inputs": ["a"], "more": 1}, 422),
        ({"model": "lm", "inputs": ["a"], "k" * 5000: 1}, 422),
    ],
)
def test_what_is_wrong_with_a_request_is_said(body, status, client):
    found = client.post("/v1/predict", json=body)
    error = found.json()["error"]
    assert (found.status_code, error["code"]) == (status, status)
    assert len(found.content) < 2000


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/sessions", "/v1/completions", "/v1/inspect"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"1" * 9999, b'{"model": "\xff"}', b'{"model": "\\ud800"}', b"NaN"]
)
def test_what_is_no_json_is_refused(path, body, client):
    found = client.post(path, content=body, headers={"content-type": "application/json"})
    assert found.status_code in (400, 422)
    assert "error" in found.json()


def test_completions_are_those_of_the_model(client, served):
    predictor = served.service.runs["lm"].predictor.with_settings(
        {"decoding.strategy": "greedy", "decoding.max_length": 12}
    )
    asked = {"model": "lm", "prompt": ["the", "a dog"], "max_tokens": 12, "temperature": 0}
    found = posted(client, "/v1/completions", **asked)
    assert found.status_code == 200, found.text
    for choice, one in zip(found.json()["choices"], predictor.generate(["the", "a dog"]), strict=True):
        assert one.as_json()["prompt"] + choice["text"] == one.value or choice["text"].strip() in one.value
    events = client.post("/v1/completions", json=asked | {"stream": True}).text
    pieces = [json.loads(one) for one in re.findall(r"^data: (\{.*)$", events, re.MULTILINE)]
    for place, choice in enumerate(found.json()["choices"]):
        own = [one["choices"][0] for one in pieces if one["choices"][0]["index"] == place]
        assert "".join(one["text"] for one in own) == choice["text"]
        assert [one["finish_reason"] for one in own][-1] == choice["finish_reason"]
    assert events.endswith("data: [DONE]\n\n")


def test_completions_have_their_settings(client):
    def completed(**more):
        found = posted(client, "/v1/completions", model="lm", prompt="the", **more)
        assert found.status_code == 200, found.text
        return [one["text"] for one in found.json()["choices"]]

    assert completed(seed=3, n=2, max_tokens=9) == completed(seed=3, n=2, max_tokens=9)
    assert len({*completed(seed=3, n=8, max_tokens=9)}) > 1
    [greedy] = completed(temperature=0, max_tokens=9)
    assert completed(temperature=0, max_tokens=9, echo=True) == ["the" + greedy]
    assert completed(top_k=1, max_tokens=9) == [greedy]
    assert completed(top_p=1e-6, max_tokens=9) == [greedy]
    word = greedy.split()[-1]
    assert completed(temperature=0, max_tokens=9, stop=word) == [greedy[: greedy.index(word)]]
    refused = posted(client, "/v1/completions", model="lm", prompt=["a"] * 8, n=8, max_tokens=4096)
    assert (refused.status_code, "together" in refused.text) == (422, True)
    refused = posted(client, "/v1/completions", model="tag", prompt="a")
    assert (refused.status_code, "language models" in refused.text) == (422, True)


def test_a_client_of_openai(runs):
    openai = pytest.importorskip("openai")
    one = Served({"lm": runs["lm"]}, tokens=(TOKEN,))
    try:
        client = openai.OpenAI(base_url=f"{one.address}v1", api_key=TOKEN, max_retries=0)
        assert [model.id for model in client.models.list()] == ["lm"]
        asked = {"model": "lm", "prompt": "the", "max_tokens": 8, "temperature": 0}
        whole = client.completions.create(**asked)
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
        pieces = [*client.completions.create(**asked, stream=True)]
        assert len(pieces) > 2
        assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{one.address}v1", api_key="nobody's", max_retries=0).models.list()
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="nobody", prompt="the")
    finally:
        one.close()


def test_looks_inside(client, served):
    from elman.inspection.inspection import Question

    found = posted(client, "/v1/inspect", model="tag", text="the cat runs", parts=["gates"])
    predictor = served.service.runs["tag"].predictor
    expected = predictor.inspect(Question("the cat runs", parts=["gates"])).as_json()
    assert found.json()["gates"][0].keys() == expected["gates"][0].keys()
    assert found.json()["run"] == "tag"  # and no path of the server
    asked = {"model": "classify", "text": "a dog", "parts": ["unrolled"], "against": "classifier"}
    several = posted(client, "/v1/inspect", **asked, replace={"2": "cat"}, remove=[1])
    assert [one["run"] for one in several.json()] == ["classify"] * 2 + ["classifier"] * 2
    for more, said in (
        ({"replace": {"0": "a"}}, "replace"),
        ({"remove": [7]}, "no token 7"),
        ({"clamp": ["nonsense"]}, "clamp"),
        ({"against": "nobody"}, "no such model"),
    ):
        refused = posted(client, "/v1/inspect", model="classify", text="a dog", **more)
        assert (refused.status_code in (404, 422), said in refused.text) == (True, True), refused.text


def test_health_and_metadata(client, served):
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2").json()["name"] == "elman"
    names = [one["id"] for one in client.get("/v1/models").json()["data"]]
    assert names == [*served.service.runs]
    for name in names:
        told = client.get(f"/v2/models/{name}").json()
        assert (told["name"], told["inputs"][0]["datatype"]) == (name, "BYTES")
        assert client.get(f"/v2/models/{name}/ready").json() == {"name": name, "ready": True}
        assert client.get(f"/v1/models/{name}").json()["streams"] == (name in STREAMING)
    assert client.get("/v2/models/nobody").status_code == 404
    served.service.stopping = True
    assert client.get("/v2/health/ready").status_code == 503
    served.service.stopping = False


def test_ready_means_a_pass_not_older_than_a_second(client, served, monkeypatch):
    passes = []
    monkeypatch.setattr("elman.server.service.check", lambda run: passes.append(run.name))
    served.service._passed = 0.0
    for _ in range(3):
        assert client.get("/v2/health/ready").status_code == 200
    assert passes == [*served.service.runs]
    served.service._passed -= 1.0
    assert client.get("/v2/health/ready").status_code == 200
    assert len(passes) == 2 * len(served.service.runs)

    def broken(run):
        raise RuntimeError("the model computes nothing")

    monkeypatch.setattr("elman.server.service.check", broken)
    served.service._passed -= 1.0
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/health/live").status_code == 200


def test_metrics_count(client):
    def count():
        told = client.get("/metrics").text
        return float(re.search(r'elman_requests_total\{route="/v1/predict",status="200"\} (\S+)', told)[1])

    posted(client, "/v1/predict", model="tag", inputs=["a"])
    before = count()
    for _ in range(3):
        posted(client, "/v1/predict", model="tag", inputs=["a"])
    assert count() == before + 3


def test_a_fault_of_ours_is_told_and_ends_nothing(client, served, monkeypatch, caplog):
    def broken(texts):
        raise RuntimeError("inside")

    monkeypatch.setattr(served.service.runs["tag"].predictor, "details", broken, raising=False)
    found = posted(client, "/v1/predict", model="tag", inputs=["a"])
    assert (found.status_code, found.json()["error"]["code"]) == (500, 500)
    assert "inside" not in found.text
    assert posted(client, "/v1/predict", model="lm", inputs=["a"]).status_code == 200


def test_every_answer_is_guarded_and_no_other_site_may_read_it(client):
    for path in ("/", "/v1/models", "/nonsense", "/page/app.js"):
        found = client.get(path, headers={"origin": "https://example.org"})
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in found.headers
    asked = {"origin": "https://example.org", "access-control-request-method": "POST"}
    refused = client.options("/v1/predict", headers=asked)
    assert refused.status_code == 405
    assert client.get("/v1/models/").status_code == 404  # no way to be sent elsewhere
    assert httpx.get(f"{client.base_url}v1/models", headers={"host": "example.org"}).status_code == 200
