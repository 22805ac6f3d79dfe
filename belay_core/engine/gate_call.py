"""Gates: asked once, answered once, replayed as answered (kernel 19)."""

import asyncio
from dataclasses import replace
from typing import Any

from belay_core.clock import Millis
from belay_core.engine.answers import Answer
from belay_core.engine.body_execution import BodyExecution, EngineTask, current_engine_task
from belay_core.engine.failures import failure
from belay_core.engine.recorded_order import is_retried
from belay_core.engine.replay import Call
from belay_core.errors import ValueRefused
from belay_core.ids import ApprovalId
from belay_core.records import commands
from belay_core.records.attempt import JsonValue
from belay_core.records.step_record import SCHEMA, UNWANTED, StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord, RunWait
from belay_core.stores.approvals import AlreadyDecided, NotYet
from belay_core.values import json
from belay_core.values.codecs import Codec, codec_of
from belay_core.values.digests import text_digest, value_digest
from belay_core.workflows.backend import Question
from belay_core.workflows.gate_answers import Approved, Lapsed, NotNeeded, Rejected
from belay_core.workflows.middleware import GateFacts
from belay_core.workflows.raised import Raised

_ONCE_MORE_MS = 100


class GateCall:
    """One ``ctx.gate`` call of one play."""

    def __init__(self, execution: BodyExecution, question: Question, call: Call) -> None:
        self._execution = execution
        self._call = call
        self._question = question
        self._codec: Codec[Any] = codec_of(question.subject, question.of)
        self._asked: StepRecord | None = None
        self._text = ""
        self._digest = value_digest(question.subject)
        self._judging = False
        self._number = 1
        """The number of the attempt that begins here."""

    async def answer(self) -> Any:
        """The answer, from the records or from waiting for it."""
        attempts = self._execution.records.reach(self._call.key)
        self._text = self._codec.encode(self._question.subject)
        self._execution.check(self._call.key, StepKind.GATE, self._digest, attempts)
        if attempts and is_retried(attempts[-1]):
            self._number = attempts[-1].attempt + 1
        elif attempts and attempts[-1].state is not StepState.WAITING:
            return await self._execution.give(self._call, self._kept(attempts[-1]))
        self._asked = attempts[-1] if attempts and self._number == 1 else None
        return await self._execution.perform(self._call, self._ask, self._withdraw)

    def _kept(self, last: StepRecord) -> Answer:
        if last.state is StepState.FAILED or last.state in UNWANTED:
            return Answer(last)
        return Answer(last, self._decoded(last))

    def _decoded(self, last: StepRecord) -> Any:
        kept = json.decode(last.outcome or "null")
        if not isinstance(kept, dict):
            self._execution.send_to_review("undecodable", last.step_key, "the gate's answer is no record of one")
        by, reason = str(kept.get("by")), kept.get("reason")
        try:
            match kept.get("answer"):
                case "not_needed":
                    return NotNeeded(self._codec.decode(str(kept["subject"])))
                case "approved":
                    approval = self._execution.records.approvals[last.step_key]
                    text = approval.subject if approval.edited is None else approval.edited
                    edited = approval.edited is not None
                    return Approved(self._codec.decode(text), by, None if reason is None else str(reason), edited)
                case "rejected":
                    return Rejected(by, None if reason is None else str(reason))
                case _:
                    return Lapsed()
        except (ValueRefused, KeyError):
            detail = "what was decided upon does not fit the gate's subject"
            self._execution.send_to_review("undecodable", last.step_key, detail)

    async def _ask(self) -> Answer:
        if self._asked is None:
            await self._execution.replay.caught_up()
        await self._execution.require_unheld(self._call)
        if self._asked is None:
            verdict = await self._judged()
            if verdict is not None:
                return verdict
            self._asked = self._begun()
            await self._execution.handle.ask(self._asked, self._approval(self._asked))
            self._watch(None)
        return await self._decided(self._asked)

    async def _judged(self) -> Answer | None:
        """What ``when`` leads to: a skipped gate, a failed one, or None where somebody has to look."""
        if self._question.needed is None:
            return None
        begun = self._begun()
        self._judging = True
        verdict = await current_engine_task().run_author_code(self._question.needed, self._execution)
        self._judging = False
        if isinstance(verdict, Raised):
            if isinstance(verdict.error, asyncio.CancelledError) and self._call.given_up:
                raise asyncio.CancelledError
            return await self._close(begun, StepState.FAILED, None, failure(verdict.error))
        if verdict:
            return None
        outcome: dict[str, JsonValue] = {"answer": "not_needed", "subject": self._text}
        return await self._close(begun, StepState.SKIPPED, outcome)

    async def _decided(self, asked: StepRecord) -> Answer:
        """Wait for the decision, and close the gate with it."""
        while True:
            approval = self._execution.records.approvals[asked.step_key]
            match approval.decision:
                case "approved" | "rejected":
                    return await self._close(asked, StepState.SUCCEEDED, self._verified(approval))
                case _ if approval.lapse_at_ms is not None and approval.lapse_at_ms <= self._execution.services.now():
                    lapsed = await self._lapse(asked, approval)
                    if lapsed is not None:
                        return lapsed
                case _:
                    await self._wait(asked, approval.lapse_at_ms)

    async def _wait(self, asked: StepRecord, until: Millis | None) -> None:
        await self._execution.wait_for(self._call, RunWait("approval", asked.step_key, until), until)

    def _verified(self, approval: ApprovalRecord) -> dict[str, JsonValue]:
        """The decision as an outcome. What was shown must still be what is stored, byte for byte."""
        same = text_digest(approval.subject) == approval.subject_digest
        edit = approval.edited is None or text_digest(approval.edited) == approval.edited_digest
        if not same or not edit:
            self._execution.send_to_review("undecodable", approval.step_key, "the stored subject is not what was shown")
        if approval.edited is not None:
            try:
                self._codec.decode_written(approval.edited)
            except ValueRefused as refused:
                # Before the gate is closed with it: until then the decision can be replaced.
                self._execution.send_to_review("undecodable", approval.step_key, f"its edit does not fit: {refused}")
        return {"answer": approval.decision, "by": approval.decided_by, "reason": approval.reason}

    async def _lapse(self, asked: StepRecord, approval: ApprovalRecord) -> Answer | None:
        """Close the gate undecided; None where a decision came first, or the store's clock is not there yet."""
        outcome: dict[str, JsonValue] = {"answer": "lapsed"}
        ended = self._ended(asked, StepState.SUCCEEDED, outcome)
        match await self._execution.handle.lapse(approval.approval_id, ended):
            case AlreadyDecided(decision="approved" | "rejected"):
                await self._read_again()
                return None
            case NotYet(lapse_at_ms=moment):
                # The clock was set back since it was read; a decision counts again.
                await self._wait(asked, max(moment, self._execution.services.now() + _ONCE_MORE_MS))
                return None
            case _:
                # Or it has lapsed already: this very command did it, and its answer was lost on the way.
                self._watch("lapsed")
                return self._kept(ended)

    async def _read_again(self) -> None:
        run_id = self._execution.run.run_id
        for history in await self._execution.services.stores.attempts.history(commands.History((run_id,))):
            self._execution.arrived(history)

    async def _close(
        self, begun: StepRecord, state: StepState, outcome: dict[str, JsonValue] | None, error: str | None = None
    ) -> Answer:
        ended = replace(self._ended(begun, state, outcome), error=error)
        await self._execution.handle.record(ended)
        if outcome is not None:
            self._watch(str(outcome["answer"]))
        return self._kept(ended)

    async def _withdraw(self, task: EngineTask[Answer | None]) -> StepRecord | None:
        """The author no longer waits: the gate is closed, and the approval can no longer be given."""
        if self._judging:
            task.end()
        await asyncio.wait([task])
        if not task.cancelled():
            return None
        ended = self._ended(self._asked or self._begun(), StepState.CANCELLED, None)
        await (self._execution.handle.withdraw(ended) if self._asked else self._execution.handle.record(ended))
        return ended

    def _watch(self, answer: str | None) -> None:
        facts = GateFacts(
            self._execution.run.run_id, self._execution.workflow, self._question.gate, self._call.key, answer
        )
        self._execution.services.watchers.gate(facts)

    def _begun(self) -> StepRecord:
        return StepRecord(
            step_key=self._call.key,
            attempt=self._number,
            step=self._question.gate,
            kind=StepKind.GATE,
            state=StepState.WAITING,
            idempotent=True,
            started_at_ms=self._execution.services.now(),
            input_digest=self._digest,
            meta=self._execution.replay.origin(
                self._call, {SCHEMA: self._codec.schema} if self._codec.schema else None
            ),
        )

    def _approval(self, asked: StepRecord) -> ApprovalRecord:
        lapse_after = self._question.lapse_after
        lapse_at = None if lapse_after is None else asked.started_at_ms + int(lapse_after.total_seconds() * 1000)
        approval = ApprovalRecord(
            approval_id=ApprovalId(self._execution.services.stores.ids.new()),
            run_id=self._execution.run.run_id,
            step_key=self._call.key,
            gate=self._question.gate,
            subject=self._text,
            subject_digest=text_digest(self._text),
            asked_at_ms=asked.started_at_ms,
            lapse_at_ms=lapse_at,
        )
        self._execution.records.approvals[self._call.key] = approval
        return approval

    def _ended(self, begun: StepRecord, state: StepState, outcome: dict[str, JsonValue] | None) -> StepRecord:
        text = None if outcome is None else json.encode(outcome)
        place, now = self._execution.replay.next_place(self._call), self._execution.services.now()
        meta = self._execution.replay.ended_origin(self._call, begun)
        return replace(begun, state=state, recorded=place, finished_at_ms=now, outcome=text, meta=meta)
