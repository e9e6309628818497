"""Streams that are kept between requests: each is a value, so it can be forked, saved, restored and rewound.

An id says which worker has the session, and is signed together with its owner's token: nobody can guess one,
use one of another owner, or take one of a worker that has gone for one that is.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from elman.errors import ArgumentError
from elman.server import limits
from elman.server.batching import BusyError
from elman.server.runs import ServedRun
from elman.tasks.streaming import Stream, StreamState
from elman.tensors.nested import tensors_in

TOKEN = 60  # bytes of a token beside its characters
ID = re.compile(r"s([0-9]{1,3})-([0-9a-f]{8})-([0-9a-f]{32})-([0-9a-f]{32})")


class GoneError(Exception):
    """There was such a session."""


class UnknownSessionError(Exception):
    """There was never one, for whoever asks."""


class Turn:
    """Of one request at a time; who waits for it does not wait for ever."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        if not self._lock.locked():
            await self._lock.acquire()
            return
        try:
            async with asyncio.timeout(limits.DEADLINE):
                await self._lock.acquire()
        except TimeoutError:
            raise BusyError from None

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


@dataclass
class Session:
    """A stream at some place, the tokens that led there, and states on the way.

    All that reads or changes it is done in turn, so that nobody sees half a change.
    """

    run: ServedRun
    tokens: list[str] = field(default_factory=list)
    state: StreamState = field(default_factory=StreamState)
    snapshots: dict[int, StreamState] = field(default_factory=dict)
    used: float = 0.0
    characters: int = 0  # of all tokens
    bytes: int = 0  # as they were counted last
    turn: Turn = field(default_factory=Turn)

    @property
    def stream(self) -> Stream:
        found = self.run.stream
        assert isinstance(found, Stream)
        return found

    def check_room(self, count: int) -> None:
        """Whether so many more tokens are not too many."""
        if self.state.position + count > limits.LONGEST:
            raise ArgumentError(
                f"a session has at most {limits.LONGEST:,} tokens; begin another, or go back by rewind"
            )

    def feed(self, tokens: list[str], top: int) -> list[dict[str, Any]]:
        """What is said after each of some tokens; nothing is changed before all of it is known."""
        steps, state, snapshots = [], self.state, {}
        for token in tokens:
            if state.position % limits.SNAPSHOT == 0:
                snapshots[state.position] = state
            said, state = self.stream.read(token, state, top=top)
            steps.append(said)
        self.state = state
        self.tokens.extend(tokens)
        self.characters += sum(map(len, tokens))
        self.snapshots.update(snapshots)
        return steps

    def before(self, position: int) -> tuple[Session, list[str]]:
        """As it was at the last state that was kept before a position, and the tokens from there."""
        if position > self.state.position:
            raise ArgumentError(f"position is {position}; the session has read {self.state.position}")
        nearest = max((place for place in self.snapshots if place <= position), default=0)
        found = Session(self.run, self.tokens[:nearest], self.snapshots.get(nearest, StreamState()))
        found.snapshots = {place: one for place, one in self.snapshots.items() if place <= nearest}
        found.characters = sum(map(len, found.tokens))
        return found, self.tokens[nearest:position]

    def become(self, other: Session) -> None:
        """Stand where another one stands."""
        self.tokens, self.state, self.snapshots = other.tokens, other.state, other.snapshots
        self.characters = other.characters

    def forked(self) -> Session:
        """Another one that stands at the same place."""
        copy = Session(self.run, list(self.tokens), self.state, dict(self.snapshots))
        copy.characters = self.characters
        return copy

    def size(self) -> int:
        """Bytes, about: states on the way are no larger than the last one."""
        state = sum(one.nbytes for one in tensors_in(self.state))
        return (1 + len(self.snapshots)) * state + self.characters + TOKEN * len(self.tokens)


class Sessions:
    """All sessions of a worker, the one that was used last at the end; one that nobody uses expires.

    Where there is no room for more, more are refused: nobody loses a session to somebody else.
    """

    def __init__(self, secret: bytes, worker: int = 0, *, idle: float = 300.0) -> None:
        self.secret, self.worker, self.idle = secret, worker, idle
        self.life = secrets.token_hex(4)  # of this worker: after its death there is another
        self._table: OrderedDict[str, Session] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._table)

    def check_room(self) -> None:
        """Whether there is room for another one."""
        self.expire()
        if len(self._table) >= limits.SESSIONS:
            raise BusyError
        self.check_memory()

    def check_memory(self) -> None:
        """Whether sessions may grow."""
        if self._bytes >= limits.SESSION_BYTES:
            raise BusyError

    def add(self, session: Session, owner: str) -> str:
        """Its id."""
        self.check_room()
        body = f"s{self.worker}-{self.life}-{secrets.token_hex(16)}"
        name = f"{body}-{self._sign(body, owner)}"
        session.used = time.monotonic()
        self._table[name] = session
        self.weigh(name)
        return name

    def weigh(self, name: str) -> None:
        """Count again how much room a session takes, if it has not ended."""
        session = self._table.get(name)
        if session is not None:
            size = session.size()
            self._bytes += size - session.bytes
            session.bytes = size

    def find(self, name: str, owner: str) -> Session:
        self.expire()
        self.worker_of(name, owner)
        session = self._table.get(name)
        if session is None:
            raise GoneError
        session.used = time.monotonic()
        self._table.move_to_end(name)
        return session

    def remove(self, name: str, owner: str) -> None:
        self.find(name, owner)
        self._bytes -= self._table.pop(name).bytes

    def worker_of(self, name: str, owner: str) -> int:
        """Which worker has a session; an id that was not given to this owner is unknown."""
        match = ID.fullmatch(name)
        if match is None:
            raise UnknownSessionError
        body, _, signature = name.rpartition("-")
        if not hmac.compare_digest(signature, self._sign(body, owner)):
            raise UnknownSessionError
        return int(match[1])

    def expire(self) -> None:
        oldest = time.monotonic() - self.idle
        while self._table:
            session = next(iter(self._table.values()))
            if session.used >= oldest:
                return
            self._table.popitem(last=False)
            self._bytes -= session.bytes

    def _sign(self, body: str, owner: str) -> str:
        return hmac.new(self.secret, f"{body}\0{owner}".encode(), hashlib.sha256).hexdigest()[:32]
