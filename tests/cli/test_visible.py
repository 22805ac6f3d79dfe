"""Nothing that is stored can drive, reorder or hide in what the command writes."""

import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from belay_core.cli import output
from belay_core.cli.visible_text import visible
from tests.cli.commanding import Cli, Ended, at_terminal, shell

CLI = Path(output.__file__).parent
OBEYED = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07 \u202eevil\u2066 \x9b31m \x7f \u200bzero \r\n\u2028 tag\U000e0041 \u3164\u2800\ufe0f\xa0."
)


def every_character() -> Iterator[str]:
    yield from map(chr, range(sys.maxunicode + 1))


def test_every_character_that_drives_or_hides_is_spelled_out():
    shown_as_they_are = [
        char for char in every_character() if unicodedata.category(char) in OBEYED and visible(char) == char
    ]
    assert shown_as_they_are == []


def test_what_is_spelled_out_says_which_character_it_was():
    spelled = [char for char in every_character() if visible(char) != char]
    assert len(spelled) > 137_698
    assert all(visible(char) == f"<U+{ord(char):04X}>" for char in spelled)


@pytest.mark.parametrize(
    "char",
    ["\u034f", "\u115f", "\u1160", "\u17b4", "\u180b", "\u2800", "\u3164", "\ufe0f", "\uffa0", "\U000e0100", "\xa0"],
)
def test_blanks_that_count_as_letters_marks_or_symbols_are_spelled_out(char: str):
    assert visible(f"a{char}b") == f"a<U+{ord(char):04X}>b"


@pytest.mark.parametrize(
    "text", ["", "plain text", "naïve café", "日本語", "Ελληνικά", "عربي", "e\u0301", "🧗", "\\u001b"]
)
def test_ordinary_text_is_left_alone(text: str):
    assert visible(text) == text


def test_one_module_alone_writes_and_asks():
    writes = re.compile(r"\bprint\(|\becho\(|\bconfirm\(|\bprompt\(|\bsecho\(|stdout\.write|stderr\.write|\.input\(")
    modules = {str(path.relative_to(CLI)) for path in CLI.rglob("*.py") if writes.search(path.read_text())}
    # The entry point writes one fixed line, where click is missing and with it everything else.
    assert modules == {"output.py", "__init__.py"}


def harmless(text: str) -> bool:
    """Whether a terminal shows this text and does nothing else."""
    return all(visible(line) == line for line in text.split("\n"))


def hostile_run(cli: Cli) -> str:
    """A run in which every text that somebody may choose is hostile, up to its gate."""
    run_id = f"run{HOSTILE}"
    cli.json("start", "--key", f"key{HOSTILE}", "--run-id", run_id, "letter", f'"{"".join(map(escaped, HOSTILE))}"')
    cli.work()
    return run_id


def escaped(char: str) -> str:
    code = ord(char)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def everything_about(cli: Cli, run_id: str, *options: str) -> Iterator[Ended]:
    """Every command that shows something of a run, and at the end those that change it."""
    yield cli("runs", *options)
    yield cli("show", run_id, *options)
    yield cli("explain", run_id, *options)
    yield cli("approvals", run_id, *options)
    yield cli("resolve", run_id, "--retry", *options)
    yield cli("approve", run_id, "--gate", "another\x1b[2J", *options)
    yield cli("approve", run_id, "--reason", HOSTILE, "--by", f"eve{HOSTILE}", *options)
    yield cli("reject", run_id, *options)
    cli.work()
    yield cli("show", run_id, *options)
    yield cli("cancel", run_id, *options)
    yield cli("show", f"no such {HOSTILE}", *options)
    yield cli("start", "ping", "--key", f"no such {HOSTILE}", "--run-id", f"another {HOSTILE}", *options)
    yield cli(f"no such {HOSTILE}", *options)
    yield cli("runs", f"--no-such-{HOSTILE}", *options)


def test_stored_text_does_nothing_to_a_terminal(cli: Cli):
    run_id = hostile_run(cli)
    answers = list(everything_about(cli, run_id))
    assert [each for each in answers if not harmless(each.out + each.err)] == []
    # click spells out by itself what it quotes.
    assert [each for each in answers if not re.search(r"<U\+001B>|\\x1b", each.out + each.err)] == []


def test_stored_text_does_nothing_to_a_terminal_in_json_either(cli: Cli):
    run_id = hostile_run(cli)
    for answer in everything_about(cli, run_id, "--json"):
        assert re.fullmatch(r"[ -~]*\n", answer.out), answer
        assert answer.document


def test_json_gives_stored_text_back_unchanged(cli: Cli):
    run_id = hostile_run(cli)
    assert cli.json("approvals", run_id)[0]["subject"] == HOSTILE
    assert cli.json("show", run_id)["run"]["run_id"] == run_id


def test_a_terminal_of_few_characters_ends_no_command_half_way(cli: Cli):
    cli.start("greet", "日本", run_id="r1")
    ended = shell("show", "r1", env={"PYTHONIOENCODING": "latin-1"})
    assert (ended.code, ended.err) == (0, "")
    assert 'input     "\\u65e5\\u672c"' in ended.out


def test_an_exception_with_hostile_text_is_shown_harmlessly(cli: Cli):
    run_id = cli.started("broken", HOSTILE)
    for answer in (cli("show", run_id), cli("explain", run_id), cli("start", "broken", '"x"')):
        assert harmless(answer.out + answer.err)
    assert "<U+001B>[2J" in cli("show", run_id).out


def test_a_table_at_a_terminal_is_drawn_without_obeying_what_it_holds(cli: Cli):
    run_id = hostile_run(cli)
    for arguments in (["runs"], ["show", run_id], ["approvals"]):
        code, received = at_terminal(arguments, columns=400)
        assert code == 0
        # Bold heads are all that is drawn with control sequences.
        drawn = re.sub(r"\x1b\[[01]m", "", received).replace("\r\n", "\n")
        assert harmless(drawn)
        assert "<U+001B>[2J" in drawn
