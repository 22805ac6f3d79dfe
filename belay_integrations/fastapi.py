"""belay in a FastAPI application: its lifespan, its client as a dependency, and what its errors answer."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, TypedDict, Unpack

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from belay_core.client import Client
from belay_core.errors import BelayError, InvalidInput, InvalidTransitionError, RunNotFoundError
from belay_core.stores import open_stores
from belay_core.worker import Worker
from belay_core.workflows.middleware import Middleware
from belay_core.workflows.registry import Registrable

STATUS_CODES: Final[Mapping[type[BelayError], int]] = MappingProxyType(
    {RunNotFoundError: 404, InvalidTransitionError: 409, InvalidInput: 422}
)
"""The status code that each error answers; its message is the ``detail`` of the body."""


class WorkerSettings(TypedDict, total=False):
    """The settings of ``Worker``, which has the defaults."""

    concurrency: int
    """The most runs that it executes at a time."""
    grace: timedelta
    """How long running steps may go on once the application stops."""
    poll: float
    """Seconds between two looks for due runs, where nothing wakes the worker before."""
    threads: int
    """Threads for steps that are not async."""


class Belay:
    """belay in one application: ``FastAPI(lifespan=belay.lifespan)``, and ``Depends(belay)`` for its client.

    ``url`` names the database as in ``open_stores``. With ``definitions`` the application executes runs of these
    workflows in its own process; without them it only starts and reads runs, for workers elsewhere. ``approver`` is
    the identity under which decisions are recorded if a call names none; ``telemetry`` and ``middleware`` are those of
    ``Client`` and of ``Worker``, and ``worker`` the other settings of the latter.
    """

    def __init__(
        self,
        url: str,
        definitions: Iterable[Registrable[Any, Any]] = (),
        *,
        approver: str | None = None,
        telemetry: bool = True,
        middleware: Sequence[Middleware] = (),
        **worker: Unpack[WorkerSettings],
    ) -> None:
        self._url = url
        self._definitions = tuple(definitions)
        self._approver = approver
        self._telemetry = telemetry
        self._middleware = tuple(middleware)
        self._worker = worker
        self._client: Client | None = None

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncGenerator[None]:
        """Open the database before the first request, and close it after the last; a worker leaves within its grace."""
        async with AsyncExitStack() as stack:
            stores = await stack.enter_async_context(open_stores(self._url))
            if self._definitions:
                worker = Worker(
                    stores,
                    self._definitions,
                    telemetry=self._telemetry,
                    middleware=self._middleware,
                    **self._worker,
                )
                await stack.enter_async_context(worker)
            self._client = Client(
                stores, approver=self._approver, telemetry=self._telemetry, middleware=self._middleware
            )
            try:
                yield
            finally:
                self._client = None

    def __call__(self) -> Client:
        """The client. Raises ``InvalidTransitionError`` outside the lifespan."""
        if self._client is None:
            raise InvalidTransitionError("belay is not open: give the application its lifespan, belay.lifespan")
        return self._client


def add_exception_handlers(app: FastAPI) -> None:
    """Answer belay's errors of a caller's with the codes of ``STATUS_CODES``; call it before the application starts."""
    for kind in STATUS_CODES:
        app.add_exception_handler(kind, _answer)


async def _answer(_: Request, error: Exception) -> JSONResponse:
    code = next(code for kind, code in STATUS_CODES.items() if isinstance(error, kind))
    return JSONResponse({"detail": str(error)}, status_code=code)
