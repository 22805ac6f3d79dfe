"""Start and cancel runs, also in a transaction of the caller's."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, get_args, overload

from belay_core.client.checks import checked_run
from belay_core.client.decisions import DecisionOperations
from belay_core.client.handle import RunHandle
from belay_core.clock import Millis
from belay_core.engine.services import Watchers
from belay_core.errors import InvalidInput, RunNotFoundError, ValueRefused
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.stores.bundle import Stores
from belay_core.stores.run_contract import AlreadyRequested, CancelRequested, NotFound, Terminal
from belay_core.stores.runs import Found, KeyTaken, RunIdTaken, Started
from belay_core.values.codecs import Codec, Untyped, codec_for
from belay_core.workflows.class_form import Workflow
from belay_core.workflows.definition import Definition
from belay_core.workflows.middleware import StartFacts
from belay_core.workflows.names import checked_name
from belay_core.workflows.registry import Registrable, as_definition

In = TypeVar("In")
Out = TypeVar("Out")

_PRIORITIES = 2**31
_UNTOUCHED_MS = 20
"""Milliseconds. A run that took longer to store may have ended already; for one that took less, ``result`` reads
first after a notification of its end, or after the first pause."""
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


OnConflict = Literal["return", "same_input"]
"""What a start with a known idempotency key does: return that run, or refuse where its input was another one."""

UNTYPED: Final = "untyped"
"""The version of a run that was started by the name of its workflow alone."""


class _Target(NamedTuple, Generic[Out]):
    """What a start needs to know of a workflow."""

    name: str
    version: str
    encode_input: Callable[[Any], str]
    result_codec: Codec[Out]


class StartOperations(DecisionOperations):
    """The part of a client that starts runs, decides at their gates and requests their cancel."""

    def __init__(self, stores: Stores, approver: str | None, watchers: Watchers) -> None:
        super().__init__(stores, approver)
        self._watchers = watchers
        self._seen_by = stores
        """The stores that the handles of started runs read."""

    @overload
    async def start(
        self,
        workflow: Definition[None, Out] | type[Workflow[None, Out]] | Workflow[None, Out],
        /,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> RunHandle[Out]: ...
    @overload
    async def start(
        self,
        workflow: Registrable[In, Out],
        given: In,
        /,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> RunHandle[Out]: ...
    @overload
    async def start(
        self,
        workflow: str,
        given: Any = None,
        /,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> RunHandle[Any]: ...
    async def start(
        self,
        workflow: Registrable[Any, Any] | str,
        given: Any = None,
        /,
        *,
        idempotency_key: str | None = None,
        on_conflict: OnConflict = "return",
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> RunHandle[Any]:
        """Store a run, which a worker executes; once this returns the run is never lost.

        A workflow given by its name needs no code of it here: its input and result are plain JSON, and the worker
        checks the input. A known ``idempotency_key`` of the same workflow returns the existing run, unchanged and
        whatever the input is; with ``on_conflict="same_input"`` another input is refused. Raises ``InvalidInput`` if
        a parameter breaks a rule or the key or id belongs to another run; nothing is stored then.
        """
        target = _target(workflow)
        _check_on_conflict(on_conflict)
        key = None if idempotency_key is None else checked_name("idempotency_key", idempotency_key)
        try:
            text = target.encode_input(given)
        except InvalidInput:
            # The key decides before anything of the input is judged.
            known = None if key is None or on_conflict != "return" else await self._by_key(key, target)
            if known is None:
                raise
            return known
        command = commands.Start(
            run_id=RunId(self._stores.ids.new() if run_id is None else checked_name("run_id", run_id)),
            workflow=target.name,
            version=target.version,
            input=text,
            idempotency_key=key,
            priority=_priority(priority),
            run_at_ms=None if run_at is None else _moment(run_at),
        )
        return await self._started(target, command, on_conflict)

    async def _started(self, target: _Target[Out], command: commands.Start, on_conflict: OnConflict) -> RunHandle[Out]:
        sent_at = self._stores.clock.elapsed()
        answer = await self._watchers.start(StartFacts(command.run_id, target.name), command, self._stores)
        match answer:
            case Started() | Found():
                created = isinstance(answer, Started)
                if not created and on_conflict == "same_input":
                    await self._require_same_input(answer.run_id, command)
                self._stores.notifier.notify(answer.run_id, ready=True)
                untouched = created and self._is_untouched(sent_at)
                return RunHandle(
                    self._seen_by, answer.run_id, target.result_codec, created=created, untouched=untouched
                )
            case KeyTaken(workflow=owner, run_id=other):
                raise _key_taken(other, owner)
            case RunIdTaken():
                raise InvalidInput("run_id", "belongs to a run with another workflow, key or input")

    async def _require_same_input(self, run_id: RunId, command: commands.Start) -> None:
        run = await self._stores.runs.find(run_id)
        if run is None or run.input != command.input:
            rule = f"belongs to run {run_id}, which was started with another input; take another key for another input"
            raise InvalidInput("idempotency_key", rule)

    async def find(self, idempotency_key: str, workflow: Registrable[Any, Out] | None = None) -> RunHandle[Out] | None:
        """The run that was started with this key, if there is one; ``workflow`` types its result.

        Raises ``InvalidInput`` if the key belongs to a run of another workflow.
        """
        return await self._by_key(
            checked_name("idempotency_key", idempotency_key), None if workflow is None else _target(workflow)
        )

    async def _by_key(self, key: str, target: _Target[Any] | None) -> RunHandle[Any] | None:
        for run in await self._stores.runs.list(commands.ListRuns(idempotency_key=key, limit=1)):
            if target is not None and run.workflow != target.name:
                raise _key_taken(run.run_id, run.workflow)
            return self._handle(run.run_id, target)
        return None

    def handle(self, run: str, workflow: Registrable[Any, Out] | None = None) -> RunHandle[Out]:
        """A handle of a run known by its id; ``workflow`` types its result, which is plain JSON otherwise.

        Reads nothing: the handle of a run that does not exist raises ``RunNotFoundError`` when it is used.
        """
        return self._handle(checked_run(run), None if workflow is None else _target(workflow))

    def _handle(self, run_id: RunId, target: _Target[Any] | None) -> RunHandle[Any]:
        codec = codec_for(Untyped) if target is None else target.result_codec
        return RunHandle(self._seen_by, run_id, codec, created=False)

    def _is_untouched(self, sent_at: float) -> bool:
        """Whether a run that was sent at this time cannot have been executed yet."""
        return self._seen_by is self._stores and self._stores.clock.elapsed() - sent_at < _UNTOUCHED_MS

    async def cancel(
        self, run: str | RunHandle[Any], *, by: str | None = None
    ) -> CancelRequested | AlreadyRequested | Terminal:
        """Request the cancel of the run: ``CancelRequested``, ``AlreadyRequested`` or ``Terminal``.

        The request survives crash and takeover; the run ends ``cancelled`` once its running steps have ended. Raises
        ``RunNotFoundError``.
        """
        run_id, who = checked_run(run), by or self.approver
        answer = await self._stores.runs.cancel(commands.Cancel(run_id, who and checked_name("by", who)))
        if isinstance(answer, NotFound):
            raise RunNotFoundError(f"run: there is no run {run_id}")
        self._stores.notifier.notify(run_id, ready=True)
        return answer


class JoinedClient(StartOperations):
    """A client in a transaction of the caller's; its handles see their run once that has committed."""

    def __init__(self, outside: Stores, stores: Stores, approver: str | None, watchers: Watchers) -> None:
        super().__init__(stores, approver, watchers)
        self._seen_by = outside


