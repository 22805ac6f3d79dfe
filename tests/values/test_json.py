"""What counts as a JSON value, and that it comes back equal."""

import json as reference
import math
import tracemalloc
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belay_core.values import json

texts = st.text(st.characters(codec="utf-8"))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)


def nested(depth, innermost):
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


@given(documents, st.booleans(), st.booleans())
def test_a_writer_writes_what_the_library_would(value, ensure_ascii, sort_keys):
    given = {"ensure_ascii": ensure_ascii, "sort_keys": sort_keys}
    assert json.writer(**given)(value) == reference.dumps(value, separators=(",", ":"), **given)


def test_a_number_that_is_not_finite_is_written_only_where_it_is_allowed():
    assert json.writer(allow_nan=True)([math.inf, -math.inf, math.nan]) == "[Infinity,-Infinity,NaN]"
    with pytest.raises(ValueError, match="not JSON compliant"):
        json.writer()([math.inf])


@given(documents)
def test_whatever_is_admitted_comes_back_equal_in_value_and_type(value):
    assert json.complaint(value) is None
    text = json.encode(value)
    again = json.decode(text)
    assert repr(again) == repr(value)
    assert json.text_complaint(text) is None
    assert json.same_json(again, value)


@given(documents)
def test_the_encoding_is_compact_json_as_everybody_writes_it(value):
    assert json.encode(value) == reference.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(documents, documents)
def test_the_canonical_form_is_equal_exactly_for_equal_values(one, other):
    assert (json.canonical(one) == json.canonical(other)) is json.same_json(one, other)


@given(documents)
def test_the_size_is_that_of_the_encoding(value):
    size = len(json.encode(value).encode())
    assert json.complaint(value, max_bytes=size) is None
    assert json.complaint(value, max_bytes=size - 1) == "exceeds the JSON byte limit"


@dataclass
class Point:
    x: int = 1


class Text(str):
    __slots__ = ()


class Names(dict):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (nested(128, 0), None),
        (nested(129, 0), "exceeds the maximum JSON depth of 128"),
        (nested(128, []), None),
        (nested(129, []), "exceeds the maximum JSON depth of 128"),
        (nested(5_000, 0), "exceeds the maximum JSON depth of 128"),
        ([0] * 99_999, None),
        ([0] * 100_000, "contains more than 100000 JSON values"),
        ([0] * 100_001, "exceeds the JSON members limit"),
        ([[0] * 60_000, [0] * 60_000], "exceeds the JSON members limit"),
        (math.nan, "contains a non-finite number"),
        ([-math.inf], "contains a non-finite number"),
        (2**53 - 1, None),
        (-(2**53), "contains an integer beyond 2^53 - 1"),
        ("\ud800", "contains unbounded or ill-formed text"),
        (["\U0001f9d7\0"], None),
        ({"\udfff": 1}, "contains an unbounded or ill-formed object key"),
        ({1: 2}, "contains an unbounded or ill-formed object key"),
        ({None: 2}, "contains an unbounded or ill-formed object key"),
        ({Text("a"): 2}, "contains an unbounded or ill-formed object key"),
        (OrderedDict(a=1), "contains a non-plain object"),
        (Names(a=1), "contains a non-plain object"),
        (UserDict(a=1), "contains a non-plain object"),
        ((1, 2), "contains a non-JSON tuple"),
        ([{1}], "contains a non-JSON set"),
        (b"x", "contains a non-JSON bytes"),
        (Decimal(1), "contains a non-JSON Decimal"),
        (Point(), "contains a non-JSON Point"),
        (Text("a"), "contains a non-JSON Text"),
        (print, "contains a non-JSON builtin_function_or_method"),
    ],
)
def test_what_is_no_data_is_refused_by_a_fixed_phrase(value, complaint):
    assert json.complaint(value) == complaint


