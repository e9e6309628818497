"""A server in a thread that answers what the page asks, from tiny models, or with trouble where a test wants it."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from elman.errors import ElmanError
from elman.inspection.inspection import Question
from elman.inspection.saving import PARTS, written
from elman.inspection.watching import Clamp
from elman.server.page import ASSETS

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class StandIn(ThreadingHTTPServer):
    """predictors: by name. trouble: what the next requests to a model get: (status, headers, sentence)."""

    daemon_threads = True

    def __init__(self, predictors):
        super().__init__(("127.0.0.1", 0), Handler)
        self.predictors, self.trouble, self.token = predictors, [], None
        self.asked, self.one = [], threading.Lock()
        self.address = f"http://127.0.0.1:{self.server_address[1]}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Requests that are given up are no trouble."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, kind="application/json", status=200, headers=None):
        self.send_response(status)
        own = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": len(body)}
        for name, value in {**own, "Content-Security-Policy": "default-src 'self'", **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def refused(self):
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self.server.trouble = [(401, {}, "a token is needed")]
        if not self.server.trouble:
            return False
        status, headers, sentence = self.server.trouble.pop(0)
        if status is None:
            self.close_connection = True
        else:
            self.answer(json.dumps({"error": {"message": sentence}}).encode(), status=status, headers=headers)
        return True

    def do_GET(self):
        name = "index.html" if self.path == "/" else self.path.removeprefix("/page/")
        if self.path == "/v1/models":
            if not self.refused():
                self.answer(json.dumps({"object": "list", "data": self.models()}).encode())
        elif name in ASSETS:
            self.answer(ASSETS[name].read_bytes(), KINDS[name.rpartition(".")[2]])
        else:
            self.answer(b"{}", status=404)

    def models(self):
        return [
            {
                "id": name,
                "task": one.config.task,
                "summary": one.task.describe(one.model)[0],
                "labels": one.task.label_names,
                "parts": [*PARTS],
            }
            for name, one in self.server.predictors.items()
        ]

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, asked))
        if self.refused():
            return
        model = self.server.predictors[asked["model"]]
        try:
            with self.server.one:
                getattr(self, self.path.rpartition("/")[2])(model, asked)
        except ElmanError as error:
            self.answer(json.dumps({"error": {"message": str(error)}}).encode(), status=422)

    def predict(self, model, asked):
        found = [one.as_json() for one in model.details(asked["inputs"])]
        self.answer(json.dumps({"predictions": found}).encode())

    def completions(self, model, asked):
        pieces = re.findall(r"\S+", model.predict([asked["prompt"]])[0])
        lines = [json.dumps({"choices": [{"text": f" {piece}"}]}) for piece in pieces]
        self.answer("".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode(), "text/event-stream")

    def inspect(self, model, asked):
        plain = Question(asked["text"], parts=asked["parts"])
        found = [model.inspect(plain)]
        replaced = {int(place): token for place, token in asked.get("replace", {}).items()}
        replaced |= dict.fromkeys(asked.get("remove", []))
        clamps = [Clamp.read(one) for one in asked.get("clamp", [])]
        forced = {int(place): token for place, token in asked.get("force", {}).items()}
        if replaced or clamps or forced:
            found.append(model.inspect(Question(asked["text"], None, replaced, forced, clamps, asked["parts"])))
        found += [self.server.predictors[name].inspect(plain) for name in asked.get("against", [])]
        self.answer(written(found).encode())
