"""Faults at the seam between engine and store: at the n-th call something goes wrong, or somebody comes between.

A first run counts the calls when nothing happens; then the same run is made once for every call and every fault::

    store = FaultStore(stores.engine, at=7, fault=error_after())
    async with Worker(replace(stores, engine=store.store), [flow], telemetry=False, background=False) as worker:
        ...

The same works for a ``RunStore`` and an ``AttemptStore``; ``over`` puts all stores of a bundle behind one count.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar, cast

from belay_core.errors import (
    AttemptStoreError,
    ChangesError,
    EngineStoreError,
    JournalError,
    RetentionError,
    RunStoreError,
    StoreError,
    WaitingStoreError,
)
from belay_core.moments import Clock
from belay_core.stores import Stores

S = TypeVar("S")
T = TypeVar("T")

Send: TypeAlias = Callable[[], Awaitable[Any]]
"""Sends the call."""
Strike: TypeAlias = Callable[["FaultStore[Any]", str], Awaitable[object]]
"""What happens at a call: given the store and the name of the operation."""

_ERRORS: tuple[tuple[str, type[StoreError]], ...] = (
    ("acquire", EngineStoreError),
    ("put", AttemptStoreError),
    ("create", RunStoreError),
    ("waiting_runs", WaitingStoreError),
    ("append", JournalError),
    ("changes_since", ChangesError),
    ("delete", RetentionError),
)
"""The error of a store, known by an operation that no other store has."""
_STORES = ("runs", "attempts", "engine", "waiting", "journal", "changes", "retention")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at a call: ``strike`` is awaited before the call is sent, or after it was executed.

    ``name`` is how reports call it. With ``lands`` the caller hears of the strike at once, and the call is sent when
    ``lands`` has come back.
    """

    name: str
    before: bool
    strike: Strike
    lands: Callable[[], Awaitable[object]] | None = None


def error_before() -> Fault:
    """The database cannot be reached: the call is not executed."""
    return Fault("error_before", before=True, strike=_fail)


def error_after() -> Fault:
    """The reply is lost: the call is executed, and its sender hears of a failure."""
    return Fault("error_after", before=False, strike=_fail)


def hang(*, before: bool = True) -> Fault:
    """The call is never answered; it ends when it is cancelled."""

    async def wait(_store: "FaultStore[Any]", _method: str) -> None:
        await asyncio.get_running_loop().create_future()

    return Fault("hang", before=before, strike=wait)


def delay(clock: Clock, seconds: float, *, before: bool = True) -> Fault:
    """The call, or its reply, is under way for so many seconds."""

    async def wait(_store: "FaultStore[Any]", _method: str) -> None:
        await clock.sleep(seconds)

    return Fault("delay", before=before, strike=wait)


def late(clock: Clock, seconds: float) -> Fault:
    """Its sender hears of a failure at once; the call is executed so many seconds later (``landed`` waits for it)."""
    return Fault("late", before=True, strike=_fail, lands=lambda: clock.sleep(seconds))


def kill_before() -> Fault:
    """The worker's process is gone just before it sends the call."""
    return Fault("kill_before", before=True, strike=_kill)


def kill_after() -> Fault:
    """The worker's process is gone just before it hears the answer."""
    return Fault("kill_after", before=False, strike=_kill)


def meanwhile(name: str, action: Callable[[], Awaitable[object]], *, before: bool) -> Fault:
    """Somebody else comes between: the action is complete before the call is sent, or before it is answered."""

    async def act(_store: "FaultStore[Any]", _method: str) -> None:
        await action()

    return Fault(name, before=before, strike=act)


async def _fail(store: "FaultStore[Any]", method: str) -> NoReturn:
    raise store.error("persistence_failed", method, "a fault that was asked for")


async def _kill(store: "FaultStore[Any]", method: str) -> NoReturn:
    store.end()
    await _fail(store, method)


