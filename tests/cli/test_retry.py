"""``belay retry``."""

import pytest

from tests.cli.commanding import Cli


def test_a_failed_run_goes_on_and_its_steps_are_named(cli: Cli):
    cli.started("broken", "no rope", run_id="r1")
    ended = cli("retry", "r1", "--reason", "mended")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("run r1 goes on from its records, and tries spoil#1 again, says ana at 2")
    cli.work()
    shown = cli.json("show", "r1")
    assert (shown["run"]["status"], len(shown["attempts"])) == ("failed", 2)
    [entry] = [each for each in shown["journal"] if each["kind"] == "belay.retried"]
    assert (entry["facts"]["by"], entry["facts"]["reason"]) == ("ana", "mended")
    reported = cli.json("retry", "r1", "--by", "bob")
    assert (reported["run_id"], reported["by"], reported["reason"]) == ("r1", "bob", None)
    assert reported["steps"] == ["spoil#1"]


@pytest.mark.parametrize("run", ["r1", "nope"])
def test_no_other_run_is_retried(cli: Cli, run: str):
    cli.started("letter", "Dear", run_id="r1")
    ended = cli("retry", run)
    said = {
        "r1": "belay: run r1 is suspended: only a failed or cancelled run of a workflow can be retried\n",
        "nope": "belay: there is no run nope\n",
    }
    assert (ended.code, ended.err) == (1, said[run])
