"""The engine's side of a context: keys calls when they are made, works on them once they are awaited."""

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from belay_core.engine.answers import ReviewNeeded
from belay_core.engine.body_execution import BodyExecution
from belay_core.engine.gate_call import GateCall
from belay_core.engine.replay import Call
from belay_core.engine.sleep_call import SleepCall
from belay_core.engine.step_call import StepCall
from belay_core.errors import DefinitionError, InvalidInput, ValueRefused
from belay_core.values.digests import arguments_digest
from belay_core.values.own_copy import IMMUTABLE, OwnArguments, own_copy
from belay_core.workflows.backend import Arguments, ContextBackend, Invoke, Question
from belay_core.workflows.scope import Scope
from belay_core.workflows.step import Step

T = TypeVar("T")


class CallWork(Protocol):
    """The work on one call."""

    @abstractmethod
    def answer(self) -> Coroutine[Any, Any, Any]:
        """What the call gives to the author's code. Raises ``ReviewNeeded``."""


class EngineBackend(ContextBackend):
    """The conductor of one play."""

    def __init__(self, execution: BodyExecution) -> None:
        self._execution = execution

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._execution.run.run_id

    def step(self, scope: Scope, step: Step[..., Any], given: Arguments | Invoke) -> Coroutine[Any, Any, Any]:
        """Key the step now; execute it, or give its record, when awaited."""
        execution = self._execution
        try:
            key = scope.key(self.name_of(scope, step) if step.was else step.name)
            # A step whose results could not be kept is refused before it acts on the world.
            _ = step.codec
            fits = None if callable(given) else step.positions
            if not callable(given) and (fits is None or given[1] or not fits.least <= len(given[0]) <= fits.most):
                step.check_call(*given)
        except DefinitionError as error:
            raise execution.break_off(error) from None
        try:
            digest = None
            if not callable(given):
                digest = arguments_digest(*given)
                if given[1] or not IMMUTABLE.issuperset(map(type, given[0])):
                    # As they are now: the body may change them before the step is executed.
                    given = own_copy(OwnArguments(*given))
        except ValueRefused as refused:
            raise InvalidInput("arguments", f"step {step.name}: {refused}") from None
        scope.unopened += 1
        call = self._opened(scope, key, partial(StepCall, execution, step, given, digest))
        execution.unawaited[key] = call
        return call

    def name_of(self, scope: Scope, step: Step[..., Any]) -> str:
        """The step's name, or the former one under which the run has recorded it in this scope."""
        known = (each for each in step.was if self._execution.records.knows(f"{scope.path}{each}"))
        return next(known, step.name)

    def gate(self, scope: Scope, question: Question) -> Coroutine[Any, Any, Any]:
        """Key the gate now; ask, or give the recorded answer, when awaited."""
        key = self._key(scope, question.gate)
        return self.made(key, self._gate(scope, key, question))

    def sleep(self, scope: Scope, duration: timedelta) -> Coroutine[Any, Any, None]:
        """Key the sleep now; begin it when awaited."""
        key = self._key(scope, "sleep")
        return self.made(key, self._opened(scope, key, partial(SleepCall, self._execution, duration)))

    def made(self, key: str, call: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Remember a call until it is awaited."""
        self._execution.unawaited[key] = call
        return call

    def awaited(self, key: str) -> None:
        """The call is awaited."""
        self._execution.unawaited.pop(key, None)

    def open_scope(self, parent: Scope, path: str) -> Scope:
        """A scope that begins where its parent stands."""
        scope = Scope(self.run_id, path, parent.now, parent)
        self._execution.records.branches.add(path)
        self._execution.replay.open_scope(scope)
        return scope

    def close_scope(self, scope: Scope) -> None:
        """The scope's task is about to end."""
        self._execution.replay.close_scope(scope)

    def join(self, scope: Scope) -> Callable[[], None]:
        """The scope's own task waits for scopes below it, until the returned function is called."""
        return self._execution.replay.join(scope)

    async def _gate(self, scope: Scope, key: str, question: Question) -> Any:
        try:
            return await self._opened(scope, key, partial(GateCall, self._execution, question))
        except ValueRefused as refused:
            raise self._execution.break_off(DefinitionError(f"gate {question.gate}: its subject: {refused}")) from None

    async def _opened(self, scope: Scope, key: str, work: Callable[[Call], CallWork]) -> Any:
        """Open a call that is awaited from now on, and give its answer.

        One that has to be reviewed is never answered, and ends when the body is unwound.
        """
        execution = self._execution
        execution.unawaited.pop(key, None)
        if execution.unwinding:
            await execution.require_open()
        call = execution.replay.open(key, scope)
        try:
            return await work(call).answer()
        except ReviewNeeded:
            await execution.never()
            raise
        finally:
            if key in execution.replay.calls:
                execution.replay.close(call)

    def _key(self, scope: Scope, name: str) -> str:
        try:
            key = scope.key(name)
        except DefinitionError as error:
            raise self._execution.break_off(error) from None
        scope.unopened += 1
        return key
