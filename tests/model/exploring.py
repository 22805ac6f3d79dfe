"""Every state there is, the nearest first."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.model.protocol import OVER, Evidence, Lease, Run
from tests.model.world import IDLE, Broken, Setting, Statement, Truth, Worker, World, beginning, moves, refused

UNFINISHED = "a run could not be finished any more"


class Explored(NamedTuple):
    """What was found: how many states and moves there are, or how a promise is broken."""

    states: int
    moves: int
    depth: int
    broken: str | None = None
    path: tuple[str, ...] = ()
    """The moves that lead there, as few as possible."""
    kinds: frozenset[str] = frozenset()
    """The moves there were, whoever made them."""


class _Step(NamedTuple):
    """How a state was reached first; ``swapped``: the two workers of one process have changed places since."""

    before: World
    move: str
    swapped: bool
    depth: int


def explore(setting: Setting) -> Explored:
    """Follow every move from the beginning, breadth first, until a promise breaks or nothing is new."""
    first, _ = canonical(setting, beginning(setting))
    came: dict[World, _Step | None] = {first: None}
    waiting = deque([first])
    followed = depth = 0
    kinds: set[str] = set()
    forms: dict[World, tuple[World, bool]] = {}
    while waiting:
        world = waiting.popleft()
        step = came[world]
        depth = 0 if step is None else step.depth
        name = ""
        try:
            for name, after in moves(setting, world):
                if setting.failover and not within(setting, after):
                    continue
                followed += 1
                kinds.add(name)
                form = forms.get(after)
                if form is None:
                    form = forms[after] = canonical(setting, after)
                known, swapped = form
                if known not in came:
                    came[known] = _Step(world, name, swapped, depth + 1)
                    waiting.append(known)
        except Broken as broken:
            last = broken.who or name
            return Explored(len(came), followed, depth, str(broken), (*_path(came, world, last), str(broken)))
    stuck = None if setting.failover else next(_stuck(setting, came), None)
    if stuck is not None:
        return Explored(len(came), followed, depth, UNFINISHED, (*_path(came, stuck), UNFINISHED))
    return Explored(len(came), followed, depth, kinds=frozenset(map(_anonymous, kinds)))


def _path(came: dict[World, _Step | None], world: World, last: str = "") -> Iterator[str]:
    """The moves to a world and one more, each worker under the name it began with."""
    steps: list[_Step] = []
    while (step := came[world]) is not None:
        steps.append(step)
        world = step.before
    names = ["worker 1", "worker 2"]
    for step in reversed(steps):
        yield _renamed(step.move, names)
        if step.swapped:
            names.reverse()
    if last:
        yield _renamed(last, names)


def _renamed(move: str, names: list[str]) -> str:
    for place, name in enumerate(names, 1):
        if move.startswith(f"worker {place}"):
            return name + move.removeprefix(f"worker {place}")
    return move


def _anonymous(move: str) -> str:
    return move.split(" ", 2)[2] if move.startswith("worker ") else move


def _stuck(setting: Setting, worlds: Iterable[World]) -> Iterator[World]:
    """Worlds whose run nobody could finish any more, if all who work on it hung for ever."""
    alone = setting._replace(late=0, losses=False, deaths=False)
    finished: dict[Truth, bool] = {}
    for world in worlds:
        truth = _deserted(alone, world.truth).truth
        if truth not in finished:
            finished[truth] = _can_finish(alone, truth)
        if not finished[truth]:
            yield world


def _deserted(setting: Setting, truth: Truth) -> World:
    return canonical(setting, World(truth, (IDLE,) * len(setting.processes)))[0]


def _can_finish(setting: Setting, truth: Truth) -> bool:
    able = (f"worker {len(setting.processes)} ", "the owner is silent")
    start = _deserted(setting, truth)
    seen, waiting = {start}, [start]
    while waiting:
        world = waiting.pop()
        if world.truth.run.status == OVER:
            return True
        for name, after in moves(setting, world):
            if name.startswith(able):
                known, _ = canonical(setting, after)
                if known not in seen:
                    seen.add(known)
                    waiting.append(known)
    return False


# ---------------------------------------------------------------- one form for what is the same


def canonical(setting: Setting, world: World) -> tuple[World, bool]:
    """The world with labels given anew and counts told from those of the row; and whether two workers were swapped.

    Nonces and acquisitions are only compared for equality, so their names do not matter; counts are compared with
    the row's or its predecessor's, so it does not matter how far a former owner is behind. That makes the number of
    states finite though the number of takeovers is not.
    """
    if not setting.failover:
        world = refused(setting, world)
    form = _Form(setting, world)
    workers = tuple([form.worker(each) for each in world.workers])
    wire = tuple([form.statement(each) for each in world.wire])
    swapped = setting.processes[:2] == (1, 1) and _order(workers[1]) < _order(workers[0])
    if swapped:
        workers = (workers[1], workers[0], *workers[2:])
        wire = tuple([each._replace(waiting=1 - each.waiting) if each.waiting in (0, 1) else each for each in wire])
    return World(form.row, workers, wire, form.replica), swapped


def _order(worker: Worker) -> tuple[object, ...]:
    return (worker.phase, worker.kind, worker.landed, worker.unclear, worker.lease, worker.evidence is None)


class _Form:
    """The names and counts of one world."""

    def __init__(self, setting: Setting, world: World) -> None:
        truth = world.truth
        self._names: dict[Any, Any] = {None: None}
        self._leases: dict[int, int] = {0: 0}
        self._exact = setting.failover
        # A run that was never acquired stays told from one that was.
        self._epoch, self._seq, self._writes = max(truth.run.epoch - 1, 0), truth.run.seq, truth.writes
        if self._exact:
            self._epoch, self._seq, self._writes = (min(each) for each in zip(*_counts(world), strict=True))
        self.row = self._truth(truth)
        self.replica = None if world.replica is None else self._truth(world.replica)
        for sent in world.wire:
            self._name(sent.nonce)
        for worker in world.workers:
            self._name(worker.nonce)
        self._forgets = setting.rules.evidence_names_nonce and not setting.failover

    def _truth(self, truth: Truth) -> Truth:
        status, owner, epoch, seq, last, heard, pid = truth.run
        epoch, seq = epoch - self._epoch, seq - self._seq
        run = Run(status, self._name(owner), epoch, seq, self._name(last), heard, pid)
        return Truth(run, self._lease(truth.lease), truth.gone, truth.writes - self._writes)

    def worker(self, worker: Worker) -> Worker:
        """A worker."""
        phase, held, lease, basis, kind, landed, nonce, evidence, unclear = worker
        if phase == "idle":
            return IDLE
        if held is not None:
            held, lease, basis = self._held(held), self._lease(lease), self._behind(basis - self._writes, -1)
        return Worker(phase, held, lease, basis, kind, landed, self._name(nonce), self._evidence(evidence), unclear)

    def statement(self, sent: Statement) -> Statement:
        """A statement under way."""
        kind, held, lease, basis, waiting, nonce, evidence, pid, gone = sent
        if held is not None:
            held, lease, basis = self._held(held), self._lease(lease), self._behind(basis - self._writes, -1)
        if kind == "renew":
            basis = 0
        return Statement(kind, held, lease, basis, waiting, self._name(nonce), self._evidence(evidence), pid, gone)

    def _held(self, held: Lease) -> Lease:
        epoch = self._behind(held.epoch - self._epoch, 0)
        return Lease(self._name(held.nonce), epoch, self._behind(held.seq - self._seq, -2))

    def _evidence(self, evidence: Evidence | None) -> Evidence | None:
        if evidence is None or (self._forgets and evidence.nonce not in self._names):
            # The owner it names is no longer there, and it proves nothing about anybody else.
            return None
        return evidence._replace(nonce=self._name(evidence.nonce))

    def _behind(self, by: int, most: int) -> int:
        return by if self._exact else max(by, most)

    def _name(self, nonce: Any) -> Any:
        names = self._names
        if nonce in names:
            return names[nonce]
        if isinstance(nonce, str):
            return nonce
        name = names[nonce] = len(names)
        return name

    def _lease(self, lease: int) -> int:
        name = self._leases.get(lease)
        if name is None:
            name = self._leases[lease] = len(self._leases)
        return name


def _counts(world: World) -> list[tuple[int, int, int]]:
    truths = [world.truth] if world.replica is None else [world.truth, world.replica]
    found = [(each.run.epoch, each.run.seq, each.writes) for each in truths]
    holders: list[Worker | Statement] = [*world.workers, *world.wire]
    return found + [(each.held.epoch, each.held.seq, each.basis) for each in holders if each.held is not None]


def within(setting: Setting, world: World) -> bool:
    """Whether the counts of a world are as close together as the setting follows them."""
    return all(max(each) - min(each) <= setting.spread for each in zip(*_counts(world), strict=True))