def _target(workflow: Registrable[Any, Out] | str) -> _Target[Out]:
    if isinstance(workflow, str):
        untyped: Codec[Any] = codec_for(Untyped)
        return _Target(checked_name("workflow", workflow), UNTYPED, partial(_encoded, untyped), untyped)
    definition = as_definition(workflow)
    return _Target(definition.name, definition.version, definition.encode_input, definition.result_codec)


def _encoded(codec: Codec[Any], given: Any) -> str:
    try:
        return codec.encode(given)
    except ValueRefused as refused:
        raise InvalidInput("input", f"{refused}; a workflow started by its name takes plain JSON") from None


def _check_on_conflict(value: object) -> None:
    if value not in get_args(OnConflict):
        raise InvalidInput("on_conflict", f"must be one of {', '.join(get_args(OnConflict))}")


def _key_taken(run_id: str, workflow: str | None) -> InvalidInput:
    return InvalidInput("idempotency_key", f"belongs to run {run_id} of workflow {workflow}")


def _priority(value: object) -> int:
    if type(value) is not int or not -_PRIORITIES <= value < _PRIORITIES:
        raise InvalidInput("priority", "must be a whole number of 32 bits")
    return value


def _moment(value: object) -> Millis:
    if not isinstance(value, datetime):
        raise InvalidInput("run_at", "must be a datetime")
    if value.utcoffset() is None:
        raise InvalidInput("run_at", "must say its time zone: +01:00 or Z in text, tzinfo in code")
    if value < _FIRST:
        raise InvalidInput("run_at", "must not be before 1970")
    if value >= _LAST:
        raise InvalidInput("run_at", f"must be before the year {_LAST.year}")
    return int(value.timestamp() * 1000)
