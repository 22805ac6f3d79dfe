"""Writes to the child rows of a run: attempts, approvals, journal. Each needs a ``Held`` (``fences``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, Text, and_, bindparam, delete, func, insert, select, tuple_, update

from belay_core.clock import Millis
from belay_core.records.attempt import JsonValue
from belay_core.records.step_record import OPEN, StepKind, StepRecord, StepState
from belay_core.records.workflow_run import ApprovalRecord
from belay_core.values import json
from belay_drivers.sql.connection.dialect import SqlDialect
from belay_drivers.sql.schema.tables import approvals, attempts, journal, runs
from belay_drivers.sql.statements.fences import Held
from belay_drivers.sql.statements.keys import step_digest
from belay_drivers.sql.statements.rows import step_record
from belay_drivers.sql.statements.write_ops import ATTEMPT_COLUMNS, attempt_row

ATTEMPT_KEY: Final = ("run_id", "step_key_digest", "attempt")
IN_PROGRESS: Final = attempts.c.state.in_(tuple(sorted(state.value for state in OPEN)))
"""The attempt is in a state that a later record replaces."""
DELETED: Final = "deleted"
"""The kind of the entry that the deletion of a run leaves."""
REPLACED: Final = ("epoch", *(name for name in ATTEMPT_COLUMNS if name not in ATTEMPT_KEY))
_NEXT_ENTRY: Final = (
    update(runs)
    .where(runs.c.run_id == bindparam("b_run"))
    .values(last_entry=runs.c.last_entry + 1)
    .returning(runs.c.last_entry)
)
_LAST_RECORDED: Final = select(func.max(attempts.c.recorded)).where(attempts.c.run_id == bindparam("b_run"))
_WITHDRAW_OPEN: Final = (
    update(approvals)
    .where(approvals.c.run_id == bindparam("b_run"), approvals.c.decision.is_(None))
    .values(decision="withdrawn", decided_at=bindparam("b_now"))
    .returning(approvals.c.step_key_digest)
)
_CANCEL_WAITING: Final = (
    update(attempts)
    .where(
        attempts.c.run_id == bindparam("b_run"),
        attempts.c.step_key_digest == bindparam("b_digest"),
        attempts.c.kind == StepKind.GATE.value,
        attempts.c.state == StepState.WAITING.value,
    )
    .values(
        state=StepState.CANCELLED.value,
        finished_at=bindparam("b_now"),
        recorded=bindparam("b_recorded"),
    )
)
_ENTRY: Final = select(journal.c.at, journal.c.kind, journal.c.facts).where(
    journal.c.run_id == bindparam("b_run"), journal.c.entry == bindparam("b_entry")
)
_INSERT_APPROVAL: Final = insert(approvals)
_INSERT_JOURNAL: Final = insert(journal)
_INSERT_FIRST: Final = (
    insert(journal)
    .from_select(
        ["run_id", "entry", "at", "kind", "facts"],
        select(
            bindparam("b_run_id", type_=Text),
            func.coalesce(func.max(journal.c.entry) + 1, bindparam("b_entry", type_=BigInteger)),
            bindparam("b_at", type_=BigInteger),
            bindparam("b_kind", type_=Text),
            bindparam("b_facts", type_=Text),
        ).where(journal.c.run_id == bindparam("b_run_id", type_=Text)),
    )
    .returning(journal.c.entry)
)


def attempt_values(run_key: str, epoch: int, attempt: StepRecord) -> dict[str, Any]:
    """An attempt as a row, written under this epoch."""
    columns = dict(zip(ATTEMPT_COLUMNS, attempt_row(attempt), strict=True))
    return {"run_id": run_key, "epoch": epoch, **columns}


class AttemptRows:
    """Writes of attempts in one database's dialect; statements are built once."""

    def __init__(self, dialect: SqlDialect) -> None:
        self._put = dialect.insert_or_replace(attempts, ATTEMPT_KEY, REPLACED, IN_PROGRESS)
        self._put = self._put.returning(attempts.c.step_key_digest, attempts.c.attempt)
        self._add = dialect.insert_if_absent(attempts).returning(attempts.c.attempt)

    def put_attempts(self, tx: Connection, held: Held, epoch: int, given: Sequence[StepRecord]) -> bool:
        """Store attempts; False if one has ended and is stored with other content.

        Then some of the others may be stored, and the caller has to roll its transaction back.
        """
        missed: list[StepRecord] = []
        for attempt in given:
            stored = tx.execute(self._put, attempt_values(held.key, epoch, attempt)).one_or_none()
            if stored is None:
                missed.append(attempt)
        return all_stored(tx, held.key, missed)

    def add_attempt(self, tx: Connection, held: Held, epoch: int, attempt: StepRecord) -> bool:
        """Store an attempt if there is none under its key; returns whether it was stored."""
        return tx.execute(self._add, attempt_values(held.key, epoch, attempt)).one_or_none() is not None


