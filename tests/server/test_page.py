"""The page of the server, in a real browser: what is on the screen while somebody types."""

import json
import re
from urllib.parse import unquote

import pytest

from chromium import BROWSER, Chromium
from elman.inspection.inspection import Question
from elman.server.page import ASSETS
from served import Served
from tiny_tasks import DATA, descend, ready, save

needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
TYPED = {
    "lm": "the dog",
    "tag": "the cat runs",
    "classify": "a dog and stones",
    "class2seq": "it",
    "seq2seq": "the cat runs",
}
SETTLED = "document.querySelector('#panel h2') && !document.querySelector('[aria-busy]')"


class Troubled:
    """A server that answers with trouble where a test wants it, and else as the one within."""

    def __init__(self, within):
        self.within, self.trouble, self.token, self.inspected = within, [], None, 0

    async def __call__(self, scope, receive, send):
        headers = dict(scope["headers"])
        asks = scope["path"].startswith("/v1/")
        self.inspected += scope["path"] == "/v1/inspect"
        if asks and self.token and headers.get(b"authorization") != f"Bearer {self.token}".encode():
            status, more, sentence = 401, [], "give a token"
        elif asks and scope["method"] == "POST" and self.trouble:
            status, more, sentence = self.trouble.pop(0)
        else:
            await self.within(scope, receive, send)
            return
        body = json.dumps({"error": {"message": sentence}}).encode()
        more = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *more]
        await send({"type": "http.response.start", "status": status, "headers": more})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The real one, in a thread, with a tiny model of each task."""
    folder, runs = tmp_path_factory.mktemp("runs"), {}
    for name in DATA:
        one = ready(name, folder, {"model.hidden": 5})
        descend(one, 40)
        runs[name] = save(one, folder / name)
    one = Served(runs, Troubled)
    troubled = one.app
    troubled.address = one.address
    troubled.predictors = {name: run.predictor for name, run in one.service.runs.items()}
    yield troubled
    one.close()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    browser = Chromium(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def page(server, chromium):
    """Opens the page at a fragment of its address."""
    server.trouble, server.token, server.inspected = [], None, 0

    def opened(fragment="", **size):
        chromium.open(f"{server.address}#{fragment}", **size)
        return chromium

    return opened


def text(browser, selector):
    return re.sub(r"\s+", " ", browser.ask(f"document.querySelector({selector!r}).innerText"))


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("task", DATA)
def test_what_a_model_says_comes_while_one_types(task, page, server):
    browser = page(f"model={task}&temperature=0")
    browser.wait("document.activeElement.id === 'text'")  # the keys go there at once
    browser.type(TYPED[task])
    browser.wait(f"{SETTLED} && document.querySelector('#text').value === {TYPED[task]!r}")
    model, shown = server.predictors[task], text(browser, "#answer")
    said = model.details([TYPED[task]])[0]
    steps = model.inspect(Question(TYPED[task], parts=["unrolled"])).as_json()["unrolled"][-1]["steps"]
    if task == "tag":
        for word, tag, chance in zip(TYPED[task].split(), said.value, said.probabilities, strict=True):
            assert re.search(rf"{word} {tag} {float(f'{100 * chance:.3g}'):g} %", shown)
    else:
        assert said.line in shown
    for token, chance in steps[-1]["top"][:2] if task == "classify" else []:
        assert f"{token} {float(f'{100 * chance:.3g}'):g} %" in shown
    if task in ("class2seq", "seq2seq"):
        chances = [float(f"{100 * step['probability']:.3g}") for step in steps]
        assert all(f"{chance:g} %" in shown for chance in chances)
    if task == "seq2seq":
        assert browser.ask("document.querySelectorAll('#answer .band').length") >= 3
        assert browser.ask("[...document.querySelectorAll('#answer .word')].map(w => w.lastChild.data)")[
            :3
        ] == [
            "the",
            "cat",
            "runs",
        ]
    if task == "lm":
        best = next(step["top"][0][0] for step in steps if step["token"] == "dog")
        assert text(browser, "#answer .best b") == best
        assert text(browser, "#answer .headline").startswith("the dog ")
    assert text(browser, "#panel h2") == "The network unrolled"
    address = unquote(browser.ask("location.hash")).replace("+", " ")
    assert address.startswith(f"#model={task}&text={TYPED[task]}")
    assert browser.complaints == []
    assert {re.match(r"https?://[^/]+/", url)[0] for url in browser.requests} == {server.address}
    assert server.inspected < max(4, len(TYPED[task]))  # not at every key


@needs_browser
@pytest.mark.slow
def test_every_view_is_reached_by_keys(page, server):
    browser = page("model=seq2seq&text=the+cat+runs")
    browser.wait(SETTLED)
    found = server.predictors["seq2seq"].inspect("the cat runs").as_json()
    browser.ask("document.querySelector('[role=tab][aria-selected=true]').focus()")
    expected = {  # the tab after the first, and so on
        "Gates and states": f"{found['gates'][0]['name']} {found['gates'][0]['kind']}",
        "The gradient through time": found["gradients"][0]["sentence"],
        "Attention step by step": f"{found['attention']['worth'][0]:g}",
        "The search": found["beam"]["strategy"],
        "Influence of the input": found["influence"]["of"],
        "Neighbours and maps": found["neighbours"]["nearest"]["cat"][0][0],
        "How a gate writes": "a hard gate writes",
    }
    for title, part in expected.items():
        browser.press("ArrowRight")
        browser.wait(f"{SETTLED} && document.querySelector('#panel h2').innerText === {title!r}")
        assert part in text(browser, "#panel")
    assert browser.ask("document.querySelectorAll('[role=tab][aria-selected=true]').length") == 1
    assert browser.complaints == []


@needs_browser
@pytest.mark.slow
def test_steps_are_played_and_a_new_answer_keeps_the_place(page):
    browser = page("model=seq2seq&text=the+cat+runs")
    browser.wait(SETTLED)
    browser.ask("document.querySelector('#panel button[aria-label=\"one step on\"]').click()")
    assert text(browser, ".where").startswith("encoder t = 2: read: cat")
    browser.ask("document.querySelector('#text').focus()")
    browser.press("End")
    browser.type(" home")
    browser.wait(
        "document.querySelector('#text').value.endsWith('home') && !document.querySelector('[aria-busy]')"
    )
    browser.wait("document.querySelector('#panel').innerText.includes('home')")
    assert text(browser, ".where").startswith("encoder t = 2: read: cat")


@needs_browser
@pytest.mark.slow
def test_what_if_stands_beside_the_original_and_in_the_link(page):
    browser = page("model=classify&text=a+dog+and+stones&view=gates")
    browser.wait(SETTLED)
    browser.ask("document.querySelector('#changes').open = true")
    browser.wait("!document.querySelectorAll('#changes form')[1].hidden")
    fill = "{ const [token, unit] = document.querySelectorAll('#changes form');"
    fill += "token.querySelector('select').value = 2; token.querySelector('input').value = 'table';"
    fill += "token.requestSubmit(); unit.querySelector('input').value = 3; unit.requestSubmit(); }"
    browser.ask(fill)
    browser.wait(f"{SETTLED} && document.querySelectorAll('#panel .card').length === 2")
    browser.wait("document.querySelectorAll('#answer svg').length === 2")
    shown = text(browser, "#answer")
    assert "original" in shown
    assert "token 2, 'dog', is replaced by 'table'" in shown
    assert "unit 3 of i is held at 0" in shown
    fragment = browser.ask("location.hash")
    browser = page(fragment[1:])
    browser.wait(f"{SETTLED} && document.querySelectorAll('#panel .card').length === 2")
    browser.wait("document.querySelectorAll('#answer svg').length === 2")
    assert text(browser, "#answer") == shown
    assert text(browser, "#panel h2") == "Gates and states"
    browser.ask("document.querySelectorAll('#changes .chips button').forEach(one => one.click())")
    browser.wait(f"{SETTLED} && document.querySelectorAll('#panel .card').length === 1")
    assert browser.complaints == []


@needs_browser
@pytest.mark.slow
def test_trouble_is_told_and_ends(page, server):
    browser = page("model=tag")
    browser.wait("document.activeElement.id === 'text'")
    server.trouble = [(503, [(b"retry-after", b"1")], "too many requests")] * 2
    browser.type("the")
    browser.wait("document.querySelector('#trouble').innerText.includes('The server is busy.')")
    assert "too many requests" in text(browser, "#trouble")
    browser.wait("document.querySelector('.tagged') && !document.querySelector('#trouble').innerText")
    server.trouble = [(422, [], "the text is too long")] * 2
    browser.type(" cat")
    browser.wait("document.querySelector('#trouble').innerText.includes('the text is too long')")
    away = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.call("Network.emulateNetworkConditions", offline=True, **away)
    browser.type(" runs")
    browser.wait("document.querySelector('#trouble').innerText.includes('The server does not answer.')")
    browser.call("Network.emulateNetworkConditions", offline=False, **away)
    browser.ask("document.querySelector('#trouble button').click()")
    browser.wait("document.querySelectorAll('.tagged button').length === 3")
    server.token = "secret"
    browser.type(" home")
    browser.wait("document.activeElement.id === 'token'")
    browser.type("secret")
    browser.ask("document.querySelector('#trouble form').requestSubmit()")
    browser.wait("document.querySelectorAll('.tagged button').length === 4")
    browser.ask("sessionStorage.clear()")


@needs_browser
@pytest.mark.slow
def test_a_text_that_is_too_long_to_look_into_is_answered(page, server):
    browser = page(f"model=classify&text={'dog+' * 120}")
    browser.wait("document.querySelector('#trouble').innerText.includes('cannot be looked into')")
    assert "480 characters; a text that is looked into has at most 400" in text(browser, "#trouble")
    assert "animal" in text(browser, "#answer")
    assert (browser.complaints, server.inspected) == ([], 0)


@needs_browser
@pytest.mark.slow
def test_one_goes_back_to_another_view_and_another_model(page):
    browser = page("model=tag&text=the+cat")

    def shows(model, title):
        shown = f"document.querySelector('#title').innerText === {model!r}"
        browser.wait(f"{SETTLED} && {shown} && document.querySelector('#panel h2').innerText === {title!r}")

    shows("tag", "The network unrolled")
    browser.ask("document.querySelector('#tab-gates').click()")
    shows("tag", "Gates and states")
    browser.ask("document.querySelector('#text').focus()")
    browser.type(" runs")  # letters are no steps to go back by
    choose = "{ const one = document.querySelector('#model'); one.value = 'classify';"
    browser.ask(choose + " one.dispatchEvent(new Event('change')); }")
    shows("classify", "Gates and states")
    browser.ask("history.back()")
    shows("tag", "Gates and states")
    assert browser.ask("document.querySelector('#text').value.length") == len("the cat runs")
    browser.ask("history.back()")
    shows("tag", "The network unrolled")
    browser.ask("history.forward()")
    shows("tag", "Gates and states")
    assert browser.complaints == []


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("task", ["lm", "tag", "seq2seq"])
def test_small_and_dark_screens(task, page):
    browser = page(f"model={task}&text={TYPED[task].replace(' ', '+')}&view=gates", width=360, dark=True)
    browser.wait(SETTLED)
    assert browser.ask("document.documentElement.scrollWidth") <= 360
    last = "document.querySelector('[role=tab]:last-child')"
    browser.ask(f"{last}.click()")
    assert browser.ask(f"{last}.getBoundingClientRect().right") <= 360
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"


@needs_browser
@pytest.mark.slow
def test_names_for_those_who_listen_and_text_from_the_right(page, server):
    browser = page("model=tag&text=%D7%A9%D7%9C%D7%95%D7%9D+cat&clamp=c:1=0")
    browser.wait(SETTLED)
    nameless = "[...document.querySelectorAll('button, input, select, textarea, canvas, svg[role]')]"
    nameless += (
        ".filter(one => !one.getAttribute('aria-label') && !one.labels?.length && !one.innerText?.trim())"
    )
    assert browser.ask(f"{nameless}.map(one => one.outerHTML)") == []
    assert browser.ask("getComputedStyle(document.querySelector('#text')).direction") == "rtl"
    places = "[...document.querySelectorAll('.tagged button')].map(one => one.getBoundingClientRect().left)"
    first, second = browser.ask(places)[:2]
    assert first > second
    browser.wait("document.querySelector('#said').textContent")  # the answer is read aloud
    browser = page("model=classify")
    browser.wait("document.documentElement.dataset.ready")
    assert "It knows 2 labels: animal, thing." in text(browser, "#answer")


@needs_browser
@pytest.mark.slow
def test_names_at_the_ends_of_lines_are_inside_the_picture(page):
    """Four classes, three of them next to nothing: their names would stand one on the other."""
    browser = page("model=classify")
    browser.wait("document.documentElement.dataset.ready")
    browser.ask("""import("/page/answers.js").then(({ answer }) => {
        const top = [["one", 0.97], ["two", 0.01], ["three", 0.01], ["four", 0.01]];
        const steps = ["a", "b"].map(token => ({ token, own: "one", top }));
        const drawn = answer("classify", { prediction: "one" }, { unrolled: [{ steps }] });
        document.querySelector("#answer").replaceChildren(...drawn.flat().filter(Boolean));
    })""")
    browser.wait("document.querySelectorAll('#answer .ends').length === 4")
    places = "[...document.querySelectorAll('#answer .ends')].map(one => one.getBoundingClientRect())"
    names = browser.ask(f"{places}.map(({{ top, bottom }}) => [top, bottom])")
    assert max(names)[1] <= browser.ask(
        "document.querySelector('#answer svg').getBoundingClientRect().bottom"
    )
    assert all(b[0] - a[0] >= 15 for a, b in zip(sorted(names)[:-1], sorted(names)[1:], strict=True))


def test_a_page_is_made_of_its_own_files():
    assert all(path.is_file() for path in ASSETS.values())
    html = ASSETS["index.html"].read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", html)
    named = re.findall(r'(?:src|href)="page/([^"]+)"', html)
    for name, path in ASSETS.items():
        if name.endswith(".js"):
            script = path.read_text(encoding="utf-8")
            named += re.findall(r'^import .* from "\./([^"]+)";', script, re.MULTILINE)
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|eval\(|innerHTML", script)
    assert {*named} == {*ASSETS} - {"index.html"}
