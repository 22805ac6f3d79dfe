"""What the figures were taken on, in general words."""

import os
import platform
import sqlite3
import subprocess
import time
from pathlib import Path
from statistics import median

from tests.bench.peers.entries import PEERS_PYTHON
from tests.bench.peers.figures import Figures

SYNCS = 100
NAMES = ("dbos", "absurd-sdk", "langgraph-checkpoint-postgres", "restate-sdk")
"""The peers whose versions are told."""


def described(folder: Path) -> Figures:
    """Cores, memory in GiB, milliseconds of a disk sync in this folder, and versions of what is the same for all."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "cores": float(os.cpu_count() or 1),
        "memory_gib": round(memory, 1),
        "disk_sync_ms": round(disk_sync(folder) * 1e3, 3),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "measured_on": time.strftime("%Y-%m-%d", time.gmtime()),
        **{f"version_{name}": version for name, version in versions().items()},
    }


def disk_sync(folder: Path) -> float:
    """Seconds to have one page written and on the disk; the median of a hundred."""
    taken = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(8192))
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken)


def versions() -> dict[str, str]:
    """Of the peers that are installed."""
    if not PEERS_PYTHON.exists():
        return {}
    asked = "import importlib.metadata, sys; print(*map(importlib.metadata.version, sys.argv[1:]))"
    reported = subprocess.run([PEERS_PYTHON, "-c", asked, *NAMES], check=True, capture_output=True, text=True).stdout
    return dict(zip(NAMES, reported.split(), strict=True))