def insert_attempt(tx: Connection, held: Held, dialect: SqlDialect, row: Mapping[str, object]) -> bool:
    """Store an attempt of the contract's store if there is none under its key; returns whether it was stored."""
    adding = dialect.insert_if_absent(attempts).returning(attempts.c.attempt)
    return tx.execute(adding, {**row, "run_id": held.key}).one_or_none() is not None


def all_stored(tx: Connection, run_key: str, given: Sequence[StepRecord]) -> bool:
    """Whether each of these attempts is stored with exactly this content."""
    if not given:
        return True
    keys = [(step_digest(attempt.step_key), attempt.attempt) for attempt in given]
    found = tx.execute(
        select(attempts).where(
            attempts.c.run_id == run_key,
            tuple_(attempts.c.step_key_digest, attempts.c.attempt).in_(keys),
        )
    ).mappings()
    stored = {(row["step_key_digest"], row["attempt"]): _content(step_record(row)) for row in found.all()}
    return all(stored.get(key) == _content(attempt) for key, attempt in zip(keys, given, strict=True))


def _content(attempt: StepRecord) -> StepRecord:
    return replace(attempt, epoch=0, resolved_by=None, resolved_at_ms=None)


def add_approval(tx: Connection, held: Held, approval: ApprovalRecord) -> None:
    """Store an approval."""
    tx.execute(
        _INSERT_APPROVAL,
        {
            "run_id": held.key,
            "step_key_digest": step_digest(approval.step_key),
            "approval_id": approval.approval_id,
            "gate": approval.gate,
            "subject": approval.subject,
            "subject_digest": approval.subject_digest,
            "asked_at": approval.asked_at_ms,
            "lapse_at": approval.lapse_at_ms,
        },
    )


def close_approval(tx: Connection, held: Held, approval_id: str, changes: Mapping[str, object]) -> None:
    """Decide an approval; the caller has read, under the lock of the run, that it is open."""
    tx.execute(
        update(approvals)
        .where(and_(approvals.c.approval_id == approval_id, approvals.c.run_id == held.key))
        .values(decided_at=held.now_ms, **changes)
    )


def ask_again(tx: Connection, held: Held, digest: str) -> None:
    """Take back that an approval was decided: the run has yet to go on, and its gate waits again."""
    tx.execute(
        update(approvals)
        .where(approvals.c.run_id == held.key, approvals.c.step_key_digest == digest)
        .values(decision=None, decided_at=None)
    )


def change_attempt(tx: Connection, held: Held, digest: str, attempt: int, changes: Mapping[str, object]) -> None:
    """Change columns of one attempt."""
    tx.execute(
        update(attempts)
        .where(
            attempts.c.run_id == held.key,
            attempts.c.step_key_digest == digest,
            attempts.c.attempt == attempt,
        )
        .values(**changes)
    )


def next_recorded(tx: Connection, held: Held) -> int:
    """The next number in the order of the run's results."""
    return (tx.execute(_LAST_RECORDED, {"b_run": held.key}).scalar_one() or 0) + 1


