"""``belay approvals``, ``belay approve`` and ``belay reject``."""

import hashlib
import os
import pwd
from pathlib import Path

import pytest

from tests.cli.commanding import Cli, at_terminal, until


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def decision_of(cli: Cli, run: str) -> tuple[str | None, str | None, str | None]:
    (approval,) = cli.json("show", run)["approvals"]
    return approval["decision"], approval["decided_by"], approval["reason"]


def test_what_waits_is_listed_with_its_subject_as_stored(cli: Cli):
    cli.started("letter", 'Dear "Ada"', run_id="r1")
    cli.started("letter", "Dear Bob", run_id="r2")
    out = cli("approvals").out
    assert out.index("run       r1") < out.index("run       r2")
    assert 'subject   "Dear \\"Ada\\""' in out
    assert "digest    " + digest('"Dear Bob"') in out
    assert "r1" not in cli("approvals", "r2").out
    assert [each["subject_text"] for each in cli.json("approvals")] == ['"Dear \\"Ada\\""', '"Dear Bob"']
    assert len(cli.json("approvals", "--limit", "1")) == 1


def test_nothing_that_waits_is_reported(cli: Cli):
    cli.start("ping", run_id="r1")
    assert cli("approvals").out == "nothing waits for a decision\n"
    assert cli("approvals", "r1").out == "nothing waits for a decision\n"
    assert cli.json("approvals") == []


