"""What clients, operators, approvers and idle workers ask of the engine's store, watched."""

from contextlib import suppress

from typing_extensions import override

from belay_core import commands
from belay_core.outcomes import engine as outcomes
from belay_core.outcomes.runs import RequestCancelOutcome
from belay_core.stores.engine_store import EngineReads, UnownedCommands
from belay_core.telemetry import answers, names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Poll, Watch


class ObservedUnownedCommands(UnownedCommands):
    """The commands anybody may give, each done by the store it is given, with a span and a count of it.

    ``acquire`` and ``wake`` are what idle workers poll with: they leave a span only where they found something. A
    decision belongs to the trace of the request it came with, and is joined to its run's by a link.
    """

    def __init__(self, unowned: UnownedCommands, instruments: Instruments, asked: EngineReads) -> None:
        self._unowned = unowned
        self._instruments = instruments
        self._asked = asked

    @override
    async def start(self, command: commands.Start) -> outcomes.StartOutcome:
        with Watch(self._instruments, names.ENGINE_START, lambda: _started(command)) as seen:
            return seen(await self._unowned.start(command))

    @override
    async def acquire(self, command: commands.Acquire) -> tuple[outcomes.Acquired, ...]:
        watch = Poll(
            self._instruments,
            names.ENGINE_ACQUIRE,
            lambda: {names.OWNER_HOST_ID: command.owner.host_id},
            answers.ACQUIRE,
        )
        with watch as seen:
            return seen.each(await self._unowned.acquire(command))

    @override
    async def wake(self, command: commands.Wake) -> outcomes.Woken:
        with Poll(self._instruments, names.ENGINE_WAKE) as seen:
            woken = seen(await self._unowned.wake(command))
            seen.found(woken.count)
            return woken

    @override
    async def decide(self, command: commands.Decide) -> outcomes.DecideOutcome:
        with Watch(self._instruments, names.ENGINE_DECIDE, lambda: _decided(command)) as seen:
            if seen.recording:
                seen.joined(await self._trace_of(command))
            return seen(await self._unowned.decide(command))

    async def _trace_of(self, command: commands.Decide) -> str | None:
        """The trace of the run that asked; None where that cannot be told, which must not keep anybody from deciding.

        Read before the decision: whoever is cancelled while it is read has decided nothing.
        """
        with suppress(Exception):
            approval = await self._asked.find_approval(command.approval_id)
            run = None if approval is None else await self._asked.find_run(approval.run_id)
            return None if run is None else run.trace
        return None

    @override
    async def cancel(self, command: commands.Cancel) -> RequestCancelOutcome:
        with Watch(self._instruments, names.ENGINE_CANCEL, lambda: {names.RUN_ID: command.run_id}) as seen:
            return seen(await self._unowned.cancel(command))

    @override
    async def resolve(self, command: commands.Resolve) -> outcomes.ResolveOutcome:
        counted = answers.resolve(command.resolution)
        with Watch(self._instruments, names.ENGINE_RESOLVE, lambda: _resolved(command), counted) as seen:
            return seen(await self._unowned.resolve(command))


def _started(command: commands.Start) -> dict[str, str | int]:
    return {names.RUN_ID: command.run_id, names.WORKFLOW: command.workflow}


def _decided(command: commands.Decide) -> dict[str, str | int]:
    return {names.APPROVAL_ID: command.approval_id, names.DECISION: command.decision}


def _resolved(command: commands.Resolve) -> dict[str, str | int]:
    return {names.RUN_ID: command.run_id, names.RESOLUTION: answers.spelled(type(command.resolution))}
