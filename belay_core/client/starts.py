"""Start and cancel runs, also in a transaction of the caller's."""

from datetime import UTC, datetime
from typing import Any, TypeVar, overload

from belay_core.client.checks import checked_run
from belay_core.client.decisions import DecisionOperations
from belay_core.client.handle import RunHandle
from belay_core.clock import Millis
from belay_core.engine.services import Watchers
from belay_core.errors import InvalidInput
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.stores.bundle import Stores
from belay_core.stores.run_contract import RequestCancelOutcome
from belay_core.stores.runs import Found, KeyTaken, RunIdTaken, Started
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
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> RunHandle[Out]: ...
    async def start(
        self,
        workflow: Registrable[Any, Out],
        given: Any = None,
        /,
        *,
        idempotency_key: str | None = None,
        run_id: str | None = None,
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> RunHandle[Out]:
        """Store a run, which a worker executes; once this returns the run is never lost.

        A known ``idempotency_key`` of the same workflow returns the existing run, unchanged. Raises ``InvalidInput``
        if a parameter breaks a rule or the key or id belongs to another run; nothing is stored then.
        """
        definition = as_definition(workflow)
        command = commands.Start(
            run_id=RunId(self._stores.ids.new() if run_id is None else checked_name("run_id", run_id)),
            workflow=definition.name,
            version=definition.version,
            input=definition.encode_input(given),
            idempotency_key=None if idempotency_key is None else checked_name("idempotency_key", idempotency_key),
            priority=_priority(priority),
            run_at_ms=None if run_at is None else _moment(run_at),
        )
        sent_at = self._stores.clock.elapsed()
        answer = await self._watchers.start(StartFacts(command.run_id, definition.name), command, self._stores)
        match answer:
            case Started() | Found():
                self._stores.notifier.notify(answer.run_id, ready=True)
                created = isinstance(answer, Started)
                untouched = created and self._is_untouched(sent_at)
                codec = definition.result_codec
                return RunHandle(self._seen_by, answer.run_id, codec, created=created, untouched=untouched)
            case KeyTaken(workflow=owner, run_id=other):
                raise InvalidInput("idempotency_key", f"belongs to run {other} of workflow {owner}")
            case RunIdTaken():
                raise InvalidInput("run_id", "belongs to a run with another workflow, key or input")

    def _is_untouched(self, sent_at: float) -> bool:
        """Whether a run that was sent at this time cannot have been executed yet."""
        return self._seen_by is self._stores and self._stores.clock.elapsed() - sent_at < _UNTOUCHED_MS

    async def cancel(self, run: str | RunHandle[Any], *, by: str | None = None) -> RequestCancelOutcome:
        """Request the cancel of the run: ``CancelRequested``, ``AlreadyRequested``, ``Terminal`` or ``NotFound``.

        The request survives crash and takeover; the run ends ``cancelled`` once its running steps have ended.
        """
        who = by or self.approver
        answer = await self._stores.runs.cancel(commands.Cancel(checked_run(run), who and checked_name("by", who)))
        self._stores.notifier.notify(checked_run(run), ready=True)
        return answer


class JoinedClient(StartOperations):
    """A client in a transaction of the caller's; its handles see their run once that has committed."""

    def __init__(self, outside: Stores, stores: Stores, approver: str | None, watchers: Watchers) -> None:
        super().__init__(stores, approver, watchers)
        self._seen_by = outside


def _priority(value: object) -> int:
    if type(value) is not int or not -_PRIORITIES <= value < _PRIORITIES:
        raise InvalidInput("priority", "must be a whole number of 32 bits")
    return value


def _moment(value: object) -> Millis:
    if not isinstance(value, datetime):
        raise InvalidInput("run_at", "must be a datetime")
    if value.utcoffset() is None:
        raise InvalidInput("run_at", "must say its time zone")
    if value < _FIRST:
        raise InvalidInput("run_at", "must not be before 1970")
    if value >= _LAST:
        raise InvalidInput("run_at", f"must be before the year {_LAST.year}")
    return int(value.timestamp() * 1000)
