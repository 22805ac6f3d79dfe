"""What a mutant is: one defect, planted in one place, and the tests that have to notice it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect: in ``file`` each ``old`` text, which stands there exactly once, is replaced by its ``new`` one.

    ``tests`` names folders or files, and ``chosen`` those of their tests that are run, as pytest's ``-k`` takes it.
    """

    name: str
    file: str
    swaps: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]
    chosen: str


def mutant(
    name: str, file: str, *swaps: tuple[str, str], by: str, tests: tuple[str, ...] = ("tests/drivers",)
) -> Mutant:
    """A mutant that tests of the drivers have to notice, unless others are named."""
    return Mutant(name, file, swaps, tests, by)
