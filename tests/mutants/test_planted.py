"""Every mutant can be planted: what it changes stands in its file, once."""

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.check import PLANTED

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_planted(mutant):
    text = (ROOT / mutant.file).read_text()
    assert {old: text.count(old) for old, _ in mutant.swaps} == {old: 1 for old, _ in mutant.swaps}
    assert all(old != new for old, new in mutant.swaps)


def test_no_two_mutants_have_one_name():
    assert [name for name, times in Counter(mutant.name for mutant in PLANTED).items() if times > 1] == []
