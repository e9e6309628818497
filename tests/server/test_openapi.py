"""Requests that are made of the server's own description: nothing breaks, and answers are as described.

``ELMAN_CASES=20000 pytest -s tests/server/test_openapi.py`` makes so many of them; the suite some 1,500.
"""

import os
import random
import warnings
from collections import Counter

import pytest

from elman.server.app import make_app
from elman.server.auth import Gate
from elman.server.forwarding import Siblings
from elman.server.front import Front
from elman.server.serving import Options, make_service
from elman.server.sessions import Session

schemathesis = pytest.importorskip("schemathesis")

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from schemathesis import checks  # noqa: E402
from schemathesis.generation import GenerationMode  # noqa: E402

CASES = int(os.environ.get("ELMAN_CASES", "1500"))
LONG = 40  # tokens of a completion, mostly: what a test waits for


def mended(schema, service, draw, modes):
    """Requests that are meant well get further than to a name that nobody has."""
    names = [*service.runs]

    @schema.hook
    def map_body(context, body):
        if modes[-1] is GenerationMode.NEGATIVE:
            return body
        if isinstance(body, dict) and "model" in body and draw.random() < 0.8:
            body = body | {"model": draw.choice(names)}
        if isinstance(body, dict) and type(most := body.get("max_tokens")) is int and LONG < most < 5000:
            body = body | {"max_tokens": 1 + most % LONG}
        if isinstance(body, dict) and "position" in body and draw.random() < 0.5:
            body = body | {"position": 0}
        return body

    @schema.hook
    def map_path_parameters(context, parameters):
        if modes[-1] is GenerationMode.NEGATIVE:
            return parameters
        if parameters and "name" in parameters and draw.random() < 0.5:
            parameters = {**parameters, "name": draw.choice(names)}
        if parameters and "id" in parameters and draw.random() < 0.6:
            session = Session(service.run(draw.choice(("tagger", "classifier", "lm"))))
            parameters = {**parameters, "id": service.sessions.add(session, "")}
        return parameters


@pytest.mark.slow
def test_every_answer_is_as_described(runs):
    service = make_service(Options(runs), 0)
    front = Front(make_app(service), service, Gate(), Siblings())
    schema = schemathesis.openapi.from_asgi("/openapi.json", front)
    modes = []
    mended(schema, service, random.Random(1), modes)
    # What the description cannot say, such as that a run reads in both directions, is refused by 422.
    excluded = [checks.positive_data_acceptance]
    operations = [one.ok() for one in schema.get_all_operations()]
    asked = [one for one in operations if one.path_parameters or one.body]
    seen: Counter[tuple[str, int]] = Counter()

    def ask(operation, mode, most):
        modes.append(mode)

        @given(case=operation.as_strategy(generation_mode=mode))
        @seed(CASES)
        @settings(
            max_examples=most,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        def tell(case):
            answer = case.call(timeout=60)
            seen[operation.label, answer.status_code] += 1
            case.validate_response(answer, excluded_checks=excluded)

        tell()

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the generator, about what it does not know
            for operation in operations:
                ask(operation, GenerationMode.POSITIVE, int(CASES * (0.042 if operation.body else 0.064)))
            for operation in asked:  # names that nobody has are slow to make, and all alike
                ask(operation, GenerationMode.NEGATIVE, int(CASES * (0.042 if operation.body else 0.01)))
    finally:
        service.thread.close()
    for (label, status), count in sorted(seen.items()):
        print(f"{count:6,} × {label} {status}")
    assert sum(seen.values()) >= CASES
    assert all(status < 500 for _, status in seen)
    answered = {label for label, status in seen if status < 300}
    assert answered == {one.label for one in operations}
