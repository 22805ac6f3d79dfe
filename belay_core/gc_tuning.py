"""Telling Python's garbage collector what is known of a process that executes runs."""

import gc
from typing import Final

_YOUNG: Final = 10_000
"""New objects after which the collector looks at them; Python 3.11's own figure is 700."""


def tune_gc() -> None:
    """Have the collector look seldom, and never at what is loaded by now; one that looks as seldom is left alone.

    A look stops all runs of the process for a while, and finds nothing of belay's own: what a run has made is gone
    when it ends or is parked (decision 27). It holds for the whole process, so ``belay worker`` calls it and a
    ``Worker`` does not; call it before you enter one in a process that is there for that.
    """
    gc.collect()
    gc.freeze()
    if 0 < gc.get_threshold()[0] < _YOUNG:
        gc.set_threshold(_YOUNG)
