"""Faults between engine and stores: the n-th call fails, hangs, is late, or is overtaken by another writer.

A first run counts the calls; then the same run is repeated once for every call and every fault::

    faulty = FaultStores(stores, at=7, fault=error_after())
    async with Worker(faulty.stores, [flow], telemetry=False, background=False) as worker:
        ...
"""

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NoReturn, Protocol, TypeAlias

from belay_core.clock import Clock
from belay_core.errors import (
    ApprovalStoreError,
    AttemptStoreError,
    ChangesError,
    JournalError,
    RetentionError,
    RunStoreError,
    StoreError,
    WaitingStoreError,
)
from belay_core.stores import Stores

Send: TypeAlias = Callable[[], Awaitable[Any]]
"""Sends the call."""


class FaultyStore(Protocol):
    """The store that a fault is injected into."""

    @abstractmethod
    def failure(self, method: str) -> StoreError:
        """The error of a call that failed."""

    @abstractmethod
    def end(self) -> None:
        """The process is gone."""


Strike: TypeAlias = Callable[[FaultyStore, str], Awaitable[object]]
"""The injected action; it gets the store and the name of the operation."""

_ERRORS: Final[Mapping[str, type[StoreError]]] = {
    "runs": RunStoreError,
    "attempts": AttemptStoreError,
    "approvals": ApprovalStoreError,
    "waiting": WaitingStoreError,
    "journal": JournalError,
    "changes": ChangesError,
    "retention": RetentionError,
}
"""The stores of a bundle with faults, and the error that each of them raises."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a call: ``strike`` is awaited before the call is sent, or after it was executed.

    ``name`` is its name in reports. With ``lands`` the caller gets the result of the strike immediately, and the call
    is sent when ``lands`` has returned.
    """

    name: str
    before: bool
    strike: Strike
    lands: Callable[[], Awaitable[object]] | None = None


def error_before() -> Fault:
    """The database cannot be reached: the call is not executed."""
    return Fault("error_before", before=True, strike=_fail)


def error_after() -> Fault:
    """The reply is lost: the call is executed, and its caller gets an error."""
    return Fault("error_after", before=False, strike=_fail)


def hang(*, before: bool = True) -> Fault:
    """The call never returns; it ends when it is cancelled."""

    async def wait(_store: FaultyStore, _method: str) -> None:
        await asyncio.get_running_loop().create_future()

    return Fault("hang", before=before, strike=wait)


def delay(clock: Clock, seconds: float, *, before: bool = True) -> Fault:
    """The call, or its reply, takes ``seconds`` longer."""

    async def wait(_store: FaultyStore, _method: str) -> None:
        await clock.sleep(seconds)

    return Fault("delay", before=before, strike=wait)


def late(clock: Clock, seconds: float) -> Fault:
    """The caller gets an error immediately; the call is executed ``seconds`` later (``landed`` waits for it)."""
    return Fault("late", before=True, strike=_fail, lands=lambda: clock.sleep(seconds))


def kill_before() -> Fault:
    """The worker's process is gone before it sends the call."""
    return Fault("kill_before", before=True, strike=_kill)


def kill_after() -> Fault:
    """The worker's process is gone after the call, before it gets the reply."""
    return Fault("kill_after", before=False, strike=_kill)


def meanwhile(name: str, action: Callable[[], Awaitable[object]], *, before: bool) -> Fault:
    """Another writer: the action completes before the call is sent, or before its reply arrives."""

    async def act(_store: FaultyStore, _method: str) -> None:
        await action()

    return Fault(name, before=before, strike=act)


async def _fail(store: FaultyStore, method: str) -> NoReturn:
    raise store.failure(method)


async def _kill(store: FaultyStore, method: str) -> NoReturn:
    store.end()
    raise store.failure(method)


class _Plan:
    """The planned fault and the calls so far; shared by the stores of a bundle."""

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
        """Count a call, and return the fault that happens at it."""
        self.calls.append(method)
        if self.of is not None and method not in self.of:
            return None
        self.counted += 1
        return self.fault if self.counted in self.struck_calls else None


class FaultStores:
    """Stores whose ``at``-th call, counted from 1 over all of them, has a fault; every other call is forwarded.

    With ``of`` (one name or several) only calls of these methods are counted, and with ``times`` so many calls in a
    row have the fault. Once the process is gone (``end``), no call is sent and none returns.
    """

    def __init__(
        self,
        inner: Stores,
        *,
        at: int = 0,
        fault: Fault | None = None,
        of: str | Collection[str] | None = None,
        times: int = 1,
    ) -> None:
        self._plan = _Plan(fault, range(at, at + times), {of} if isinstance(of, str) else of)
        faulty: dict[str, Any] = {
            name: _FaultStore(getattr(inner, name), self._plan, error) for name, error in _ERRORS.items()
        }
        self.stores = replace(inner, **faulty)
        """The bundle; its stores share one count."""

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
        """The process is gone; the test has the worker drop what is in its memory (``drive.vanish``)."""
        self._plan.gone = True

    async def landed(self) -> None:
        """Wait until every late call has been executed."""
        await asyncio.gather(*self._plan.landing)


class _FaultStore:
    """One store of the bundle."""

    def __init__(self, inner: Any, plan: _Plan, error: type[StoreError]) -> None:
        self._inner = inner
        self._plan = plan
        self._error = error

    def failure(self, method: str) -> StoreError:
        """The error of a call that failed."""
        return self._error("persistence_failed", method, "a fault that was asked for")

    def end(self) -> None:
        """The process is gone."""
        self._plan.gone = True

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)
        if inspect.iscoroutinefunction(operation):
            return self._faulty(name, operation)
        if name == "make_with":
            return partial(self._made, operation)
        return operation

    def _made(self, make: Callable[[Any], Any], options: object) -> Any:
        return _FaultStore(make(options), self._plan, self._error)

    def _faulty(self, method: str, operation: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*given: Any, **named: Any) -> Any:
            return await self._through(method, lambda: operation(*given, **named))

        return call

    async def _through(self, method: str, send: Send) -> Any:
        plan = self._plan
        if plan.gone:
            raise self.failure(method)
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
            raise self.failure(method)
        return answer

    async def _send(self, method: str, send: Send) -> Any:
        """Send a call; if the process ends meanwhile, the call never returns."""
        try:
            return await send()
        except Exception:
            if self._plan.gone:
                raise self.failure(method) from None
            raise


async def _land(lands: Callable[[], Awaitable[object]], send: Send) -> None:
    await lands()
    await send()
