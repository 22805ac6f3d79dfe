"""Decisions at gates: bound to the digest of what was shown, and to a name (kernel 19)."""

from collections.abc import Sequence
from typing import Any, Literal

from belay_core.client.checks import (
    MOST_LISTED,
    checked_json,
    checked_limit,
    checked_run,
    checked_value,
)
from belay_core.client.explanation import shown_state
from belay_core.client.handle import RunHandle
from belay_core.client.written import schema_at, written_complaint
from belay_core.errors import InvalidInput, InvalidTransitionError, RunNotFoundError
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.step_record import StepState
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.stores.approvals import Decided, DecideOutcome
from belay_core.stores.bundle import Stores
from belay_core.values.digests import text_digest
from belay_core.workflows.names import checked_name

_MOST_REASON = 4_096
_MOST_NAMED = 10
_KEEP: Any = object()


class DecisionOperations:
    """The part of a client that decides at gates."""

    def __init__(self, stores: Stores, approver: str | None) -> None:
        self._stores = stores
        self.approver = None if approver is None else checked_name("approver", approver)
        """The identity under which decisions are recorded if a call names none."""

    async def approvals(
        self, run: str | RunHandle[Any] | None = None, *, limit: int = 100
    ) -> tuple[ApprovalRecord, ...]:
        """Open approvals, the oldest first, of one run or of all; ``limit`` is 1 to 1,000."""
        run_id = None if run is None else checked_run(run)
        return await self._stores.approvals.list(commands.ListApprovals(run_id, checked_limit(limit)))

    async def approve(  # noqa: PLR0913  (each is an option of its own, given by name)
        self,
        run: str | RunHandle[Any],
        gate: str | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
        edited: Any = _KEEP,
        of: Any = None,
        digest: str | None = None,
        approval_id: str | None = None,
        step_key: str | None = None,
        replace: bool = False,
    ) -> DecideOutcome:
        """Approve what a gate of the run asks; with ``edited`` the run continues with that instead.

        ``of`` is the type of ``edited``, if that does not follow from the value. What is written has to fit the
        subject's type: every member of it, no other, nothing converted.
        ``replace`` replaces an earlier decision, as long as no worker has acted on it.
        ``gate`` may be left out if one gate waits; if several of one name do, ``approval_id`` or ``step_key`` (the
        call, such as ``map/order[3]/editor#1``) says which.
        ``digest`` is the ``subject_digest`` of what the approver saw; without it the decision is bound to the subject
        that this call reads. Raises ``InvalidTransitionError`` if no gate waits, and ``InvalidInput`` if several
        gates do and none is named, or if no approver is named.
        """
        approval = await self._pending(run, gate, approval_id, step_key, replace=replace)
        text = None if edited is _KEEP else checked_value("edited", edited, of)
        return await self.decide(
            approval, "approved", by=by, reason=reason, edited_text=text, digest=digest, replace=replace
        )

    async def reject(
        self,
        run: str | RunHandle[Any],
        gate: str | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
        digest: str | None = None,
        approval_id: str | None = None,
        step_key: str | None = None,
        replace: bool = False,
    ) -> DecideOutcome:
        """Reject what a gate of the run asks; parameters and errors as for ``approve``."""
        approval = await self._pending(run, gate, approval_id, step_key, replace=replace)
        return await self.decide(approval, "rejected", by=by, reason=reason, digest=digest, replace=replace)

    async def decide(
        self,
        approval: ApprovalRecord | str,
        decision: Literal["approved", "rejected"],
        *,
        by: str | None = None,
        reason: str | None = None,
        edited_text: str | None = None,
        digest: str | None = None,
        replace: bool = False,
    ) -> DecideOutcome:
        """Decide one approval: ``Decided``, ``AlreadyDecided``, ``SubjectChanged``, ``TooLate``, ``NoSuchApproval``.

        One decision counts; with ``replace`` a later one, as long as no worker has acted on the first.
        ``edited_text`` is JSON text that fits the subject's type: every member of it, no other, nothing converted. An
        approval given by its id needs the ``digest`` of what was shown. Raises ``InvalidInput``, also if no approver
        is named.
        """
        shown = approval.subject_digest if isinstance(approval, ApprovalRecord) else None
        edited = None if edited_text is None else checked_json("edited_text", edited_text)
        command = commands.Decide(
            approval_id=approval.approval_id if isinstance(approval, ApprovalRecord) else approval,
            decision=_decision(decision),
            digest=_digest(digest or shown),
            by=self._identity(by),
            reason=_reason(reason),
            edited=edited,
            edited_digest=None if edited is None else text_digest(edited),
            replace=replace,
        )
        if edited is not None:
            await self._check_edit(command.approval_id, edited)
        answer = await self._stores.approvals.decide(command)
        if isinstance(answer, Decided):
            run_id = approval.run_id if isinstance(approval, ApprovalRecord) else None
            self._stores.notifier.notify(run_id, ready=True)
        return answer

    async def _pending(
        self,
        run: str | RunHandle[Any],
        gate: str | None,
        approval_id: str | None,
        step_key: str | None,
        *,
        replace: bool = False,
    ) -> ApprovalRecord:
        run_id = checked_run(run)
        waiting = [
            each
            for each in await (self._decided(run_id) if replace else self._open(run_id))
            if gate in (None, each.gate)
            and approval_id in (None, each.approval_id)
            and step_key in (None, each.step_key)
        ]
        if not waiting:
            state = await self._run_state(run_id)
            raise InvalidTransitionError(f"run {run_id} waits for no such decision; {state}")
        if len(waiting) > 1:
            known = [each.step_key if gate else each.gate for each in waiting]
            names = ", ".join(list(dict.fromkeys(known))[:_MOST_NAMED])
            rule = (
                f"several gates of this name wait; name one of {names}"
                if gate
                else f"several wait; name one of {names}"
            )
            raise InvalidInput("step_key" if gate else "gate", rule)
        return waiting[0]

    async def _open(self, run_id: RunId) -> Sequence[ApprovalRecord]:
        """Every open approval of the run, however many there are."""
        found = await self.approvals(run_id, limit=MOST_LISTED)
        if len(found) < MOST_LISTED:
            return found
        histories = await self._stores.attempts.history(commands.History((run_id,)))
        return [each for history in histories for each in history.approvals if each.decision is None]

    async def _decided(self, run_id: RunId) -> Sequence[ApprovalRecord]:
        """Every approval of the run, decided or not, whose gate still waits."""
        for history in await self._stores.attempts.history(commands.History((run_id,))):
            waiting = {each.step_key for each in history.attempts if each.state is StepState.WAITING}
            return [each for each in history.approvals if each.step_key in waiting]
        return []

    async def _check_edit(self, approval_id: str, edited: str) -> None:
        """Raise ``InvalidInput`` for an edit that the subject's type does not have, where its schema is recorded."""
        approval = await self._stores.approvals.find(approval_id)
        if approval is not None:
            await self._check_written("edited", approval.run_id, approval.step_key, edited)

    async def _check_written(self, parameter: str, run_id: RunId, step_key: str, text: str) -> None:
        for history in await self._stores.attempts.history(commands.History((run_id,))):
            if (complaint := written_complaint(schema_at(history, step_key), text)) is not None:
                raise InvalidInput(parameter, complaint)

    async def _run_state(self, run_id: RunId) -> str:
        """What the run does now, in words. Raises ``RunNotFoundError``."""
        run = await self._stores.runs.find(run_id)
        if run is None:
            raise RunNotFoundError(f"run: there is no run {run_id}")
        return f"its state is {shown_state(run)}"

    def _identity(self, by: str | None) -> str:
        who = by or self.approver
        if who is None:
            raise InvalidInput("by", "must name who decides; this client has no approver")
        return checked_name("by", who)


def _decision(value: str) -> Literal["approved", "rejected"]:
    if value == "approved":
        return "approved"
    if value == "rejected":
        return "rejected"
    raise InvalidInput("decision", "must be approved or rejected")


def _digest(value: object) -> str:
    if type(value) is not str:
        raise InvalidInput("digest", "must be that of the subject that was shown")
    return value


def _reason(value: str | None) -> str | None:
    if value is None:
        return None
    if type(value) is not str or len(value) > _MOST_REASON or "\x00" in value:
        raise InvalidInput("reason", f"must be text of at most {_MOST_REASON} characters without NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("reason", "must be well-formed text") from None
    return value
