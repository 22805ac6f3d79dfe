"""What clients, operators, approvers and idle workers ask of the engine's store, watched."""

from typing_extensions import override

from belay_core import commands
from belay_core.outcomes import engine as outcomes
from belay_core.outcomes.runs import RequestCancelOutcome
from belay_core.stores.engine_store import UnownedCommands
from belay_core.telemetry import answers, names
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Poll, Watch


class ObservedUnownedCommands(UnownedCommands):
    """The commands anybody may give, each done by the store it is given, with a span and a count of it.

    ``acquire`` and ``wake`` are what idle workers poll with: they leave a span only where they found something.
    """

    def __init__(self, unowned: UnownedCommands, instruments: Instruments) -> None:
        self._unowned = unowned
        self._instruments = instruments

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
            return seen(await self._unowned.decide(command))

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
