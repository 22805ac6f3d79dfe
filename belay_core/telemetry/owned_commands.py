"""What owners ask of the engine's store, watched."""

from typing import Final

from typing_extensions import override

from belay_core import commands
from belay_core.outcomes import engine as outcomes
from belay_core.records.owner import Lease
from belay_core.records.run import RunStatus
from belay_core.stores.engine_store import OwnedCommands
from belay_core.telemetry import answers, names
from belay_core.telemetry.current import is_idle
from belay_core.telemetry.instruments import Instruments
from belay_core.telemetry.watch import Poll, Watch

_TRUSTED: Final = 17


class ObservedOwnedCommands(OwnedCommands):
    """The commands of owners, each done by the store it is given, with a span and a count of it."""

    def __init__(self, owned: OwnedCommands, instruments: Instruments) -> None:
        self._owned = owned
        self._instruments = instruments
        self._unseen = 0

    def _is_unseen(self) -> bool:
        """Whether nobody would see a span; asked again after some records, since a provider may come."""
        if self._unseen == 0:
            self._unseen = _TRUSTED if is_idle(self._instruments.tracer) else 1
        self._unseen -= 1
        return self._unseen > 0

    @override
    async def renew(self, command: commands.Renew) -> tuple[outcomes.RenewOutcome, ...]:
        units = len(command.leases)
        with Poll(self._instruments, names.ENGINE_RENEW, lambda: _host(command), answers.RENEW, units) as seen:
            return seen.each(await self._owned.renew(command))

    @override
    async def record(self, command: commands.Record) -> outcomes.RecordOutcome:
        if self._is_unseen():
            return await self._owned.record(command)
        with Watch(self._instruments, names.ENGINE_RECORD, lambda: _recorded(command)) as seen:
            return seen(await self._owned.record(command))

    @override
    async def ask(self, command: commands.Ask) -> outcomes.AskOutcome:
        with Watch(self._instruments, names.ENGINE_ASK, lambda: _asked(command)) as seen:
            return seen(await self._owned.ask(command))

    @override
    async def sleep(self, command: commands.Sleep) -> outcomes.SleepOutcome:
        with Watch(self._instruments, names.ENGINE_SLEEP, lambda: _step(command)) as seen:
            return seen(await self._owned.sleep(command))

    @override
    async def withdraw(self, command: commands.Withdraw) -> outcomes.WithdrawOutcome:
        with Watch(self._instruments, names.ENGINE_WITHDRAW, lambda: _step(command)) as seen:
            return seen(await self._owned.withdraw(command))

    @override
    async def lapse(self, command: commands.Lapse) -> outcomes.LapseOutcome:
        with Watch(self._instruments, names.ENGINE_LAPSE, lambda: _lapsed(command)) as seen:
            return seen(await self._owned.lapse(command))

    @override
    async def park(self, command: commands.Park) -> outcomes.ParkOutcome:
        with Watch(self._instruments, names.ENGINE_PARK, lambda: _parked(command), answers.PARK) as seen:
            return seen(await self._owned.park(command))

    @override
    async def settle(self, command: commands.Settle) -> outcomes.SettleOutcome:
        counted = answers.settle(command.status)
        with Watch(self._instruments, names.ENGINE_SETTLE, lambda: _settled(command), counted) as seen:
            return seen(await self._owned.settle(command))


def _lease(lease: Lease) -> dict[str, str | int]:
    return {
        names.RUN_ID: lease.run_id,
        names.OWNER_HOST_ID: lease.owner.host_id,
        names.EPOCH: lease.epoch,
    }


def _step(
    command: commands.Ask | commands.Sleep | commands.Withdraw | commands.Lapse,
) -> dict[str, str | int]:
    return {
        **_lease(command.lease),
        names.STEP_KEY: command.attempt.step_key,
        names.ATTEMPT: command.attempt.attempt,
    }


def _host(command: commands.Renew) -> dict[str, str | int]:
    """The host of the leases; a worker renews its own and no others."""
    return {names.OWNER_HOST_ID: command.leases[0].owner.host_id} if command.leases else {}


def _recorded(command: commands.Record) -> dict[str, str | int]:
    attributes = {**_lease(command.lease), names.COUNT: len(command.attempts)}
    if len(command.attempts) == 1:
        attributes[names.STEP_KEY] = command.attempts[0].step_key
        attributes[names.ATTEMPT] = command.attempts[0].attempt
    return attributes


def _asked(command: commands.Ask) -> dict[str, str | int]:
    return {**_step(command), names.APPROVAL_ID: command.approval.approval_id}


def _lapsed(command: commands.Lapse) -> dict[str, str | int]:
    return {**_step(command), names.APPROVAL_ID: command.approval_id}


def _parked(command: commands.Park) -> dict[str, str | int]:
    return {
        **_lease(command.lease),
        names.TO: str(RunStatus.SUSPENDED),
        names.WAITING_REASON: command.waiting.reason,
    }


def _settled(command: commands.Settle) -> dict[str, str | int]:
    return {**_lease(command.lease), names.TO: answers.to_status(command.status)}
