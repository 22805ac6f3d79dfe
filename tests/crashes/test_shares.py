"""Shares of an enumeration: together they are the whole, and each point is in one of them."""

import argparse

import pytest

from tests.crashes.shares import Share, add_share, share_of


def taken(share: Share) -> list[int]:
    return [point for point in range(24) if share.has()]


def test_all_seeds_together_take_every_point_once():
    parts = [taken(Share("1/8", seed)) for seed in range(8)]
    assert sorted(point for part in parts for point in part) == list(range(24))
    assert all(len(part) == 3 for part in parts)


def test_several_parts_are_taken_at_once():
    assert len(taken(Share("3/8", 0))) == 9
    assert taken(Share()) == list(range(24))


@pytest.mark.parametrize("text", ["0/8", "9/8"])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no share"):
        Share(text)


def test_the_seed_is_taken_from_the_options():
    parser = argparse.ArgumentParser()
    add_share(parser)
    given = parser.parse_args(["--share", "1/8", "--seed", "3"])
    assert taken(share_of(given)) == taken(Share("1/8", 3))
