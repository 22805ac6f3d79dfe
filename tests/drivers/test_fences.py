"""No write to what belongs to a run without the lock of its row."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
from sqlalchemy import event

import belay_drivers
from belay_core.ids import RunId
from belay_core.records import commands
from belay_core.records.attempt import Attempt, FinishAttempt
from belay_core.records.owner import OwnerId
from belay_core.records.run import RunSnapshot, RunStatus
from belay_core.records.step_record import StepKind, StepState

ROOT = Path(belay_drivers.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
CHILDREN = {"attempts", "approvals", "journal"}
WRITERS = {"insert", "update", "delete", "insert_if_absent", "insert_or_replace"}
MAY_WRITE = {"sql/statements/run_rows.py"}
MAKES_PROOF = {"sql/statements/fences.py"}
ONE_TRANSACTION = {"sqlite/batch.py"}
"""Statements that run behind a fenced one inside the one transaction that holds the file's write lock."""
WRITES_CHILD = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM) belay_(attempts|approvals|journal)\b")
RUN_BEFORE = re.compile(
    r"(UPDATE|INSERT INTO) belay_runs\b|FROM belay_runs\b[^()]*(\([^()]*\)[^()]*)*FOR NO KEY UPDATE"
)
LOCKS_RUN = re.compile(r"^\s*(UPDATE|INSERT INTO) belay_runs\b|FROM belay_runs\b.*FOR NO KEY UPDATE", re.DOTALL)


