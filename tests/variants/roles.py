"""``python -m tests.variants.roles``: the drivers' tests on PostgreSQL with the rights of a worker and no more."""

import os
import sys

USUAL = ("-k", "postgres", "tests/drivers")
UNFIT: tuple[str, ...] = ()


if __name__ == "__main__":
    from tests.variants.choosing import run_tests

    left_out = [f"--deselect={name}" for name in UNFIT]
    sys.exit(run_tests(["-p", "tests.variants.least_rights", *left_out, *sys.argv[1:]], USUAL, os.environ))
