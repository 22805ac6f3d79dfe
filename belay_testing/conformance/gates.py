"""Gates: what was asked, who decided, and that one decision counts."""

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepState
from belay_core.stores.approvals import AlreadyDecided, Decided, NoSuchApproval, NotYet, SubjectChanged, TooLate
from belay_core.stores.attempts import Conflict, ExistingSame, Inserted, Recorded
from belay_core.stores.runs import PendingSignal, RunParked
from belay_testing.conformance.chapter import Chapter
from belay_testing.conformance.kit import Kit


class GatesChapter(Chapter):
    """``ask``, ``decide``, ``lapse`` and ``withdraw``."""

    async def test_asking_stores_the_attempt_the_question_and_an_entry(self, kit: Kit) -> None:
        lease = await kit.own()
        assert await kit.ask(lease, lapse_at_ms=kit.now + 60_000) == Inserted()
        history = await kit.history()
        assert [(a.step_key, a.state, a.kind) for a in history.attempts] == [("editor#1", "waiting", "gate")]
        assert history.approvals == (kit.asked(lapse_at_ms=kit.now + 60_000),)
        assert await kit.stores.approvals.find("ap-1") == history.approvals[0]
        [created, asked] = await kit.stores.journal.read(RunId("run-1"))
        assert (created.kind, asked.kind, asked.at_ms) == ("created", "asked", kit.now)
        assert json.loads(asked.facts) == {"gate": "editor", "approval_id": "ap-1"}

    async def test_asking_the_same_twice_asks_once(self, kit: Kit) -> None:
        lease = await kit.own()
        assert await kit.ask(lease) == Inserted()
        assert await kit.ask(lease) == ExistingSame()
        other = commands.Ask(lease, kit.gate(), replace(kit.asked(), subject="1", subject_digest="x"))
        assert await kit.stores.approvals.ask(other) == Conflict()
        assert await kit.ask(lease, approval="ap-2") == Conflict()
        assert await kit.kinds() == ["created", "asked"]

    async def test_asking_again_after_the_answer_finds_the_question(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        await kit.decide()
        assert await kit.ask(lease) == ExistingSame()
        assert (await kit.approval("ap-1")).decision == "approved"

    async def test_a_decision_is_stored_with_everything_said_and_wakes_the_run(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        await kit.park(lease, token="editor#1")
        kit.clock.advance(7)
        edited = '{"amount":11}'
        digest = sha256(edited.encode()).hexdigest()
        answer = await kit.decide(reason="cheaper", edited=edited, edited_digest=digest)
        assert answer == Decided(kit.now)
        approval = await kit.approval("ap-1")
        assert (approval.decision, approval.decided_by, approval.decided_at_ms) == ("approved", "ada", kit.now)
        assert (approval.reason, approval.edited, approval.edited_digest) == ("cheaper", edited, digest)
        assert (await kit.run()).ready_at_ms == kit.now
        entry = (await kit.stores.journal.read(RunId("run-1")))[-1]
        facts = {"approval_id": "ap-1", "gate": "editor", "decision": "approved", "by": "ada", "digest": digest}
        assert (entry.kind, json.loads(entry.facts)) == ("decided", facts)

    async def test_the_first_decision_is_kept_whatever_comes_after(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        decided_at = kit.now
        await kit.decide(decision="rejected", by="ada")
        kit.clock.advance(5)
        first = AlreadyDecided("rejected", "ada", decided_at)
        assert await kit.decide() == first
        assert await kit.decide(decision="rejected", by="ada") == first
        assert await kit.decide(digest="other") == first
        await kit.settle(lease, RunStatus.FAILED, seen_ms=(await kit.renew(lease)).pending_signal_ms)
        assert await kit.decide() == first
        assert await kit.kinds() == ["created", "asked", "decided", "settled"]

    async def test_a_decision_about_another_subject_changes_nothing(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        assert await kit.decide(digest="0" * 64) == SubjectChanged()
        assert (await kit.approval("ap-1")).decision is None
        assert (await kit.renew(lease)).pending_signal_ms is None
        assert await kit.decide("nobody-asked") == NoSuchApproval()

    async def test_a_gate_lapses_at_its_very_moment_for_both_sides(self, kit: Kit) -> None:
        lease = await kit.own()
        lapse_at = kit.now + 1_000
        await kit.ask(lease, lapse_at_ms=lapse_at)
        ended = kit.gate(state=StepState.SUCCEEDED, outcome='"lapsed"')
        kit.clock.advance(999)
        assert await kit.stores.approvals.lapse(commands.Lapse(lease, "ap-1", ended)) == NotYet(lapse_at)
        kit.clock.advance(1)
        assert await kit.decide(digest="other") == TooLate()
        assert isinstance(await kit.stores.approvals.lapse(commands.Lapse(lease, "ap-1", ended)), Recorded)
        assert await kit.decide() == TooLate()
        approval = await kit.approval("ap-1")
        assert (approval.decision, approval.decided_at_ms, approval.decided_by) == ("lapsed", lapse_at, None)
        assert (await kit.attempts())["editor#1"].state is StepState.SUCCEEDED
        assert await kit.kinds() == ["created", "asked", "lapsed"]

    async def test_a_gate_decided_in_time_does_not_lapse(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease, lapse_at_ms=kit.now + 10)
        await kit.decide()
        decided_at = kit.now
        kit.clock.advance(20)
        answer = await kit.stores.approvals.lapse(commands.Lapse(lease, "ap-1", kit.gate(state=StepState.SUCCEEDED)))
        assert answer == AlreadyDecided("approved", "ada", decided_at)
        assert (await kit.attempts())["editor#1"].state is StepState.WAITING

    async def test_only_what_this_run_asked_can_lapse(self, kit: Kit) -> None:
        first, second = await kit.own("run-1"), await kit.own("run-2")
        await kit.ask(first, lapse_at_ms=kit.now)
        ended = kit.gate(state=StepState.SUCCEEDED)
        assert await kit.stores.approvals.lapse(commands.Lapse(second, "ap-1", ended)) == NoSuchApproval()
        assert await kit.stores.approvals.lapse(commands.Lapse(first, "ap-9", ended)) == NoSuchApproval()
        assert await kit.attempts("run-2") == {}

    async def test_a_gate_that_has_ended_otherwise_does_not_lapse(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease, lapse_at_ms=kit.now)
        await kit.record(lease, kit.gate(state=StepState.CANCELLED))
        ended = kit.gate(state=StepState.SUCCEEDED)
        assert await kit.stores.approvals.lapse(commands.Lapse(lease, "ap-1", ended)) == Conflict()
        assert (await kit.attempts())["editor#1"].state is StepState.CANCELLED

    async def test_a_gate_that_never_lapses_never_lapses(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        kit.clock.advance(10**12)
        [taken] = await kit.acquire()
        answer = await kit.stores.approvals.lapse(
            commands.Lapse(taken.lease, "ap-1", kit.gate(state=StepState.SUCCEEDED))
        )
        assert isinstance(answer, NotYet)

    async def test_a_withdrawn_gate_takes_no_decision(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        closed = kit.gate(state=StepState.CANCELLED)
        assert isinstance(await kit.stores.approvals.withdraw(commands.Withdraw(lease, closed)), Recorded)
        assert isinstance(await kit.stores.approvals.withdraw(commands.Withdraw(lease, closed)), Recorded)
        assert await kit.stores.approvals.withdraw(commands.Withdraw(lease, replace(closed, recorded=9))) == Conflict()
        assert await kit.decide() == TooLate()
        assert (await kit.approval("ap-1")).decision == "withdrawn"
        assert await kit.kinds() == ["created", "asked", "withdrawn"]

    async def test_withdrawing_a_decided_gate_leaves_the_decision(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        await kit.decide()
        await kit.stores.approvals.withdraw(commands.Withdraw(lease, kit.gate(state=StepState.CANCELLED)))
        assert (await kit.approval("ap-1")).decision == "approved"
        assert (await kit.attempts())["editor#1"].state is StepState.CANCELLED

    async def test_a_gate_that_needed_no_decision_is_withdrawn_without_an_approval(self, kit: Kit) -> None:
        lease = await kit.own()
        skipped = kit.gate(state=StepState.SKIPPED)
        assert isinstance(await kit.stores.approvals.withdraw(commands.Withdraw(lease, skipped)), Recorded)
        assert (await kit.attempts())["editor#1"].state is StepState.SKIPPED
        assert await kit.kinds() == ["created"]

    async def test_the_end_of_a_run_withdraws_what_it_still_asks(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.record(lease, kit.step(recorded=4))
        for number in (1, 2, 3):
            await kit.ask(lease, f"g#{number}", f"ap-{number}")
        await kit.decide("ap-2")
        await kit.record(lease, kit.gate("g#2", StepState.SUCCEEDED, recorded=5))
        await kit.settle(lease, RunStatus.COMPLETED, seen_ms=(await kit.renew(lease)).pending_signal_ms)
        approvals = {a.approval_id: a.decision for a in (await kit.history()).approvals}
        assert approvals == {"ap-1": "withdrawn", "ap-2": "approved", "ap-3": "withdrawn"}
        attempts = await kit.attempts()
        assert [attempts[f"g#{n}"].state for n in (1, 2, 3)] == ["cancelled", "succeeded", "cancelled"]
        assert {attempts["g#1"].recorded, attempts["g#3"].recorded} == {6, 7}
        assert await kit.decide("ap-1") == TooLate()

    async def test_a_question_of_a_run_that_is_over_is_no_longer_shown(self, kit: Kit) -> None:
        await kit.ask(await kit.own("run-2"), approval="ap-2")
        kit.clock.advance(1)
        lease = await kit.own("run-1")
        await kit.ask(lease, approval="ap-1")
        listed = await kit.stores.approvals.list(commands.ListApprovals())
        assert [approval.approval_id for approval in listed] == ["ap-2", "ap-1"]
        only = await kit.stores.approvals.list(commands.ListApprovals(run_id=RunId("run-1")))
        assert [approval.approval_id for approval in only] == ["ap-1"]
        assert len(await kit.stores.approvals.list(commands.ListApprovals(limit=1))) == 1
        await kit.decide("ap-2")
        await kit.settle(lease, RunStatus.COMPLETED)
        assert await kit.stores.approvals.list(commands.ListApprovals()) == ()

    async def test_of_fifty_decisions_at_once_one_counts_and_all_others_name_it(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        answers = await asyncio.gather(
            *(kit.decide(decision=("approved", "rejected")[n % 2], by=f"person-{n}") for n in range(50))
        )
        assert sum(isinstance(answer, Decided) for answer in answers) == 1
        approval = await kit.approval("ap-1")
        others = {answer for answer in answers if not isinstance(answer, Decided)}
        assert approval.decision is not None
        assert approval.decided_at_ms is not None
        assert others == {AlreadyDecided(approval.decision, approval.decided_by, approval.decided_at_ms)}
        assert (await kit.kinds()).count("decided") == 1

    @pytest.mark.parametrize("park_first", [True, False])
    async def test_a_run_is_never_parked_with_a_decision_its_owner_has_not_seen(
        self, kit: Kit, park_first: Any
    ) -> None:
        for number in range(15):
            run_id = f"run-{number}"
            lease = await kit.own(run_id)
            await kit.ask(lease, approval=f"ap-{number}")
            calls = [kit.park(lease), kit.decide(f"ap-{number}")]
            answers = await asyncio.gather(*(calls if park_first else calls[::-1]))
            parked, decided = answers if park_first else answers[::-1]
            assert isinstance(decided, Decided)
            if parked == PendingSignal():
                assert (await kit.renew(lease)).pending_signal_ms is not None
            else:
                assert parked == RunParked()
                assert [taken.run.run_id for taken in await kit.acquire()] == [run_id]

    async def test_a_decision_is_replaced_while_no_worker_has_the_run(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease)
        await kit.decide(by="ada", edited="1", edited_digest="x")
        # The owner may be about to act on it.
        assert await kit.decide(by="bob", replace=True) == AlreadyDecided("approved", "ada", kit.now)
        await kit.park(lease, token="editor#1", seen_ms=(await kit.renew(lease)).pending_signal_ms)
        kit.clock.advance(5)
        assert await kit.decide(decision="rejected", by="bob", replace=True) == Decided(kit.now)
        approval = await kit.approval("ap-1")
        assert (approval.decision, approval.decided_by, approval.edited) == ("rejected", "bob", None)
        assert (await kit.run()).ready_at_ms == kit.now
        entry = (await kit.stores.journal.read(RunId("run-1")))[-1]
        assert (entry.kind, json.loads(entry.facts)["replaces"]) == ("decided", "ada")
        # Another subject and a decision of the clock's are no words of a person.
        assert await kit.decide(by="mia", digest="other", replace=True) == SubjectChanged()
        [taken] = await kit.acquire()
        assert await kit.decide(by="mia", replace=True) == AlreadyDecided("rejected", "bob", kit.now)
        await kit.record(taken.lease, kit.gate(state=StepState.SUCCEEDED, outcome="1", recorded=1))
        await kit.park(taken.lease, reason="timer", wake_at_ms=kit.now + 60_000)
        assert await kit.decide(by="mia", replace=True) == AlreadyDecided("rejected", "bob", kit.now)

    async def test_a_gate_that_has_lapsed_is_not_decided_by_replacing(self, kit: Kit) -> None:
        lease = await kit.own()
        await kit.ask(lease, lapse_at_ms=kit.now + 5)
        await kit.park(lease, token="editor#1", wake_at_ms=kit.now + 5)
        kit.clock.advance(6)
        assert await kit.decide(replace=True) == TooLate()
