"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, NamedTuple, TypeVar

from belay_core.errors import InvalidTransitionError

Resource = TypeVar("Resource")
Out = TypeVar("Out")


class _Open(NamedTuple, Generic[Resource]):
    loop: asyncio.AbstractEventLoop
    resource: Resource
    stop: asyncio.Event
    ended: "Future[None]"
    """Done once the thread has closed the resource, with the error of that."""


class LoopThread(Generic[Resource]):
    """Opens a resource in an event loop of its own thread at the first call, and runs every call there.

    Many threads may call at the same time. A process that was forked opens the resource anew, since neither threads
    nor connections survive a fork.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Resource]], name: str) -> None:
        self._opened = opened
        self._name = name
        self._closed = False
        self.forget()
        _EVERY.add(self)

    def forget(self) -> None:
        """Drop what does not survive a fork, in the child."""
        # Also the lock: another thread may have held it when the process was forked.
        self._lock = threading.Lock()
        self._open: _Open[Resource] | None = None

    def call(self, work: Callable[[Resource], Coroutine[Any, Any, Out]]) -> Out:
        """Run ``work`` with the resource, in the caller's context, and wait for its end; its errors are raised here.

        Raises ``InvalidTransitionError`` inside a running event loop, which the wait would block, after ``close``, and
        where the client is closed meanwhile.
        """
        _refuse_running_loop()
        found, waiting = self._submitted(work)
        try:
            return waiting.result().result()
        except CancelledError as error:
            if found is self._open:
                raise
            raise InvalidTransitionError(
                "this client was closed while the call waited; read what it has done with another one"
            ) from error
        except BaseException:
            # What interrupts this thread (Ctrl-C, a worker's time-out) ends the call as well.
            waiting.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread, and close the resource; what is still called meanwhile is cancelled.

        What closing the resource raises is raised here.
        """
        with self._lock:
            self._closed = True
            found, self._open = self._open, None
        if found is not None:
            found.loop.call_soon_threadsafe(found.stop.set)
            found.ended.result()

    def _submitted(
        self, work: Callable[[Resource], Coroutine[Any, Any, Out]]
    ) -> tuple[_Open[Resource], "Future[Future[Out]]"]:
        # Under the lock: a loop that has stopped meanwhile would take the call and never run it.
        with self._lock:
            if self._closed:
                raise InvalidTransitionError("this client is closed; make another one")
            found = self._open = self._open or self._opened_anew()
            return found, asyncio.run_coroutine_threadsafe(_outcome(work, found.resource), found.loop)

    def _opened_anew(self) -> _Open[Resource]:
        opening: Future[_Open[Resource]] = Future()
        threading.Thread(target=self._run, args=(opening,), name=self._name, daemon=True).start()
        try:
            return opening.result()
        except BaseException:
            # Interrupted: the thread closes what nobody waits for.
            opening.cancel()
            raise

    def _run(self, opening: "Future[_Open[Resource]]") -> None:
        ended: Future[None] = Future()
        failure: BaseException | None = None
        try:
            asyncio.run(self._serve(opening, ended))
        except BaseException as error:  # noqa: BLE001  (raised in the thread that waits)
            failure = error
        if failure is None:
            ended.set_result(None)
        elif opening.done():
            ended.set_exception(failure)
        else:
            opening.set_exception(failure)

    async def _serve(self, opening: "Future[_Open[Resource]]", ended: "Future[None]") -> None:
        async with self._opened() as resource:
            stop = asyncio.Event()
            if not opening.set_running_or_notify_cancel():
                return
            opening.set_result(_Open(asyncio.get_running_loop(), resource, stop, ended))
            await stop.wait()
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)


async def _outcome(work: Callable[[Resource], Coroutine[Any, Any, Out]], resource: Resource) -> "Future[Out]":
    # What ends a program (SystemExit) would end the loop, which other threads share: it ends the caller alone.
    outcome: Future[Out] = Future()
    try:
        outcome.set_result(await work(resource))
    except (KeyboardInterrupt, SystemExit) as error:
        outcome.set_exception(error)
    return outcome


_EVERY: Final[weakref.WeakSet[LoopThread[Any]]] = weakref.WeakSet()


def _forget_all() -> None:
    for each in list(_EVERY):
        each.forget()


# Once, not once a client: what is registered stays for the life of the process.
os.register_at_fork(after_in_child=_forget_all)


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidTransitionError("this call would block the running event loop; await the calls of Client instead")