def test_a_cycle_is_refused_and_a_shared_part_is_not():
    loop: dict[str, object] = {}
    loop["a"] = [loop]
    assert json.complaint(loop) == "contains a cycle"
    shared = [1]
    assert json.complaint([shared, {"a": shared}, shared]) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (' {"b" : 1e2,\n"a":12345678901234567890} ', None),
        ("", "must be non-empty JSON text"),
        (None, "must be non-empty JSON text"),
        (b"{}", "must be non-empty JSON text"),
        ({}, "must be non-empty JSON text"),
        ("{", "must be valid JSON text"),
        ("1 2", "must be valid JSON text"),
        ("NaN", "must be valid JSON text"),
        ("-Infinity", "must be valid JSON text"),
        ("\ufeff1", "must be valid JSON text"),
        ('"\t"', "must be valid JSON text"),
        ("9" * 5_000, "must be valid JSON text"),
        ("[" * 5_000 + "]" * 5_000, "must be valid JSON text"),
        ("[" * 129 + "0" + "]" * 129, "exceeds the maximum JSON depth of 128"),
        ("1e999", "contains a non-finite number"),
        ('"\\ud800"', "contains unbounded or ill-formed text"),
        ('"\ud800"', "contains unbounded or ill-formed text"),
        ('{"\\udc00":1}', "contains an unbounded or ill-formed object key"),
        ('"\\ud83e\\uddd7"', None),
        ('"\\u0000"', None),
    ],
)
def test_a_text_is_kept_only_if_everybody_can_read_it(text, complaint):
    assert json.text_complaint(text) == complaint


def test_with_a_limit_both_the_compact_size_and_that_of_the_text_must_fit():
    assert json.text_complaint("[ 1 ]", max_bytes=5) is None
    assert json.text_complaint("[ 1 ]", max_bytes=4) == "exceeds the JSON byte limit"
    assert json.text_complaint('"\\u0041"', max_bytes=8) is None
    assert json.text_complaint("1e2", max_bytes=4) == "exceeds the JSON byte limit"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NaN", "contains a non-finite number"),
        ("[1e999]", "contains a non-finite number"),
        ("secret", "must be valid JSON text"),
        ("[" * 5_000, "must be valid JSON text"),
        ("9" * 5_000, "must be valid JSON text"),
        ('{"a":1,"a":2}', "contains the same object key twice"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_without_repeating_it(text, said):
    with pytest.raises(json.JsonRefused, match=said) as refused:
        json.decode(text, unique_keys=True)
    assert (refused.value.__context__, refused.value.__cause__) == (None, None)


def test_a_member_given_twice_counts_once_unless_people_wrote_it():
    assert json.decode('{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": [1, {"b": 2}], "c": 3}, {"c": 3.0, "a": [1.0, {"b": 2}]}, True),
        (True, 1, False),
        (0, False, False),
        (None, False, False),
        (-0.0, 0, True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": None}, {}, False),
        ({"a": 1}, {"b": 1}, False),
        ([], {}, False),
        ("1", 1, False),
        ("é", "e\u0301", False),
    ],
)
def test_equality_is_that_of_json(one, other, same):
    assert json.same_json(one, other) is same
    assert (json.canonical(one) == json.canonical(other)) is same


@settings(deadline=None, max_examples=20)
@given(documents)
def test_checking_a_value_leaves_it_as_it_was(value):
    before = repr(value)
    json.complaint(value)
    json.canonical(value)
    assert repr(value) == before


class Number(int):
    pass


odd = st.sampled_from(
    [-0.0, math.nan, math.inf, 5e-324, 2**53 - 1, 2**53, -(2**53), 10**400, "\ud800", "\0", "\x1f" * 3_000, "é" * 9_000]
    + ["x" * size for size in (16_382, 16_383, 16_384)]
    + [nested(depth, []) for depth in (2, 3, 4, 5)]
    + [[None] * size for size in (63, 64, 65)]
    + [Text("a"), Number(1), True, (1,), {1}, b"x", object(), OrderedDict(a=1), UserDict(), Decimal(1), math]
)
odd_keys = st.sampled_from([1, None, True, 1.5, ("a",), b"a", Text("a"), "\ud800", "\0", "", "x" * 16_400]) | texts
hostile = st.recursive(
    odd | scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_keys, inner, max_size=4)
)


@settings(max_examples=1_000, deadline=None)
@given(hostile, st.sampled_from([1, 2, 4, 8, 64, 4_096, 1024 * 1024]))
def test_what_is_admitted_quickly_is_what_the_walk_admits_in_the_same_words(value, most):
    text = json.admitted(value, max_bytes=most)
    if text is not None:
        assert json.complaint(value, max_bytes=most) is None
        assert text == json.encode(value)


@pytest.mark.parametrize(
    "handle",
    [lambda: [["x" * 2**20] * 50] * 4, lambda: [{"x" * 2**20: 1}] * 200, lambda: [[["x" * 20] * 64] * 64] * 64],
    ids=["a text", "a key", "a list"],
)
def test_nothing_is_written_of_a_value_that_holds_something_large_many_times(handle):
    value = handle()
    tracemalloc.start()
    try:
        assert json.admitted(value, max_bytes=2**20) is None
        assert json.complaint(value, max_bytes=2**20) is not None
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