class _Plan:
    """What is to happen and what has happened; shared by the stores behind one count."""

    def __init__(self, fault: Fault | None, struck: range, of: Collection[str] | None) -> None:
        self.fault = fault
        self.struck_calls = struck
        self.of = of
        self.counted = 0
        self.calls: list[str] = []
        self.struck = False
        self.gone = False
        self.landing: list[asyncio.Task[None]] = []

    def meets(self, method: str) -> Fault | None:
        """Count a call, and give the fault it is to meet."""
        self.calls.append(method)
        if self.of is not None and method not in self.of:
            return None
        self.counted += 1
        return self.fault if self.counted in self.struck_calls else None


class FaultStore(Generic[S]):
    """A store whose ``at``-th call, counted from 1, meets a fault; every other call goes through.

    With ``of`` (one name or several) only calls of these methods are counted, and with ``times`` so many in a row are
    struck. Once its process is gone (``end``), it sends nothing more and answers nothing more.
    """

    def __init__(
        self,
        inner: S,
        *,
        at: int = 0,
        fault: Fault | None = None,
        of: str | Collection[str] | None = None,
        times: int = 1,
    ) -> None:
        self._inner = inner
        self._plan = _Plan(fault, range(at, at + times), {of} if isinstance(of, str) else of)
        self.error = next((kind for name, kind in _ERRORS if hasattr(inner, name)), StoreError)
        """The error that this kind of store raises."""

    @property
    def store(self) -> S:
        """This store, as whoever calls it sees it."""
        return cast("S", self)

    @property
    def calls(self) -> list[str]:
        """The methods called so far, in order."""
        return self._plan.calls

    @property
    def struck(self) -> bool:
        """Whether the fault has happened."""
        return self._plan.struck

    @property
    def gone(self) -> bool:
        """Whether the process has gone away."""
        return self._plan.gone

    def end(self) -> None:
        """The process is gone; whoever drives the worker has it drop what is in its memory (``drive.vanish``)."""
        self._plan.gone = True

    def beside(self, inner: T) -> "FaultStore[T]":
        """Another store of the same process: its calls are counted together with these, and meet the same fault."""
        other = FaultStore(inner)
        other._plan = self._plan
        return other

    async def landed(self) -> None:
        """Come back when every call that was to be late has been executed."""
        await asyncio.gather(*self._plan.landing)

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)
        if inspect.iscoroutinefunction(operation):
            return self._faulty(name, operation)
        if name == "make_with":
            return partial(self._made, operation)
        return operation

    def _made(self, make: Callable[[Any], Any], options: object) -> Any:
        return self.beside(make(options)).store

    def _faulty(self, method: str, operation: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*given: Any, **named: Any) -> Any:
            return await self._through(method, lambda: operation(*given, **named))

        return call

    async def _through(self, method: str, send: Send) -> Any:
        plan = self._plan
        if plan.gone:
            await _fail(self, method)
        fault = plan.meets(method)
        if fault is not None and fault.before:
            plan.struck = True
            if fault.lands is not None:
                plan.landing.append(asyncio.ensure_future(_land(fault.lands, send)))
            await fault.strike(self, method)
        answer = await self._send(method, send)
        if fault is not None and not fault.before:
            plan.struck = True
            await fault.strike(self, method)
        if plan.gone:
            await _fail(self, method)
        return answer

    async def _send(self, method: str, send: Send) -> Any:
        """Send a call; where the process goes away on the way to the database, its answer is heard by nobody."""
        try:
            return await send()
        except Exception:
            if self.gone:
                await _fail(self, method)
            raise


def over(stores: Stores, faulty: "FaultStore[Any]") -> Stores:
    """The bundle with each of its stores behind the count of this one."""
    behind: dict[str, Any] = {name: faulty.beside(getattr(stores, name)).store for name in _STORES}
    return replace(stores, **behind)


async def _land(lands: Callable[[], Awaitable[object]], send: Send) -> None:
    await lands()
    await send()
