"""``belay resolve`` and ``belay cancel``."""

import pytest

from tests.cli.commanding import Cli


def orphans(cli: Cli, run: str) -> list[str]:
    return [each["step_key"] for each in cli.json("show", run)["attempts"] if each["state"] == "orphaned"]


def test_a_run_in_review_says_which_words_it_waits_for(cli: Cli):
    cli.started("charges", ["Ada"], run_id="r1")
    (key,) = orphans(cli, "r1")
    document = cli.json("explain", "r1")
    assert document["state"] == "needs_review"
    assert document["ways_out"] == [
        f"belay resolve r1 --step '{key}' --happened RESULT",
        f"belay resolve r1 --step '{key}' --retry",
        "belay resolve r1 --give-up",
    ]


def test_the_one_orphan_needs_no_name(cli: Cli):
    cli.started("charges", ["Ada"], run_id="r1")
    (key,) = orphans(cli, "r1")
    ended = cli("resolve", "r1", "--happened", '{"paid": true}')
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"run r1: step {key} took place, says ana at 2")
    cli.work()
    shown = cli.json("show", "r1")
    assert (shown["run"]["status"], shown["run"]["result"]) == ("completed", 1)
    assert shown["attempts"][-1]["outcome"] == {"paid": True}


def test_several_orphans_have_to_be_named(cli: Cli):
    cli.started("charges", ["Ada", "Bob"], run_id="r1")
    one, other = orphans(cli, "r1")
    ended = cli("resolve", "r1", "--retry")
    assert (ended.code, ended.err) == (2, f"belay: step: several steps are orphaned, name one: {one}, {other}\n")
    reported = cli.json("resolve", "r1", "--step", other, "--happened", "1", "--by", "bob")
    assert (reported["step_key"], reported["resolution"], reported["by"]) == (other, "happened", "bob")
    assert cli.json("resolve", "r1", "--happened", "2")["step_key"] == one
    cli.work()
    assert cli.json("show", "r1")["run"]["result"] == 2


def test_a_step_is_tried_again(cli: Cli):
    cli.started("charges", ["Ada"], run_id="r1")
    reported = cli.json("resolve", "r1", "--retry")
    assert reported["resolution"] == "retry"
    cli.work()
    assert [each["attempt"] for each in cli.json("show", "r1")["attempts"]] == [1, 2]


def test_a_word_that_was_given_is_not_given_again(cli: Cli):
    cli.started("charges", ["Ada"], run_id="r1")
    first = cli.json("resolve", "r1", "--retry")
    ended = cli("resolve", "r1", "--happened", "1", "--by", "bob")
    assert ended.code == 1
    assert ended.err == (
        f"belay: run r1 has its word on step {first['step_key']}: "
        f"ana has said so at {first['resolved_at']}; replace it, or start a worker\n"
    )
    replaced = cli.json("resolve", "r1", "--happened", "1", "--by", "bob", "--replace")
    assert (replaced["resolution"], replaced["by"]) == ("happened", "bob")
    cli.work()
    assert [each["attempt"] for each in cli.json("show", "r1")["attempts"]] == [1]


def test_a_decision_is_replaced_before_a_worker_acts_on_it(cli: Cli):
    cli.started("letter", "Ada", run_id="r1")
    cli.work()
    assert cli("reject", "r1", "--yes").code == 0
    assert cli("approve", "r1", "--yes").code == 1
    assert cli.json("approve", "r1", "--edit", '"Dear Bob"', "--replace", "--by", "bob")["outcome"] == "decided"
    wrong = cli("approve", "r1", "--edit", "5", "--replace", "--by", "bob")
    assert (wrong.code, wrong.err) == (2, "belay: edit: must be text\n")
    assert cli.json("resolve", "r1", "--retry", code=1)["error"]["type"] == "InvalidTransitionError"


@pytest.mark.parametrize("names", [["Ada"], ["Ada", "Bob"]])
def test_a_run_is_given_up_whole(cli: Cli, names: list[str]):
    cli.started("charges", names, run_id="r1")
    assert cli.json("resolve", "r1", "--give-up")["resolution"] == "give_up"
    run = cli.json("show", "r1")["run"]
    assert (run["status"], run["error"]["type"]) == ("failed", "GivenUp")


def test_a_word_nobody_waits_for_is_refused(cli: Cli):
    cli.started("nap", run_id="r1")
    ended = cli("resolve", "r1", "--retry")
    assert (ended.code, ended.err) == (
        1,
        "belay: run r1 does not wait for this word of an operator; its state is timer, and explain says more\n",
    )
    assert cli("resolve", "r1", "--step", "nix#1", "--retry").code == 1
    assert cli("resolve", "nix", "--retry").err == "belay: there is no run nix\n"


def test_a_run_is_asked_to_stop(cli: Cli):
    cli.started("nap", run_id="r1")
    ended = cli("cancel", "r1")
    assert (ended.code, ended.out, ended.err) == (0, "run r1 is asked to stop\n", "")
    reported = cli.json("cancel", "r1")
    assert reported["outcome"] == "already_requested"
    assert cli("cancel", "r1").out == f"run r1 was asked to stop before, at {reported['requested_at']}\n"
    cli.work()
    assert cli.json("show", "r1")["run"]["status"] == "cancelled"
    assert cli.json("cancel", "r1") == {"run_id": "r1", "outcome": "over", "status": "cancelled"}


def test_who_asked_a_run_to_stop_is_kept(cli: Cli):
    cli.started("nap", run_id="r1")
    assert cli.json("cancel", "r1", "--by", "bob")["outcome"] == "cancel_requested"
    (asked,) = [each for each in cli.json("show", "r1")["journal"] if each["kind"] == "cancel_requested"]
    assert asked["facts"]["by"] == "bob"


def test_a_run_that_is_over_is_not_stopped(cli: Cli):
    cli.started("ping", run_id="r1")
    ended = cli("cancel", "r1")
    assert (ended.code, ended.err) == (1, "belay: run r1 is over already: it is completed\n")
    assert cli.json("cancel", "r1", code=1) == {"run_id": "r1", "outcome": "over", "status": "completed"}


def test_where_several_decisions_could_be_replaced_the_gate_has_to_be_named(cli: Cli):
    cli.started("letters", ["Ada", "Bob"], run_id="r1")
    cli.work()
    asked = [each["step_key"] for each in cli.json("show", "r1")["approvals"]]
    assert cli("reject", "r1", "--step", asked[0], "--yes").code == 0
    ended = cli("approve", "r1", "--replace", "--yes")
    assert (ended.code, "several wait, name one" in ended.err) == (2, True)
    assert cli("approve", "r1", "--replace", "--step", asked[0], "--yes").code == 0
