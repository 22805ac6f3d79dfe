"""Every state there is, the nearest first."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.model.protocol import OVER, Lease, Run
from tests.model.world import IDLE, Broken, Setting, Statement, Truth, Worker, World, beginning, moves


class Explored(NamedTuple):
    """What was found: how many states and moves there are, or how a promise is broken."""

    states: int
    moves: int
    depth: int
    broken: str | None = None
    path: tuple[str, ...] = ()
    """The moves that lead there, as few as possible."""


def explore(setting: Setting) -> Explored:
    """Follow every move from the beginning, breadth first, until a promise breaks or nothing is new."""
    first = canonical(setting, beginning(setting))
    came: dict[World, tuple[World, str] | None] = {first: None}
    depths = {first: 0}
    waiting = deque([first])
    followed = 0
    while waiting:
        world = waiting.popleft()
        last = ""
        try:
            for name, after in moves(setting, world):
                last = name
                if setting.failover and not within(setting, after):
                    continue
                followed += 1
                known = canonical(setting, after)
                if known not in came:
                    came[known] = (world, name)
                    depths[known] = depths[world] + 1
                    waiting.append(known)
        except Broken as broken:
            path = (*_path(came, world), f"(after {last or 'nothing'}:) {broken}")
            return Explored(len(came), followed, depths[world], str(broken), path)
    depth = max(depths.values())
    stuck = next(_stuck(setting, came), None)
    if stuck is not None and not setting.failover:
        return Explored(len(came), followed, depth, "a run cannot be finished any more", (*_path(came, stuck),))
    return Explored(len(came), followed, depth)


def _path(came: dict[World, tuple[World, str] | None], world: World) -> Iterable[str]:
    names: list[str] = []
    while (step := came[world]) is not None:
        world, name = step
        names.append(name)
    return reversed(names)


def _stuck(setting: Setting, worlds: Iterable[World]) -> Iterator[World]:
    """Worlds whose run nobody could finish any more, if all who work on it hung for ever."""
    finished: dict[Truth, bool] = {}
    for world in worlds:
        truth = canonical(setting, World(world.truth, (IDLE,) * len(world.workers))).truth
        if truth not in finished:
            finished[truth] = _can_finish(setting, truth)
        if not finished[truth]:
            yield world


def _can_finish(setting: Setting, truth: Truth) -> bool:
    alone = setting._replace(late=False, deaths=False)
    last = f"worker {len(setting.processes)} "
    start = World(truth, (IDLE,) * len(setting.processes))
    seen, waiting = {start}, [start]
    while waiting:
        world = waiting.pop()
        if world.truth.run.status == OVER:
            return True
        for name, after in moves(alone, world):
            if name.startswith((last, "the owner is silent")) and "lost" not in name:
                known = canonical(alone, after)
                if known not in seen:
                    seen.add(known)
                    waiting.append(known)
    return False


# ---------------------------------------------------------------- one form for what is the same


def canonical(setting: Setting, world: World) -> World:
    """The world with labels given anew, counts told from those of the row, and like workers in one order.

    Nonces and acquisitions are only compared for equality, so their names do not matter; counts are compared with
    the row's or its predecessor's, so it does not matter how far a former owner is behind. That makes the number of
    states finite though the number of takeovers is not.
    """
    form = _Form(setting, world)
    workers = tuple(form.worker(each) for each in world.workers)
    wire = form.statement(world.wire)
    if len(workers) == 3 and _order(workers[1]) < _order(workers[0]):
        workers = (workers[1], workers[0], workers[2])
        if wire is not None and wire.waiting in (0, 1):
            wire = wire._replace(waiting=1 - wire.waiting)
    return World(form.row, workers, wire, form.replica)


def _order(worker: Worker) -> str:
    return repr(worker)


class _Form:
    """The names of one world."""

    def __init__(self, setting: Setting, world: World) -> None:
        run = world.truth.run
        self._names: dict[Any, int] = {None: 0}
        self._leases: dict[int, int] = {0: 0}
        self._exact = setting.failover
        self._base = (run.epoch, run.seq, world.truth.writes)
        if self._exact:
            self._base = tuple(map(min, zip(*_counts(world), strict=True)))
        self.row = self.truth(world.truth)
        self.replica = None if world.replica is None else self.truth(world.replica)

    def truth(self, truth: Truth) -> Truth:
        run = truth.run
        epoch, seq, writes = self._base
        here = Run(run.status, self._name(run.owner), run.epoch - epoch, run.seq - seq, self._name(run.last), *run[5:])
        return Truth(here, self._lease(truth.lease), truth.gone, truth.writes - writes)

    def worker(self, worker: Worker) -> Worker:
        if worker is IDLE or worker.phase == "idle":
            return IDLE
        return worker._replace(
            held=self._held(worker.held),
            lease=self._lease(worker.lease),
            basis=self._behind(worker.basis - self._base[2], -1) if worker.held else 0,
            nonce=self._name(worker.nonce),
            evidence=self._evidence(worker.evidence),
        )

    def statement(self, sent: Statement | None) -> Statement | None:
        if sent is None:
            return None
        return sent._replace(
            held=self._held(sent.held),
            lease=self._lease(sent.lease),
            basis=self._behind(sent.basis - self._base[2], -1) if sent.held and sent.kind != "renew" else 0,
            nonce=self._name(sent.nonce),
            evidence=self._evidence(sent.evidence),
        )

    def _held(self, held: Lease | None) -> Lease | None:
        if held is None:
            return None
        epoch = self._behind(held.epoch - self._base[0], -1)
        return Lease(self._name(held.nonce), epoch, self._behind(held.seq - self._base[1], -2))  # type: ignore[arg-type]

    def _evidence(self, evidence: Any) -> Any:
        return None if evidence is None else evidence._replace(nonce=self._name(evidence.nonce))

    def _behind(self, by: int, most: int) -> int:
        return by if self._exact else max(by, most)

    def _name(self, nonce: Any) -> Any:
        if nonce is None or isinstance(nonce, str):
            return nonce
        return self._names.setdefault(nonce, len(self._names))

    def _lease(self, lease: int) -> int:
        return self._leases.setdefault(lease, len(self._leases))


def _counts(world: World) -> list[tuple[int, int, int]]:
    truths = [world.truth] if world.replica is None else [world.truth, world.replica]
    found = [(each.run.epoch, each.run.seq, each.writes) for each in truths]
    holders = [*world.workers, *([] if world.wire is None else [world.wire])]
    return found + [(each.held.epoch, each.held.seq, each.basis) for each in holders if each.held is not None]


def within(setting: Setting, world: World) -> bool:
    """Whether the counts of a world are as close together as the setting follows them."""
    return all(max(each) - min(each) <= setting.spread for each in zip(*_counts(world), strict=True))