def test_an_approval_shows_what_it_is_about_and_counts(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    ended = cli("approve", "r1", "--reason", "well put")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert 'subject   "Dear Ada"' in lines
    assert lines[-1].startswith("approved by ana at 2")
    assert decision_of(cli, "r1") == ("approved", "ana", "well put")
    cli.work()
    assert cli.json("show", "r1")["run"]["result"] == "sent Dear Ada"


def test_a_rejection_counts(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    reported = cli.json("reject", "r1", "--reason", "too short", "--by", "bob")
    assert (reported["outcome"], reported["decision"], reported["decided_by"]) == ("decided", "rejected", "bob")
    assert reported["subject_digest"] == digest('"Dear Ada"')
    cli.work()
    assert cli.json("show", "r1")["run"]["result"] == "dropped: too short"


def test_one_decision_counts_and_the_second_is_refused(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    first = cli.json("approve", "r1")
    ended = cli("reject", "r1", "--by", "bob")
    assert ended.code == 1
    assert ended.err == f"belay: nothing was decided: already approved by ana at {first['decided_at']}\n"
    reported = cli.json("reject", "r1", "--by", "bob", code=1)
    assert (reported["outcome"], reported["decision"], reported["decided_by"], reported["decided_at"]) == (
        "already_decided",
        "approved",
        "ana",
        first["decided_at"],
    )
    assert decision_of(cli, "r1") == ("approved", "ana", None)


def test_a_decision_on_another_subject_does_not_count(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    ended = cli("approve", "r1", "--digest", digest('"Dear Eve"'))
    assert (ended.code, ended.err) == (
        1,
        "belay: nothing was decided: the subject is another one than the digest says\n",
    )
    assert cli.json("approve", "r1", "--digest", "00", code=1)["outcome"] == "subject_changed"
    assert decision_of(cli, "r1") == (None, None, None)
    assert cli.json("approve", "r1", "--digest", digest('"Dear Ada"'))["outcome"] == "decided"


def test_a_gate_that_lapsed_is_reported(cli: Cli):
    cli.started("hasty", "Dear Ada", run_id="r1")
    late = "belay: nothing was decided: it is too late; the gate has lapsed or was withdrawn, or the run is over\n"
    until(lambda: cli("approve", "r1").err == late)
    assert cli.json("reject", "r1", code=1)["outcome"] == "too_late"


def test_a_gate_that_was_not_asked_is_reported(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    ended = cli("approve", "r1", "--gate", "lawyer")
    assert (ended.code, ended.err) == (1, "belay: nothing was decided: run r1 asks nothing of the kind\n")
    reported = cli.json("approve", "r1", "--approval", "nix", code=1)
    assert (reported["outcome"], reported["approval_id"], reported["subject_text"]) == ("no_such_approval", None, None)


def test_the_gate_of_another_run_is_not_this_ones(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    cli.started("letter", "Dear Bob", run_id="r2")
    (other,) = cli.json("approvals", "r2")
    assert cli.json("approve", "r1", "--approval", other["approval_id"], code=1)["outcome"] == "no_such_approval"
    assert decision_of(cli, "r2") == (None, None, None)


def test_several_gates_are_distinguished(cli: Cli):
    cli.started("contract", "Dear Ada", run_id="r1")
    ended = cli("approve", "r1")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("belay: gate: several wait, name one: ")
    assert "editor" in ended.err
    assert "lawyer" in ended.err
    assert cli.json("approve", "r1", "--gate", "lawyer")["gate"] == "lawyer"
    assert cli.json("approve", "r1")["gate"] == "editor"


def test_several_askings_of_one_gate_are_distinguished(cli: Cli):
    cli.started("letters", ["Dear Ada", "Dear Bob"], run_id="r1")
    ids = {each["subject"]: each["approval_id"] for each in cli.json("approvals", "r1")}
    ended = cli("approve", "r1", "--gate", "editor")
    assert (ended.code, ended.err) == (
        2,
        f"belay: approval: several wait, name one: {', '.join(ids.values())}\n",
    )
    assert cli.json("approve", "r1", "--approval", ids["Dear Bob"])["subject_text"] == '"Dear Bob"'
    assert cli.json("reject", "r1", "--gate", "editor")["subject_text"] == '"Dear Ada"'


def test_an_edited_subject_is_what_the_run_goes_on_with(cli: Cli, tmp_path: Path):
    cli.started("letter", "Dear Ada", run_id="r1")
    file = tmp_path / "better.json"
    file.write_text('  "Dearest Ada"  ')
    ended = cli("approve", "r1", "--edit", f"@{file}")
    lines = ended.out.splitlines()
    assert 'edited    "Dearest Ada"' in lines
    assert lines[-1].endswith(", as edited")
    (approval,) = cli.json("show", "r1")["approvals"]
    assert (approval["edited_text"], approval["edited_digest"]) == ('"Dearest Ada"', digest('"Dearest Ada"'))
    cli.work()
    assert cli.json("show", "r1")["run"]["result"] == "sent Dearest Ada"


def test_a_long_subject_is_shown_whole_to_the_approver(cli: Cli):
    cli.started("letter", "x" * 10_000, run_id="r1")
    assert f'"{"x" * 10_000}"' in cli("approvals").out
    assert f'"{"x" * 10_000}"' in cli("approve", "r1").out


def test_without_a_name_the_user_of_this_machine_decides(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BELAY_APPROVER")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    monkeypatch.setenv("USER", "somebody-else")
    cli.started("letter", "Dear Ada", run_id="r1")
    assert cli.json("approve", "r1")["decided_by"] == pwd.getpwuid(os.getuid()).pw_name


def test_a_user_without_a_name_has_to_give_one(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("BELAY_APPROVER")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    cli.started("letter", "Dear Ada", run_id="r1")
    assert cli("approve", "r1").err == ("belay: by: must be given, by --by or BELAY_APPROVER: this user has no name\n")


@pytest.mark.parametrize(("typed", "decided"), [("n\n", False), ("\n", False), ("y\n", True)])
def test_at_a_terminal_it_asks_first(cli: Cli, typed: str, decided: bool):
    cli.started("letter", "Dear Ada", run_id="r1")
    code, received = at_terminal(["approve", "r1"], typed)
    assert 'subject   "Dear Ada"' in received
    assert "approve this as ana? [y/N]: " in received
    assert (code == 0) is decided
    assert ("belay: nothing was decided" in received) is not decided
    assert decision_of(cli, "r1")[0] == ("approved" if decided else None)


@pytest.mark.parametrize("option", ["--yes", "--json"])
def test_at_a_terminal_an_option_keeps_it_from_asking(cli: Cli, option: str):
    cli.started("letter", "Dear Ada", run_id="r1")
    code, received = at_terminal(["reject", "r1", option])
    assert (code, "[y/N]" in received) == (0, False)
    assert decision_of(cli, "r1")[0] == "rejected"


def test_the_question_says_when_the_edited_form_is_meant(cli: Cli):
    cli.started("letter", "Dear Ada", run_id="r1")
    _, received = at_terminal(["approve", "r1", "--edit", '"Dearest"'], "n\n")
    assert "approve the edited form of this as ana?" in received
