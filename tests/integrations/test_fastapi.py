"""belay in a FastAPI application, asked over HTTP."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI

from belay_core import Client, InvalidInput, InvalidTransitionError
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


async def test_the_settings_of_the_worker_are_its_own():
    with pytest.raises(InvalidInput, match="concurrency"):
        async with Belay("sqlite:///:memory:", [greeting], concurrency=0).lifespan(FastAPI()):
            pass
    async with Belay("sqlite:///:memory:", [greeting], grace=timedelta(seconds=1)).lifespan(FastAPI()):
        pass


SERVED = """
import os
from belay_integrations.fastapi import Belay
from tests.integrations.greeting import greeting
from tests.integrations.test_fastapi import application

app = application(Belay(os.environ["SHOP_BELAY"], [greeting]))
"""


def test_a_server_executes_runs_and_stops_on_a_signal(url: str, tmp_path: Path):
    (tmp_path / "served_shop.py").write_text(SERVED)
    surroundings = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}", "SHOP_BELAY": url}
    command = [sys.executable, "-m", "uvicorn", "served_shop:app", "--port", "0"]
    server = subprocess.Popen(command, env=surroundings, text=True, stderr=subprocess.PIPE)
    try:
        assert server.stderr is not None
        said = ""
        while not (ready := re.search(r"running on (http://\S+)", said)):
            line = server.stderr.readline()
            assert line, said
            said += line
        with httpx.Client(base_url=ready[1], timeout=20) as http:
            run = http.post("/greet/ana").json()["run"]
            while http.post(f"/runs/{run}/approve?by=ana").status_code == 409:
                pass
            assert http.get(f"/runs/{run}").json() == {"result": "hello ana"}
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=40)
        assert "Application shutdown complete" in rest, said + rest
        assert "Traceback" not in rest
    finally:
        server.kill()
