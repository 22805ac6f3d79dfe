"""Settings of Python's garbage collector for a process that executes runs."""

import gc
from typing import Final

_YOUNG: Final = 10_000
"""New objects after which the collector runs; Python 3.11's own figure is 700."""


def tune_gc() -> None:
    """Make the collector run rarely, and skip all objects that exist now; a collector that runs as rarely is unchanged.

    A collection stops all runs of the process for a while, and finds nothing of belay's own: the objects of a run are
    freed when it ends or is parked (decision 27). The setting is process-wide, so ``belay worker`` calls this and a
    ``Worker`` does not; call it before you enter a worker in a process that does nothing else.
    """
    gc.collect()
    gc.freeze()
    if 0 < gc.get_threshold()[0] < _YOUNG:
        gc.set_threshold(_YOUNG)
