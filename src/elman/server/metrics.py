"""What a server counts, for Prometheus; of several workers together."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32)


class Metrics:
    """Requests by route and status, how long they took, how many texts a batch had, sessions."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("elman_requests", "Requests", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "elman_request_seconds", "Seconds until the answer", ["route"], buckets=SECONDS, registry=own
        )
        self.rows = Histogram("elman_batch_rows", "Texts of a batch", buckets=ROWS, registry=own)
        self.shed = Counter("elman_shed", "Requests turned away before their body was read", registry=own)
        self.sessions = Gauge(
            "elman_sessions", "Sessions that are kept", registry=own, multiprocess_mode="livesum"
        )

    def written(self) -> bytes:
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
