"""Who decides at the gates of the demo: nobody, everything is approved, or somebody is asked at the terminal."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from belay_core.client import Client
from belay_core.demo.booking import Booking
from belay_core.demo.conversation import Approve, Conversation, Decision, Reject, Skip, converse, described
from belay_core.demo.keyboard import Keyboard
from belay_core.demo.screen import Screen
from belay_core.errors import ValueRefused
from belay_core.records.workflow_run import ApprovalRecord, RunSummary
from belay_core.stores.approvals import AlreadyDecided, Decided, DecideOutcome
from belay_core.values.codecs import codec_for

BY_ITSELF: Final = "demo"
"""The name under which ``--approve all`` decides."""


class Approver(Protocol):
    """Decides, or does not."""

    @abstractmethod
    def wants(self, run_id: str) -> bool:
        """Whether it may still decide what this run asks."""

    @abstractmethod
    async def look(self, waiting: Sequence[RunSummary]) -> None:
        """Go on with these runs, which wait for a decision."""


class Nobody(Approver):
    """Leaves every gate open."""

    def wants(self, run_id: str) -> bool:  # noqa: ARG002  (the protocol's signature)
        """Never."""
        return False

    async def look(self, waiting: Sequence[RunSummary]) -> None:
        """Do nothing."""


class Everything(Approver):
    """Approves whatever is asked, as it is shown."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def wants(self, run_id: str) -> bool:  # noqa: ARG002  (the protocol's signature)
        """Always."""
        return True

    async def look(self, waiting: Sequence[RunSummary]) -> None:
        """Approve."""
        for run in waiting:
            for asked in await self._client.approvals(run.run_id):
                await self._client.decide(asked, "approved", by=BY_ITSELF)


@dataclass(slots=True)
class _Question:
    """What is being asked at this moment."""

    asked: ApprovalRecord
    conversation: Conversation


class AtTheTerminal(Approver):
    """Asks about one run after the other; what is decided elsewhere meanwhile is asked no longer."""

    def __init__(self, client: Client, keyboard: Keyboard, screen: Screen, by: str) -> None:
        self._client = client
        self._keyboard = keyboard
        self._screen = screen
        self._by = by
        self._skipped: set[str] = set()
        self._question: _Question | None = None

    def wants(self, run_id: str) -> bool:
        """Until somebody skips it or nobody is there any more."""
        return not self._keyboard.is_closed and run_id not in self._skipped

    async def look(self, waiting: Sequence[RunSummary]) -> None:
        """Go on with the question that is open, or open the next one."""
        if self._question is not None:
            await self._go_on(self._question)
            return
        for run in waiting:
            if self.wants(run.run_id) and (asked := await self._client.approvals(run.run_id)):
                self._open(asked[0])
                return

    def _open(self, asked: ApprovalRecord) -> None:
        try:
            booking: Booking = codec_for(Booking).decode(asked.subject)
        except ValueRefused:
            # Written by another version of the demo: it cannot be shown, so nobody is asked to decide upon it.
            self._skipped.add(asked.run_id)
            return
        self._screen.open_question(described(booking))
        self._question = _Question(asked, converse(booking))
        self._keyboard.forget()
        self._show(next(self._question.conversation))

    async def _go_on(self, question: _Question) -> None:
        if (told := await self._decided_elsewhere(question.asked)) is not None:
            question.conversation.close()
            self._screen.note("")
            self._close(told)
            return
        if self._keyboard.is_closed:
            self._screen.note("")
            self._close("nobody answers any more; what waits stays undecided")
            return
        while self._question is question and (line := self._keyboard.line()) is not None:
            try:
                self._show(question.conversation.send(line))
            except StopIteration as ended:
                self._close(await self._decide(question.asked, ended.value))

    def _show(self, lines: Sequence[str]) -> None:
        for line in lines[:-1]:
            self._screen.note(line)
        self._screen.prompt(lines[-1])

    def _close(self, told: str) -> None:
        self._screen.note(told)
        self._screen.close_question()
        self._question = None

    async def _decided_elsewhere(self, asked: ApprovalRecord) -> str | None:
        """What became of the question while it was open here."""
        if any(each.approval_id == asked.approval_id for each in await self._client.approvals(asked.run_id)):
            return None
        history = await self._client.history(asked.run_id)
        found = next((each for each in history.approvals if each.approval_id == asked.approval_id), None)
        if found is None or found.decision is None or found.decided_by is None:
            return "no longer asked"
        return f"decided elsewhere: {found.decision} by {found.decided_by}"

    async def _decide(self, asked: ApprovalRecord, decision: Decision) -> str:
        """Carry the decision out, bound to what was shown; what to say of it."""
        match decision:
            case Approve(edited=None):
                return _told(await self._client.decide(asked, "approved", by=self._by), "approved")
            case Approve(edited=edited):
                text = codec_for(Booking).encode(edited)
                answer = await self._client.decide(asked, "approved", by=self._by, edited_text=text)
                return _told(answer, "approved as edited")
            case Reject(reason=reason):
                return _told(await self._client.decide(asked, "rejected", by=self._by, reason=reason), "rejected")
            case Skip():
                self._skipped.add(asked.run_id)
                return "skipped: it stays undecided"
            case _:
                assert_never(decision)


def _told(answer: DecideOutcome, verb: str) -> str:
    match answer:
        case Decided():
            return verb
        case AlreadyDecided(decision=decision, decided_by=by):
            return f"not decided here: already {decision} by {by or 'nobody named'}"
        case _:
            return "not decided: it is too late, or what is asked about has changed"
