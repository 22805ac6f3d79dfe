"""Names and numbers that last."""

import pytest

from belay_core.values.numbers import is_safe, runs_ahead
from belay_core.values.text import is_durable, is_name, utf16_units


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "durable"),
    [
        ("a", True),
        ("\ufffd \U0001f9d7 ü", True),
        ("x" * 1_024, True),
        ("x" * 1_025, False),
        ("\U0001f9d7" * 512, True),
        ("\U0001f9d7" * 512 + "x", False),
        ("漢" * 1_024, True),
        ("", False),
        ("a\0", False),
        ("a\ud800", False),
        ("\udc00a", False),
        (b"a", False),
        (None, False),
        (1, False),
        (Name("a"), False),
    ],
)
def test_a_durable_text_is_one_to_1024_units_well_formed_and_without_nul(value, durable):
    assert is_durable(value) is durable


def test_a_name_has_at_most_512_bytes():
    assert is_name("x" * 512)
    assert not is_name("x" * 513)
    assert not is_name("漢" * 171)
    assert not is_name("")


@pytest.mark.parametrize(("text", "units"), [("", 0), ("abc", 3), ("ü漢", 2), ("\U0001f9d7", 2)])
def test_length_is_counted_as_everybody_else_counts_it(text, units):
    assert utf16_units(text) == units


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        (0, True),
        (2**53 - 1, True),
        (2**53, False),
        (-1, False),
        (True, False),
        (1.0, False),
        ("1", False),
        (None, False),
    ],
)
def test_a_safe_number_is_whole_and_read_alike_everywhere(value, safe):
    assert is_safe(value) is safe


def test_a_reading_may_run_exactly_ten_seconds_ahead():
    assert not runs_ahead(15_000, 5_000)
    assert runs_ahead(15_001, 5_000)
    assert not runs_ahead(0, 10**12)
