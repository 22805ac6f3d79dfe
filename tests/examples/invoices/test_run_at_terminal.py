"""Somebody sits at the terminal: questions, answers, and decisions made elsewhere meanwhile."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from belay_invoices.approver import QUESTION
from tests.examples.invoices.demo_runs import (
    SECONDS,
    Terminal,
    cli,
    demo,
    digests,
    is_alive,
    large,
    runs,
    small,
    states,
    until,
    work_until,
    write,
)
from tests.examples.invoices.ubl import Document, Line

pytestmark = pytest.mark.timeout(SECONDS + 10)


def test_approve_edit_reject_and_skip_at_the_terminal(tmp_path: Path):
    wrong = Document(number="W", supplier="Wrong", changed={"PayableAmount": Decimal("636.28")})
    inbox = write(tmp_path / "in", [small(0), large(1), wrong, large(3), large(4)])
    with Terminal("--inbox", str(inbox), "--by", "ana") as terminal:
        terminal.answer(QUESTION, "what?")
        terminal.answer("a, e, r or s, please", "", 1)
        # Which of them is asked first is for their workflows to settle among themselves.
        mark = 0
        for times in range(3, 7):
            terminal.waits_for(QUESTION, times)
            card, mark = terminal.shown[mark:], len(terminal.shown)
            number = next((each for each in ("N-1", "N-3", "N-4") if each in card), "W")
            terminal.answer(QUESTION, {"N-1": "a", "W": "e", "N-3": "r", "N-4": "s"}[number], times)
            if number == "W":
                terminal.answer("cost centre [9900]:", "4711")
                terminal.answer("There is no such cost centre", "2100")
                terminal.answer("amount [636.28 EUR]:", "700")
                terminal.answer("may not be more than the document asks for, 636.28 EUR", "119.00")
                terminal.answer("cost centre 2100 Information technology, amount 119.00 EUR", "y")
            if number == "N-3":
                terminal.answer("why?", "not ours")
        ended = terminal.ended()
    assert ended.code == 0
    assert "4 completed, 1 stopped" in ended.out
    assert set(states(ended.url).values()) == {"completed", "approval"}
    assert {posting[1:4] for posting in ended.ledger} == {
        ("N-0", 11900, "3100"),
        ("N-1", 2380000, "3100"),
        ("W", 11900, "2100"),
    }
    assert runs(ended.url)["003.xml"].result == '"rejected by ana: not ours"'
    assert digests(ended.folder / "filed") == {posting[4] for posting in ended.ledger}


def test_a_question_is_withdrawn_when_it_is_decided_in_another_terminal(tmp_path: Path):
    inbox = write(tmp_path / "in", [large(1), large(2)])
    with Terminal("--inbox", str(inbox)) as terminal:
        terminal.waits_for(QUESTION)
        url = f"sqlite:///{terminal.folder}/belay.db"
        asked = re.findall(r"00[01]\.xml", terminal.shown)[-1]
        # What is typed into a question that goes away is no answer to the next one.
        terminal.type("r")
        assert cli("approve", runs(url)[asked].run_id, "--by", "bob", "--yes", "--database", url) == 0
        terminal.waits_for("decided elsewhere: approved by bob")
        terminal.answer(QUESTION, "r", 2)
        terminal.answer("why?", "")
        ended = terminal.ended()
    assert ended.code == 0
    assert [posting[1] for posting in ended.ledger] == [{"000.xml": "N-1", "001.xml": "N-2"}[asked]]


def test_what_was_typed_before_a_question_is_no_answer_to_it(tmp_path: Path):
    inbox = write(tmp_path / "in", [large(1), large(2)])
    with Terminal("--inbox", str(inbox)) as terminal:
        terminal.answer(QUESTION, "s\na\na")
        terminal.waits_for(QUESTION, 2)
        terminal.answer(QUESTION, "s", 2)
        ended = terminal.ended()
    assert "0 completed, 2 stopped" in ended.out


def test_nobody_answers_any_more_after_the_end_of_the_input(tmp_path: Path):
    inbox = write(tmp_path / "in", [large(1), small(2)])
    with Terminal("--inbox", str(inbox)) as terminal:
        terminal.waits_for(QUESTION)
        terminal.type("\x04")
        ended = terminal.ended()
    assert ended.code == 0
    assert "no more input" in ended.out
    assert "1 completed, 1 stopped" in ended.out


def test_ctrl_c_leaves_in_good_order_and_says_how_to_go_on(tmp_path: Path):
    inbox = write(tmp_path / "in", [large(1), *(small(number) for number in range(2, 8))])
    with Terminal("--inbox", str(inbox), "--kill", "--step-ms", "700") as terminal:
        url = f"sqlite:///{terminal.folder}/belay.db"
        until(lambda: "running" in states(url).values())
        terminal.type("\x03")
        ended = terminal.ended()
    assert ended.code == 130
    assert "interrupted; the workers have stopped in good order" in ended.out
    assert "Traceback" not in ended.out
    assert f"belay worker --app belay_invoices.workflow:WORKFLOWS --database {url}" in ended.out
    # Only what a killed worker had in hand may still be in its name.
    assert not any(is_alive(run.owner.pid) for run in runs(url).values() if run.owner)
    work_until(url, lambda: not {"pending", "running", "released"} & set(states(url).values()))
    assert len({posting[0] for posting in ended.ledger}) == len(ended.ledger)


def test_ctrl_c_at_an_open_question_leaves_it_undecided(tmp_path: Path):
    with Terminal("--inbox", str(write(tmp_path / "in", [large(1)]))) as terminal:
        terminal.waits_for(QUESTION)
        terminal.type("\x03")
        ended = terminal.ended()
    assert ended.code == 130
    assert "runs that a worker has to go on with: 0\n" in ended.out
    assert set(states(ended.url).values()) == {"approval"}


def test_where_nobody_can_be_asked_the_gates_stay_open_and_the_commands_work(tmp_path: Path):
    inbox = write(tmp_path / "in", [large(1), large(2), small(3)])
    ended = demo("--inbox", str(inbox))
    assert ended.code == 0
    assert "1 completed, 2 stopped" in ended.out
    (approve, _), (_, reject) = ended.commands("approve"), ended.commands("reject")
    assert cli(*approve, "--by", "ana") == 0
    assert cli(*reject, "--by", "ana", "--reason", "twice") == 0
    work_until(ended.url, lambda: set(states(ended.url).values()) == {"completed"})
    assert len(ended.ledger) == 2


NAMES = (b"evil\x1b]0;pwned\x07\x1b[2J.xml", b"line\nbreak.xml", b"latin-\xe9.xml", b"-rf.xml", b"rtl\xe2\x80\xae.xml")


def test_hostile_names_and_texts_do_not_drive_the_terminal(tmp_path: Path):
    inbox = write(tmp_path / "in", [])
    lines = (Line(name="pay \u202eevil\u202c now", price=Decimal(20_000)),)
    document = Document(lines=lines, supplier="Nice\u200b Ltd\u2066")
    for number, name in enumerate(NAMES):
        changed = Document(**{**vars(document), "number": f"H\u202e-{number}"})
        (Path(str(inbox)) / Path(name.decode("utf-8", "surrogateescape"))).write_bytes(changed.bytes())
    with Terminal("--inbox", str(inbox)) as terminal:
        for times in range(1, len(NAMES) + 1):
            terminal.answer(QUESTION, "a", times)
        ended = terminal.ended()
    assert ended.code == 0, ended.out
    assert "5 completed, 0 stopped" in ended.out
    for hidden in ("\x1b]0;", "\x1b[2J.xml", "\u202e", "\u202c", "\u200b", "\u2066", "\x07"):
        assert hidden not in ended.out, hidden
    assert "evil<U+001B>]0;pwned<U+0007><U+001B>[2J.xml" in ended.out
    assert "latin-<U+DCE9>.xml" in ended.out
    assert "line<U+000A>break.xml" in ended.out or "line break.xml" in ended.out
    assert len(ended.ledger) == 5