def calls(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            yield name, [arg.id for arg in node.args if isinstance(arg, ast.Name)]


def test_child_rows_are_written_in_one_module_alone():
    writing = {
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        for name, arguments in calls(path)
        if name in WRITERS and CHILDREN & set(arguments)
    }
    assert writing == MAY_WRITE


def texts(tree):
    """Each text of a module whole, also where other texts are put into it."""
    joined = {node: [*ast.walk(node)] for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    parts = {id(part) for walked in joined.values() for part in walked}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value
    for walked in joined.values():
        yield "".join(part.value for part in walked if isinstance(part, ast.Constant) and isinstance(part.value, str))


def test_statements_in_plain_sql_fence_in_the_same_statement():
    for path in MODULES:
        if path.relative_to(ROOT).as_posix() in ONE_TRANSACTION:
            continue
        for sql in texts(ast.parse(path.read_text())):
            if found := WRITES_CHILD.search(sql):
                before = sql[: found.start()]
                assert RUN_BEFORE.search(before), path


def test_the_proof_of_a_lock_is_made_in_one_module_alone():
    making = {path.relative_to(ROOT).as_posix() for path in MODULES for name, _ in calls(path) if name == "Held"}
    assert making == MAKES_PROOF


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nobody_asks_which_database_it_is(path):
    if path.name != "dialect.py":
        assert not re.search(r"dialect\.name|\.name\s*==\s*.(sqlite|postgres)", path.read_text())


class Trace:
    """What each transaction sent, in order."""

    def __init__(self, stores):
        self.transactions = defaultdict(list)
        self._number = defaultdict(int)
        self._open = set()
        engines = stores.runs._database._engines
        for target in {engines.write.sync_engine, engines.read.sync_engine}:
            event.listen(target, "before_cursor_execute", self._sent)
            event.listen(target, "begin", self._began, insert=True)
        if engines.direct is not None:
            event.listen(engines.direct, "before_cursor_execute", self._straight)

    def _began(self, connection):
        self._number[id(connection)] += 1

    def _straight(self, _connection, _cursor, statement, *_rest):
        # Each is a transaction of its own.
        self.transactions["straight", len(self.transactions)].append(statement)

    def _sent(self, connection, _cursor, statement, *_rest):
        self.transactions[id(connection), self._number[id(connection)]].append(statement)


async def everything(kit):
    """Every command that writes, at least once."""
    stores = kit.stores
    lease = await kit.own(idempotency_key="k")
    await kit.record(lease, kit.step("a#1"))
    await kit.record(lease, kit.step("b#1"), kit.step("c#1", StepState.RUNNING))
    await kit.renew(lease)
    await stores.attempts.sleep(commands.Sleep(lease, kit.step("s#1", StepState.WAITING, kind=StepKind.SLEEP)))
    for number in range(4):
        await kit.ask(lease, f"g#{number}", f"ap-{number}", lapse_at_ms=kit.now + 5 if number == 1 else None)
    await kit.decide("ap-0")
    kit.clock.advance(10)
    await stores.approvals.lapse(commands.Lapse(lease, "ap-1", kit.gate("g#1", StepState.SUCCEEDED)))
    await stores.approvals.withdraw(commands.Withdraw(lease, kit.gate("g#2", StepState.CANCELLED)))
    await kit.record(lease, kit.step("o#1", StepState.ORPHANED, recorded=None))
    await stores.runs.resolve(commands.Resolve(RunId("run-1"), commands.Retry(), "ada", "o#1"))
    await kit.park(lease, "timer", wake_at_ms=kit.now, seen_ms=(await kit.renew(lease)).pending_signal_ms)
    await stores.runs.wake(commands.Wake())
    [taken] = await kit.acquire()
    await stores.runs.cancel(commands.Cancel(RunId("run-1")))
    await kit.settle(
        taken.lease, RunStatus.CANCELLED, seen_ms=(await kit.renew(taken.lease)).pending_signal_ms, notes=("1",)
    )
    runs, owner, bare = kit.stores.runs, OwnerId("h", 1, "n"), RunId("bare")
    await runs.create(bare, "{}")
    await runs.claim_and_own(bare, RunSnapshot(RunStatus.PENDING), owner, kit.now)
    await kit.stores.attempts.put(Attempt(bare, "d", 1, "running", 1, {}), owner)
    await kit.stores.attempts.finish(FinishAttempt(bare, "d", 1, "completed", 2), owner)
    await runs.transition_owned(bare, owner, RunStatus.COMPLETED)


async def test_every_transaction_locks_the_run_before_it_writes_what_belongs_to_it(kit):
    trace = Trace(kit.stores)
    await everything(kit)
    writing = 0
    for statements in trace.transactions.values():
        locked = False
        for statement in statements:
            locked = (
                locked
                or LOCKS_RUN.search(statement) is not None
                or re.match(r"\s*WITH (held|asked|ends|news) AS", statement) is not None
                or "), taken AS" in statement
            )
            if kit.stores.runs._database.dialect.name == "sqlite":
                locked = locked or "FROM belay_runs" in statement
            if WRITES_CHILD.search(statement):
                writing += 1
                assert locked, statements
    assert writing > 20


async def test_every_write_on_sqlite_stands_between_taking_the_write_lock_and_its_commit(belay_each_sqlite, make_kit):
    async with belay_each_sqlite as stores:
        sent: list[str] = []
        writer = stores.runs._database._engines.write
        await writer.run(lambda tx: tx.connection.driver_connection.set_trace_callback(sent.append))
        await everything(make_kit(stores))
        await writer.run(lambda tx: tx.connection.driver_connection.set_trace_callback(None))
    inside, writes = False, 0
    for statement in sent:
        verb = statement.split()[0]
        if verb == "BEGIN":
            assert (statement, inside) == ("BEGIN IMMEDIATE", False)
            inside = True
        elif verb in {"COMMIT", "ROLLBACK"}:
            inside = False
        else:
            # Whether there is a run to be had is looked up before the lock is taken.
            assert inside or verb == "SELECT", statement
            writes += verb in {"INSERT", "UPDATE"}
    assert writes > 40


@pytest.fixture(params=["belay_stores", "belay_sqlite_file"])
def belay_each_sqlite(request):
    return request.getfixturevalue(request.param)
