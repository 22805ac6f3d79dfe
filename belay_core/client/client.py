"""Starting runs, deciding, resolving, cancelling, and reading how runs stand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, overload

from belay_core import commands
from belay_core.client.admitting import admitted_json, admitted_limit, admitted_run, admitted_value
from belay_core.client.deciding import Deciding
from belay_core.client.explaining import Explanation, explain
from belay_core.client.handle import RunHandle
from belay_core.client.observing import observe
from belay_core.commands import RunHistory
from belay_core.engine.services import Watchers
from belay_core.errors import InvalidInput, InvalidTransitionError, RunNotFoundError
from belay_core.ids import RunId
from belay_core.moments import Millis, reading
from belay_core.outcomes.engine import Found, KeyTaken, Resolved, RunIdTaken, Started
from belay_core.outcomes.runs import NotFound, RequestCancelOutcome
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import JournalEntry, RunRecord, RunSummary
from belay_core.stores.bundle import Stores
from belay_core.workflows.catalogue import Registrable, as_definition
from belay_core.workflows.declared import Workflow
from belay_core.workflows.definition import Definition
from belay_core.workflows.middleware import Middleware, StartFacts
from belay_core.workflows.names import admitted_name
from belay_core.workflows.values import Untyped, codec_for

In = TypeVar("In")
Out = TypeVar("Out")

_PRIORITIES = 2**31
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


class Client(Deciding):
    """The face of belay for those who start runs and those who decide; executes nothing itself.

    ``approver`` is the identity under which decisions are recorded where a call names none.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        approver: str | None = None,
        telemetry: bool = True,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        watched, watchers = observe(stores, telemetry=telemetry, middleware=middleware)
        super().__init__(watched, approver)
        self._watchers = Watchers(watchers)

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
        """Store a run, to be executed by a worker; once this returns it is never lost.

        A known ``idempotency_key`` of the same workflow gives the run there is, untouched. Raises ``InvalidInput``
        where a parameter breaks a rule or the key or id belongs to another run; nothing is stored then.
        """
        definition = as_definition(workflow)
        command = commands.Start(
            run_id=RunId(self._stores.ids.new() if run_id is None else admitted_name("run_id", run_id)),
            workflow=definition.name,
            version=definition.version,
            input=definition.encode_input(given),
            idempotency_key=None if idempotency_key is None else admitted_name("idempotency_key", idempotency_key),
            priority=_priority(priority),
            run_at_ms=None if run_at is None else _moment(run_at),
        )
        answer = await self._watchers.start(StartFacts(command.run_id, definition.name), command, self._stores)
        match answer:
            case Started() | Found():
                self._stores.wakes.poke(answer.run_id, ready=True)
                created = isinstance(answer, Started)
                return RunHandle(self._stores, answer.run_id, definition.result_codec, created=created)
            case KeyTaken(workflow=owner, run_id=other):
                raise InvalidInput("idempotency_key", f"belongs to run {other} of workflow {owner}")
            case RunIdTaken():
                raise InvalidInput("run_id", "belongs to a run with another workflow, key or input")

    async def get(self, run: str | RunHandle[Any]) -> RunRecord:
        """The run as it stands, with its payloads. Raises ``RunNotFoundError``."""
        found = await self._stores.engine.find_run(admitted_run(run))
        if found is None:
            raise RunNotFoundError(f"run_id: there is no run {admitted_run(run)}")
        return found

    async def list(
        self,
        *,
        workflow: str | None = None,
        status: RunStatus | str | None = None,
        waiting_for: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> tuple[RunSummary, ...]:
        """A page of runs without payloads, the newest first; ``before`` is the last run id of the page before.

        Raises ``RunNotFoundError`` where there is no such run.
        """
        try:
            wanted = None if status is None else RunStatus(status)
        except ValueError:
            raise InvalidInput("status", f"must be one of {', '.join(RunStatus)}") from None
        command = commands.ListRuns(
            workflow=None if workflow is None else admitted_name("workflow", workflow),
            status=wanted,
            waiting_reason=None if waiting_for is None else admitted_name("waiting_for", waiting_for),
            limit=admitted_limit(limit),
            before=None if before is None else admitted_run(before, "before"),
        )
        if command.before is not None:
            await self.get(command.before)
        return await self._stores.engine.list_runs(command)

    async def result(self, run: str | RunHandle[Out], *, of: Any = None) -> Any:
        """Wait for the end of a run, and give its result: typed by its handle or by ``of``, else plain JSON."""
        if isinstance(run, RunHandle):
            return await run.result()
        codec = codec_for(Untyped if of is None else of)
        return await RunHandle(self._stores, RunId(run), codec, created=False).result()

    async def history(self, run: str | RunHandle[Any]) -> RunHistory:
        """The run with its attempts and approvals. Raises ``RunNotFoundError``."""
        found = await self._stores.engine.history(commands.History((admitted_run(run),)))
        if not found:
            raise RunNotFoundError(f"run_id: there is no run {admitted_run(run)}")
        return found[0]

    async def journal(self, run: str | RunHandle[Any]) -> tuple[JournalEntry, ...]:
        """What happened to the run, in order."""
        return await self._stores.engine.journal(admitted_run(run))

    async def explain(self, run: str | RunHandle[Any]) -> Explanation:
        """Why the run stands where it stands, and what gets it going. Raises ``RunNotFoundError``."""
        return explain(await self.history(run), reading(self._stores.clock), self._stores.lease)

    async def cancel(self, run: str | RunHandle[Any], *, by: str | None = None) -> RequestCancelOutcome:
        """Ask the run to stop: ``CancelRequested``, ``AlreadyRequested``, ``Terminal`` or ``NotFound``.

        The request survives crash and takeover; the run ends ``cancelled`` once its running steps have ended.
        """
        who = by or self.approver
        answer = await self._stores.engine.cancel(commands.Cancel(admitted_run(run), who and admitted_name("by", who)))
        self._stores.wakes.poke(admitted_run(run), ready=True)
        return answer

    async def resolve(
        self,
        run: str | RunHandle[Any],
        resolution: commands.Resolution,
        *,
        by: str | None = None,
        step_key: str | None = None,
    ) -> Resolved:
        """Give an operator's word on a run in review; ``step_key`` where it is about an orphaned step.

        Raises ``InvalidTransitionError`` where nothing waits for such a word, and ``RunNotFoundError``.
        """
        if isinstance(resolution, commands.Happened):
            admitted_json("outcome", resolution.outcome)
        elif type(resolution) not in (commands.Retry, commands.GiveUp):
            raise InvalidInput("resolution", "must be Happened, Retry or GiveUp")
        command = commands.Resolve(admitted_run(run), resolution, self._identity(by), step_key)
        answer = await self._stores.engine.resolve(command)
        match answer:
            case Resolved():
                self._stores.wakes.poke(command.run_id, ready=True)
                return answer
            case NotFound():
                raise RunNotFoundError(f"run_id: there is no run {command.run_id}")
            case _:
                raise InvalidTransitionError(f"run {command.run_id} does not wait for this word of an operator")

    @staticmethod
    def happened(result: object, *, of: Any = None) -> commands.Happened:
        """The word that an orphaned step did take place, with this result."""
        return commands.Happened(admitted_value("result", result, of))


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
