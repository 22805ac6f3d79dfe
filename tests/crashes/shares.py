"""A share of an enumeration: every so manieth point, beginning at another one from day to day."""

import argparse
import time

_DAY = 86_400


class Share:
    """``1/8`` takes every eighth point; ``seed`` says which of the eight kinds."""

    def __init__(self, text: str = "1/1", seed: int | None = None) -> None:
        taken, _, parts = text.partition("/")
        self.taken, self.parts = int(taken), int(parts or "1")
        if not 0 < self.taken <= self.parts:
            raise argparse.ArgumentTypeError(f"{text} is no share: 1/8 is one")
        self.seed = int(time.time() // _DAY) if seed is None else seed
        self._met = 0

    def has(self) -> bool:
        """Whether the next point falls into the share."""
        self._met += 1
        return (self._met + self.seed) % self.parts < self.taken


def add_share(parser: argparse.ArgumentParser) -> None:
    """The options by which a share is chosen; what is parsed has it as ``share``."""
    parser.add_argument("--share", type=Share, default=Share(), metavar="1/8", help="take every eighth point only")
    parser.add_argument("--seed", type=int, help="which points these are; without it they change every day")


def share_of(given: argparse.Namespace) -> Share:
    """The share that was asked for."""
    share: Share = given.share
    return Share(f"{share.taken}/{share.parts}", given.seed)
