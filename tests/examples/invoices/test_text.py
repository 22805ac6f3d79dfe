"""Foreign text, made visible and made into names."""

import pytest

from belay_invoices.text import one_line, slug, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Größe", "Größe"),
        ("a\u202eb", "a<U+202E>b"),
        ("a\u200bb", "a<U+200B>b"),
        ("a\x9bb", "a<U+009B>b"),
        ("a\u3164b", "a<U+3164>b"),
        ("a\ufe0fb", "a<U+FE0F>b"),
        ("\U000e0041", "<U+E0041>"),
    ],
)
def test_nothing_stays_hidden(text: str, expected: str):
    assert visible(text) == expected


def test_slugs_are_never_empty_and_never_long():
    assert slug("Straße № 7 / ½") == "strasse-no-7-1-2"
    assert slug("ΩΨ") == "x"
    assert len(slug("a b" * 100)) <= 40


def test_long_texts_are_cut_with_a_count():
    assert one_line(" a\n b\tc ") == "a b c"
    assert one_line("x" * 12, 10) == f"{'x' * 10} … (2 more)"
