"""belay in a FastAPI application, asked over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI

from belay_core import Client, InvalidTransitionError
from belay_integrations.fastapi import Belay, add_exception_handlers
from tests.integrations.greeting import greeting


def application(belay: Belay) -> FastAPI:
    app = FastAPI(lifespan=belay.lifespan)
    add_exception_handlers(app)

    @app.post("/greet/{name}", status_code=202)
    async def start(name: str, runs: Annotated[Client, Depends(belay)]) -> dict[str, str | bool]:
        run = await runs.start(greeting, name, idempotency_key=f"greet-{name}")
        return {"run": run.run_id, "created": run.created}

    @app.post("/runs/{run}/approve")
    async def approve(run: str, runs: Annotated[Client, Depends(belay)], by: str = "") -> dict[str, str]:
        return {"answer": type(await runs.approve(run, "editor", by=by or None)).__name__}

    @app.get("/runs/{run}")
    async def result(run: str, runs: Annotated[Client, Depends(belay)]) -> dict[str, str]:
        return {"result": await runs.handle(run, greeting).result()}

    return app


@asynccontextmanager
async def served(belay: Belay) -> AsyncIterator[httpx.AsyncClient]:
    app = application(belay)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http,
    ):
        yield http


async def test_a_run_is_started_decided_and_read(url: str):
    async with served(Belay(url, [greeting])) as http:
        first = await http.post("/greet/ana")
        assert (first.status_code, first.json()["created"]) == (202, True)
        run = first.json()["run"]
        assert (await http.post("/greet/ana")).json() == {"run": run, "created": False}
        while (await http.post(f"/runs/{run}/approve?by=ana")).status_code == 409:
            pass
        assert (await http.get(f"/runs/{run}")).json() == {"result": "hello ana"}


async def test_errors_answer_with_their_code_and_message(url: str):
    async with served(Belay(url)) as http:
        missing = await http.post("/runs/r-9/approve?by=ana")
        assert (missing.status_code, missing.json()) == (404, {"detail": "run: there is no run r-9"})
        run = (await http.post("/greet/ana")).json()["run"]
        early = await http.post(f"/runs/{run}/approve?by=ana")
        assert early.status_code == 409
        assert "waits for no such decision" in early.json()["detail"]
        unnamed = await http.post(f"/greet/{'x' * 600}")
        assert (unnamed.status_code, unnamed.json()["detail"][:16]) == (422, "idempotency_key:")


async def test_without_its_lifespan_it_says_what_is_missing():
    belay = Belay("sqlite:///:memory:")
    with pytest.raises(InvalidTransitionError, match=r"belay\.lifespan"):
        belay()
    async with belay.lifespan(FastAPI()):
        assert isinstance(belay(), Client)
    with pytest.raises(InvalidTransitionError):
        belay()
