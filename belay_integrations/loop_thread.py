"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, NamedTuple, TypeVar

from belay_core.errors import InvalidTransitionError

Resource = TypeVar("Resource")
Out = TypeVar("Out")


class _Open(NamedTuple, Generic[Resource]):
    loop: asyncio.AbstractEventLoop
    resource: Resource
    stop: asyncio.Event


class LoopThread(Generic[Resource]):
    """Opens a resource in an event loop of its own thread at the first call, and runs every call there.

    Many threads may call at the same time. A process that was forked opens the resource anew, since neither threads
    nor connections survive a fork.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Resource]], name: str) -> None:
        self._opened = opened
        self._name = name
        self._closed = False
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # Also the lock: another thread may have held it when the process was forked.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._open: _Open[Resource] | None = None

    def call(self, work: Callable[[Resource], Coroutine[Any, Any, Out]]) -> Out:
        """Run ``work`` with the resource, and wait for its end; its errors are raised here.

        Raises ``InvalidTransitionError`` inside a running event loop, which the wait would block, and after ``close``.
        """
        _refuse_running_loop()
        found = self._ensure_open()
        waiting = asyncio.run_coroutine_threadsafe(work(found.resource), found.loop)
        try:
            return waiting.result()
        except BaseException:
            # What interrupts this thread (Ctrl-C, a worker's time-out) ends the call as well.
            waiting.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread, and close the resource; what is still called meanwhile is cancelled."""
        with self._lock:
            self._closed = True
            found, thread = self._open, self._thread
            self._open = self._thread = None
        if found is not None and thread is not None:
            found.loop.call_soon_threadsafe(found.stop.set)
            thread.join()

    def _ensure_open(self) -> _Open[Resource]:
        with self._lock:
            if self._closed:
                raise InvalidTransitionError("this client is closed; make another one")
            if self._open is None:
                opening: Future[_Open[Resource]] = Future()
                thread = threading.Thread(target=self._run, args=(opening,), name=self._name, daemon=True)
                thread.start()
                self._open = opening.result()
                self._thread = thread
            return self._open

    def _run(self, opening: "Future[_Open[Resource]]") -> None:
        try:
            asyncio.run(self._serve(opening))
        except BaseException as error:
            if opening.done():
                raise
            opening.set_exception(error)

    async def _serve(self, opening: "Future[_Open[Resource]]") -> None:
        async with self._opened() as resource:
            stop = asyncio.Event()
            opening.set_result(_Open(asyncio.get_running_loop(), resource, stop))
            await stop.wait()
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidTransitionError("this call would block the running event loop; await the calls of Client instead")
