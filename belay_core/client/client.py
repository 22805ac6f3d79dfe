"""The client: start, decide, resolve, cancel, and read runs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar, assert_never

from belay_core.client.checks import checked_json, checked_limit, checked_run, checked_value
from belay_core.client.explanation import Explanation, explain
from belay_core.client.handle import RunHandle
from belay_core.client.observation import observe
from belay_core.client.starts import JoinedClient, StartOperations
from belay_core.client.written import orphan_meant
from belay_core.clock import reading
from belay_core.engine.services import Watchers
from belay_core.errors import InvalidInput, InvalidTransitionError, RunNotFoundError
from belay_core.records import commands
from belay_core.records.commands import RunHistory
from belay_core.records.run import RunStatus
from belay_core.records.workflow_run import JournalEntry, RunSummary, WorkflowRun
from belay_core.stores.bundle import Stores
from belay_core.stores.journal import MOST_ENTRIES
from belay_core.stores.run_contract import NotFound
from belay_core.stores.runs import NotRetryable, Resolved, Retried
from belay_core.values.codecs import Untyped, codec_for
from belay_core.workflows.middleware import Middleware
from belay_core.workflows.names import checked_name

In = TypeVar("In")
Out = TypeVar("Out")


class Client(StartOperations):
    """The API for code that starts runs and for code that decides at gates; executes nothing itself.

    ``approver`` is the identity under which decisions are recorded if a call names none.
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
        super().__init__(watched, approver, Watchers(watchers))

    def within(self, connection: object) -> JoinedClient:
        """The client in a transaction of the caller's: what it starts, cancels or decides commits with it.

        ``connection`` is an ``AsyncConnection`` of SQLAlchemy to the database of these stores (``Stores.within``).
        Nothing in it is retried: if the database asks for a retry, the caller has to do it.
        """
        return JoinedClient(self._stores, self._stores.within(connection), self.approver, self._watchers)

    async def get(self, run: str | RunHandle[Any]) -> WorkflowRun:
        """The run with its payloads. Raises ``RunNotFoundError``."""
        found = await self._stores.runs.find(checked_run(run))
        if found is None:
            raise RunNotFoundError(f"run: there is no run {checked_run(run)}")
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

        ``limit`` is 1 to 1,000. Raises ``RunNotFoundError`` if ``before`` names no run, and ``InvalidInput`` for an
        unknown status.
        """
        try:
            wanted = None if status is None else RunStatus(status)
        except ValueError:
            raise InvalidInput("status", f"must be one of {', '.join(RunStatus)}") from None
        command = commands.ListRuns(
            workflow=None if workflow is None else checked_name("workflow", workflow),
            status=wanted,
            waiting_reason=None if waiting_for is None else checked_name("waiting_for", waiting_for),
            limit=checked_limit(limit),
            before=None if before is None else checked_run(before, "before"),
        )
        if command.before is not None:
            await self.get(command.before)
        return await self._stores.runs.list(command)

    async def result(
        self,
        run: str | RunHandle[Out],
        *,
        of: Any = None,
        timeout: timedelta | None = None,  # noqa: ASYNC109  (a wait by the stores' clock)
    ) -> Any:
        """Wait for the end of a run and return its result: typed by its handle or by ``of``, else plain JSON.

        Raises as ``RunHandle.result`` does.
        """
        if isinstance(run, RunHandle):
            return await run.result(timeout)
        codec = codec_for(Untyped if of is None else of)
        return await RunHandle(self._stores, checked_run(run), codec, created=False).result(timeout)

    async def history(self, run: str | RunHandle[Any]) -> RunHistory:
        """The run with its attempts and approvals. Raises ``RunNotFoundError``."""
        found = await self._stores.attempts.history(commands.History((checked_run(run),)))
        if not found:
            raise RunNotFoundError(f"run: there is no run {checked_run(run)}")
        return found[0]

    async def journal(self, run: str | RunHandle[Any]) -> tuple[JournalEntry, ...]:
        """The events of the run, in order; empty for an unknown one."""
        run_id, entries = checked_run(run), list[JournalEntry]()
        while page := await self._stores.journal.read(run_id, entries[-1].entry if entries else 0, MOST_ENTRIES):
            entries += page
        return tuple(entries)

    async def explain(self, run: str | RunHandle[Any]) -> Explanation:
        """Explain the state of a run, and what makes it continue. Raises ``RunNotFoundError``."""
        return explain(await self.history(run), reading(self._stores.clock), self._stores.lease)

    async def resolve(
        self,
        run: str | RunHandle[Any],
        resolution: commands.Resolution,
        *,
        by: str | None = None,
        step_key: str | None = None,
        replace: bool = False,
    ) -> Resolved:
        """Resolve a run in review, as its operator; ``step_key`` says which step, where several are orphaned.

        Without it the word is about the one step that is orphaned, or about the run if none is. The result of
        ``Happened`` has to fit the step's type. ``replace`` replaces an earlier word on the step, as long as no worker
        has acted on it. Raises ``InvalidTransitionError`` if nothing waits for such a resolution,
        ``RunNotFoundError``, and ``InvalidInput`` for an unknown resolution or several orphaned steps.
        """
        if isinstance(resolution, commands.Happened):
            checked_json("outcome", resolution.outcome)
        elif type(resolution) not in (commands.Retry, commands.GiveUp):
            raise InvalidInput("resolution", "must be Happened, Retry or GiveUp")
        run_id, who = checked_run(run), self._identity(by)
        if step_key is None and not isinstance(resolution, commands.GiveUp):
            step_key = orphan_meant(await self.history(run_id), replace=replace)
        if isinstance(resolution, commands.Happened) and step_key is not None:
            await self._check_written("outcome", run_id, step_key, resolution.outcome)
        command = commands.Resolve(run_id, resolution, who, step_key, replace)
        answer = await self._stores.runs.resolve(command)
        match answer:
            case Resolved():
                self._stores.notifier.notify(command.run_id, ready=True)
                return answer
            case NotFound():
                raise RunNotFoundError(f"run: there is no run {command.run_id}")
            case _:
                standing = f"{await self._run_state(command.run_id)}, and explain says more"
                raise InvalidTransitionError(
                    f"run {command.run_id} does not wait for this word of an operator; {standing}"
                )

    async def retry(self, run: str | RunHandle[Any], *, by: str | None = None, reason: str | None = None) -> Retried:
        """Let a failed or cancelled run go on from its records, once what failed it was mended.

        What is recorded stays. The steps that failed the run are executed again, whatever input they get now, and
        with all their retries. Who retried it, and why, is kept in the journal. Raises ``InvalidTransitionError`` for
        a run in another state, ``RunNotFoundError``, and ``InvalidInput``.
        """
        command = commands.RetryRun(checked_run(run), self._identity(by), reason)
        answer = await self._stores.runs.retry(command)
        match answer:
            case Retried():
                self._stores.notifier.notify(command.run_id, ready=True)
                return answer
            case NotFound():
                raise RunNotFoundError(f"run: there is no run {command.run_id}")
            case NotRetryable(status=status):
                raise InvalidTransitionError(
                    f"run {command.run_id} is {status}: only a failed or cancelled run of a workflow can be retried"
                )
            case _:
                assert_never(answer)

    @staticmethod
    def happened(result: object, *, of: Any = None) -> commands.Happened:
        """The resolution that an orphaned step took place, with this result. Raises ``InvalidInput`` for no data."""
        return commands.Happened(checked_value("result", result, of))
