"""The routes of sessions: begin, feed, fork, save, rewind, end."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Path, Request, Response

from elman.errors import StreamError
from elman.server import schemas
from elman.server.service import Service
from elman.server.sessions import Session

Id = Annotated[str, Path(max_length=200)]


def add_session_routes(app: FastAPI, service: Service) -> None:
    sessions = service.sessions

    def found(name: str, request: Request) -> Session:
        return sessions.find(name, owner_of(request))

    def told(name: str, session: Session) -> schemas.Session:
        run = session.run
        return schemas.Session(
            id=name,
            model=run.name,
            task=run.task,
            position=session.state.position,
            expires_in=sessions.idle,
        )

    @app.post("/v1/sessions", tags=["sessions"], status_code=201)
    async def begin(asked: schemas.SessionRequest, request: Request) -> schemas.Session:
        """A stream that stays: its state is kept here, and every request goes on from it."""
        run = service.run(asked.model)
        if isinstance(run.stream, StreamError):
            raise run.stream
        sessions.check_room()
        session = Session(run)
        await service.read(session, asked.tokens)
        return told(sessions.add(session, owner_of(request)), session)

    @app.get("/v1/sessions/{id}", tags=["sessions"])
    async def look(id: Id, request: Request) -> schemas.Session:
        """Where a session stands."""
        return told(id, found(id, request))

    @app.post("/v1/sessions/{id}/feed", tags=["sessions"], response_model=schemas.Fed)
    async def feed(id: Id, asked: schemas.FeedRequest, request: Request) -> Response:
        """Read more; what the model says after each token comes back."""
        return Response(await service.feed(id, owner_of(request), asked), media_type="application/json")

    @app.post("/v1/sessions/{id}/fork", tags=["sessions"], status_code=201)
    async def fork(id: Id, request: Request) -> schemas.Session:
        """Another session that stands at the same place."""
        sessions.check_room()
        session = found(id, request)
        async with session.turn:
            copy = session.forked()
        return told(sessions.add(copy, owner_of(request)), copy)

    @app.post("/v1/sessions/{id}/rewind", tags=["sessions"])
    async def rewind(id: Id, asked: schemas.RewindRequest, request: Request) -> schemas.Session:
        """Go back to where so many tokens were read."""
        session = found(id, request)
        async with session.turn:
            before, rest = session.before(asked.position)
            await service.read(before, rest)
            session.become(before)
            sessions.weigh(id)
            return told(id, session)

    @app.get("/v1/sessions/{id}/state", tags=["sessions"])
    async def save(id: Id, request: Request) -> schemas.Saved:
        """All that makes the session; ``POST /v1/sessions`` takes it, here or on another server."""
        session = found(id, request)
        async with session.turn:
            return schemas.Saved(model=session.run.name, tokens=[*session.tokens])

    @app.delete("/v1/sessions/{id}", tags=["sessions"], status_code=204)
    async def end(id: Id, request: Request) -> Response:
        """End it."""
        sessions.remove(id, owner_of(request))
        return Response(status_code=204)


def owner_of(request: Request) -> str:
    owner: str = request.scope["elman.owner"]
    return owner
