"""Figures of what happens to runs beside their steps: decisions, kills, takeovers, growth, memory."""

import subprocess
import sys

from tests.bench.apart import ROOT
from tests.bench.filling import finished, pending
from tests.bench.ground import Figures, Ground
from tests.bench.speed import KINDS

_IMPORTS = """
import importlib, sys
for name in ("belay_core", *sys.argv[1:]):
    importlib.import_module(name)
from tests.bench.metering import rss_mib
print(rss_mib())
"""
_DRIVERS = {
    "postgres": ("belay_core.worker", "belay_core.client", "belay_drivers.postgres", "asyncpg"),
    "sqlite": ("belay_core.worker", "belay_core.client", "belay_drivers.sqlite", "aiosqlite"),
}


def decisions(ground: Ground) -> Figures:
    """From a decision to the step after it, the run having been parked."""
    figures: Figures = {}
    ways = {
        "same_process": ("", ()),
        "other_process": ("", ("--elsewhere",)),
        # Behind a pooler nothing is notified: the worker has to look.
        "polling": ("?pooler=transaction", ("--elsewhere",)),
    }
    for name, (query, reported) in ways.items():
        with ground.database() as url:
            number = 3 if ground.scale.quick else 30
            done = ground.run("waiting", "--url", url + query, "--decisions", number, *reported)
        figures[f"decision_{name}_p50_ms"] = done["next_step_p50_ms"]
        figures[f"decision_{name}_p99_ms"] = done["next_step_p99_ms"]
    return figures


def kills(ground: Ground) -> Figures:
    """From the end of a worker to its steps' beginning in another process of the same machine."""
    figures: Figures = {}
    ways = {"kill": ("--kills", 1 if ground.scale.quick else 2)}
    if ground.scale.long:
        ways["lapse"] = ("--kills", 1)
    for name, reported in ways.items():
        with ground.database() as url:
            done = ground.run("resuming", "--url", url, *reported, *(("--frozen",) if name == "lapse" else ()))
        figures[f"{name}_to_resumed_p50_ms"] = done["resumed_p50_ms"]
        figures[f"{name}_to_resumed_p99_ms"] = done["resumed_p99_ms"]
    return figures


def takeover(ground: Ground) -> Figures:
    """A thousand runs change hands, once it is allowed."""
    runs = ground.scale.some(1000)
    with ground.database() as url:
        return {f"takeover_{runs}_ms": ground.run("resuming", "--url", url, "--takeover", runs)["takeover_ms"]}


def history(ground: Ground) -> Figures:
    """One more step, and the replay, of runs with few attempts and with many."""
    figures: Figures = {}
    lengths = (10, 1000) if ground.scale.quick else (10, 100, 1000, 10_000)
    for kind, reported in KINDS.items():
        with ground.database() as url:
            lasting = ("--seconds", ground.scale.seconds)
            done = ground.run("history", "--url", url, "--lengths", *lengths, *lasting, *reported)["lengths"]
        for length in lengths:
            figures[f"{kind}history_{length}_step_p50_ms"] = done[str(length)]["step_p50_ms"]
            if length > lengths[0]:
                ratio = done[str(length)]["step_p50_ms"] / done[str(lengths[0])]["step_p50_ms"]
                figures[f"{kind}history_{length}_step_ratio"] = ratio
            if not kind:
                figures[f"history_{length}_replay_ms"] = done[str(length)]["replay_ms"]
    return figures


def growth(ground: Ground) -> Figures:
    """Steps beside very many finished runs, before and after the tables are analysed, against an empty database."""
    figures: Figures = {}
    many = [10_000] if ground.scale.quick else [100_000, *([1_000_000] if ground.scale.long else [])]
    for kind, reported in KINDS.items():
        if kind and ground.scale.quick:
            continue
        sides = (50,) if kind or ground.scale.quick else (1, 50)
        with ground.database() as url:
            empty = {each: _step_ms(ground, url, each, reported) for each in sides}
        for number in (1000, *many) if ground.first and not (kind or ground.scale.quick) else many:
            with ground.filled(finished(number)) as url:
                for state in ("", "analysed_"):
                    if state:
                        ground.server.ask("ANALYZE", url)
                    for each, alone in empty.items():
                        ratio = _step_ms(ground, url, each, reported) / alone
                        figures[f"{kind}{state}finished_{number}_step_ratio_{each}"] = ratio
    return figures


def _step_ms(ground: Ground, url: str, concurrency: int, reported: tuple[str, ...]) -> float:
    """What a step takes of the machine's time: alone its median, side by side the time for each."""
    done = ground.loop(url, concurrency, *reported)
    taken: float = done["step_p50_ms"] if concurrency == 1 else 1e3 / done["steps_per_s"]
    return taken


def claims(ground: Ground) -> Figures:
    """Fifty runs claimed in one go, with very many pending, before and after the tables are analysed."""
    figures: Figures = {}
    for number in [10_000] if ground.scale.quick else [100_000, *([1_000_000] if ground.scale.long else [])]:
        for state in ("", "analysed_"):
            # Each time anew: what was claimed before leaves traces in the index.
            with ground.filled(pending(number)) as url:
                if state:
                    ground.server.ask("ANALYZE", url)
                done = ground.run("resuming", "--url", url, "--claims", "--seconds", ground.scale.seconds)
            figures[f"{state}claims_{number}_pending_per_s"] = done["claims_per_s"]
            figures[f"{state}claims_{number}_pending_p50_ms"] = done["claim_p50_ms"]
    return figures


def memory(ground: Ground) -> Figures:
    """Memory after importing belay with a driver, and with very many runs parked; taken once."""
    figures: Figures = {}
    for name, modules in _DRIVERS.items():
        command = [sys.executable, "-c", _IMPORTS, *modules]
        reported = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout
        figures[f"memory_import_{name}_mib"] = float(reported)
    number = ground.scale.some(10_000) // (10 if ground.scale.quick else 1)
    if ground.first:
        with ground.database() as url:
            done = ground.run("waiting", "--url", url, "--parked", number, patience=240)
        figures[f"memory_{number}_parked_mib"] = done["rss_mib"]
        figures[f"kib_per_parked_run_of_{number}"] = done["kib_per_parked_run"]
        figures["parked_per_s"] = done["parked_per_s"]
    return figures