def withdraw_open(tx: Connection, held: Held) -> int:
    """Withdraw open approvals and close their gates; returns their number."""
    bound = {"b_run": held.key, "b_now": held.now_ms}
    open_gates = sorted(tx.execute(_WITHDRAW_OPEN, bound).scalars().all())
    if open_gates:
        first = next_recorded(tx, held)
        for place, digest in enumerate(open_gates, first):
            tx.execute(_CANCEL_WAITING, {**bound, "b_digest": digest, "b_recorded": place})
    return len(open_gates)


def note(tx: Connection, held: Held, kind: str, facts: dict[str, JsonValue]) -> None:
    """Write the next entry of the run's journal."""
    entry = tx.execute(_NEXT_ENTRY, {"b_run": held.key}).scalar_one()
    note_at(tx, held, entry, kind, facts)


def note_at(tx: Connection, held: Held, entry: int, kind: str, facts: dict[str, JsonValue]) -> None:
    """Write an entry whose number is already counted on the run row."""
    tx.execute(_INSERT_JOURNAL, journal_row(held.key, entry, held.now_ms, kind, json.encode(facts)))


def note_text(tx: Connection, held: Held, entry: int, kind: str, facts: str) -> None:
    """Write an entry whose number is counted, with facts in their stored form."""
    tx.execute(_INSERT_JOURNAL, journal_row(held.key, entry, held.now_ms, kind, facts))


def note_created(tx: Connection, held: Held, facts: dict[str, JsonValue]) -> None:
    """Write the first entry of a new run, after those of a deleted run with the same id.

    The run row holds 1 already. The number is counted by a separate statement, which sees what a deletion committed
    while the insert waited for it.
    """
    row = journal_row(held.key, 1, held.now_ms, "created", json.encode(facts))
    entry = tx.execute(_INSERT_FIRST, {f"b_{name}": value for name, value in row.items()}).scalar_one()
    if entry != 1:
        tx.execute(update(runs).where(runs.c.run_id == held.key).values(last_entry=entry))


def remove_all(tx: Connection, held: Held) -> None:
    """Delete the attempts and approvals of a run that is to be deleted itself."""
    for table in (attempts, approvals):
        tx.execute(delete(table).where(table.c.run_id == held.key))


@dataclass(frozen=True, slots=True)
class Noted:
    """The journal entry of a write; after a lost reply it shows whether the write was committed."""

    run_key: str
    entry: int
    at: Millis
    kind: str
    facts: str

    def is_stored(self, tx: Connection) -> bool:
        """Whether the journal has exactly this entry; the caller has locked the run."""
        row = tx.execute(_ENTRY, {"b_run": self.run_key, "b_entry": self.entry}).one_or_none()
        return row is not None and tuple(row) == (self.at, self.kind, self.facts)


def note_each(tx: Connection, changed: Sequence[Held], kind: str, facts: str) -> None:
    """Write the same entry to several runs; it is counted on their rows."""
    tx.execute(
        _INSERT_JOURNAL,
        [journal_row(held.key, held.row["last_entry"], held.now_ms, kind, facts) for held in changed],
    )


def note_last(tx: Connection, held: Held, notes: Sequence[str], kind: str, facts: dict[str, JsonValue]) -> None:
    """Write an owner's notes, and then the entry of its release; all are counted on the row."""
    last: int = held.row["last_entry"]
    first = last - len(notes)
    entries = [journal_row(held.key, first + place, held.now_ms, "noted", text) for place, text in enumerate(notes)]
    tx.execute(_INSERT_JOURNAL, [*entries, journal_row(held.key, last, held.now_ms, kind, json.encode(facts))])


def journal_row(run_key: str, entry: int, at: Millis, kind: str, facts: str) -> dict[str, Any]:
    """A journal entry as a row."""
    return {"run_id": run_key, "entry": entry, "at": at, "kind": kind, "facts": facts}
