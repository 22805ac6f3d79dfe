"""What ``belay worker`` tells the collector, in a process of its own: it holds for all of it."""

import subprocess
import sys

import pytest

PROGRAM = """
import gc
from belay_core.gc_tuning import tune_gc
gc.set_threshold({before})
tune_gc()
print(*gc.get_threshold(), gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("700, 10, 10", "10000 10 10 True"),
        ("2_000, 20, 100", "10000 20 100 True"),
        ("10_000, 5, 5", "10000 5 5 True"),
        ("50_000, 20, 100", "50000 20 100 True"),
        ("0, 10, 10", "0 10 10 True"),
    ],
)
def test_a_collector_that_looks_as_seldom_or_never_is_left_alone(before, after):
    reported = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=False
    )
    assert (reported.stdout.strip(), reported.stderr) == (after, "")
