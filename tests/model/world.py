"""Owners, processes and a network around one run: everything that may happen next.

Three workers, two of them in one process. Any of them may pause for ever (it is not scheduled), leave, or die with
its process, which starts again under the same id. A statement may arrive and be answered, arrive without an answer,
not arrive, or arrive later than anybody expects; one may be under way at a time. Whether a heartbeat is fresh is up
to chance: what holds here holds for every clock.

Beside what the database and the workers know, the world knows the truth: which acquisition is the last one (``lease``),
whether its process has ended (``gone``), how much was written (``writes``), and how often a command arrived.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.protocol import (
    OVER,
    RUNNING,
    Evidence,
    Lease,
    Nonce,
    Rules,
    Run,
    holds,
    lets_write,
    may_take,
    renewed,
    resolved,
    taken,
    written,
)

KINDS = ("record", "park", "settle")
NEW = 99
"""A label nobody has; ``canonical`` gives labels anew."""
NOBODY, ANSWERED = -1, -2
"""Who waits for the answer to a statement, when no worker does: its process has died, or it was told otherwise."""


class Broken(Exception):
    """A promise does not hold; ``who`` made the move, and this is what it was ``doing``."""

    who = ""

    def __init__(self, promise: str, doing: str = "") -> None:
        super().__init__(promise)
        self.doing = doing


class Truth(NamedTuple):
    """A row, and what nobody in the world can see of it."""

    run: Run = Run()
    lease: int = 0
    gone: bool = False
    writes: int = 0


class Worker(NamedTuple):
    """What one worker is doing, and the truth of it."""

    phase: str = "idle"
    """``idle looked asked owns checked unsure again``"""
    held: Lease | None = None
    lease: int = 0
    basis: int = 0
    """The writes it knows of."""
    kind: str = ""
    landed: int = 0
    """How often the command in hand has arrived."""
    nonce: Nonce | None = None
    evidence: Evidence | None = None
    unclear: bool = False
    """Whether it gave up a command without knowing its end."""


class Statement(NamedTuple):
    """Something sent that has not arrived yet."""

    kind: str
    held: Lease | None = None
    lease: int = 0
    basis: int = 0
    waiting: int = NOBODY
    nonce: Nonce | None = None
    evidence: Evidence | None = None
    pid: int = 0
    gone: bool = False


class World(NamedTuple):
    """Everything."""

    truth: Truth
    workers: tuple[Worker, ...]
    wire: tuple[Statement, ...] = ()
    replica: Truth | None = None
    """An earlier state of the row, which a failover would bring back."""


class Setting(NamedTuple):
    """What may happen in this world."""

    rules: Rules = Rules()
    processes: tuple[int, ...] = (1, 1, 2)
    late: int = 1
    """How many statements may be under way at a time, to arrive late."""
    losses: bool = True
    """Whether statements and replies may be lost."""
    deaths: bool = True
    failover: bool = False
    """Whether the database may lose its last transactions; then only what concerns former owners can hold."""
    spread: int = 3
    """With failover: how far what is known of a count may be from the count."""


IDLE = Worker()


def beginning(setting: Setting) -> World:
    """A pending run that nobody has looked at."""
    return World(Truth(), (IDLE,) * len(setting.processes))


Move = tuple[str, World]


def moves(setting: Setting, world: World) -> Iterator[Move]:
    """Everything that may happen next; raises ``Broken`` where something happens that must not."""
    yield from _jitter(setting, world)
    for place, sent in enumerate(world.wire):
        try:
            yield from _arrival(setting, world._replace(wire=_without(world.wire, place)), sent)
        except Broken as broken:
            broken.who = f"the late {sent.kind} arrives"
            raise
    for place, worker in enumerate(world.workers):
        try:
            for name, after in _of_worker(setting, world, place, worker):
                yield f"worker {place + 1} {name}", after
        except Broken as broken:
            broken.who = f"worker {place + 1} {broken.doing}"
            raise


# ---------------------------------------------------------------- what nobody does


def _jitter(setting: Setting, world: World) -> Iterator[Move]:
    truth = world.truth
    if truth.run.heard:
        yield "the owner is silent", world._replace(truth=truth._replace(run=truth.run._replace(heard=False)))
    if setting.failover:
        if world.replica != truth:
            yield "the replica catches up", world._replace(replica=truth)
        if world.replica not in (None, truth):
            yield "the replica takes over", world._replace(truth=world.replica or truth, wire=())
    if setting.deaths:
        for process in sorted(set(setting.processes)):
            yield from _death(setting, world, process)


def _death(setting: Setting, world: World, process: int) -> Iterator[Move]:
    of_it = [place for place, each in enumerate(setting.processes) if each == process]
    if all(world.workers[place] == IDLE for place in of_it) and world.truth.run.pid != process:
        return
    workers = tuple(IDLE if place in of_it else each for place, each in enumerate(world.workers))
    wire = tuple(each if each.pid != process else each._replace(gone=True, waiting=NOBODY) for each in world.wire)
    died = [_mourned(each, process) for each in (world.truth, world.replica)]
    yield f"process {process} dies", World(died[0] or world.truth, workers, wire, died[1])


def _mourned(truth: Truth | None, process: int) -> Truth | None:
    if truth is None or truth.run.owner is None or truth.run.pid != process:
        return truth
    return truth._replace(gone=True)


def _arrival(setting: Setting, world: World, sent: Statement) -> Iterator[Move]:
    yield f"the late {sent.kind} is lost", world
    if sent.kind == "acquire":
        assert sent.nonce is not None
        truth = acquired(setting, world.truth, sent.nonce, sent.pid, sent.evidence)
        if truth is not None:
            yield "the late acquire arrives", world._replace(truth=truth._replace(gone=sent.gone))
        return
    truth = executed(setting, world.truth, sent)
    if truth is not None:
        workers = world.workers
        if sent.waiting >= 0:
            waiting = workers[sent.waiting]
            workers = _with(workers, sent.waiting, waiting._replace(landed=waiting.landed + 1))
        yield f"the late {sent.kind} arrives", world._replace(truth=truth, workers=workers)


# ---------------------------------------------------------------- what the database does


def acquired(setting: Setting, truth: Truth, nonce: Nonce, pid: int, evidence: Evidence | None) -> Truth | None:
    """The row after an acquisition; None where it gets nothing."""
    if not may_take(setting.rules, truth.run, evidence):
        return None
    return _owned_by(setting, truth, nonce, pid)


def _owned_by(setting: Setting, truth: Truth, nonce: Nonce, pid: int) -> Truth:
    if truth.run.status == OVER:
        raise Broken("a run that was over was acquired", "acquires")
    if truth.run.status == RUNNING and truth.run.heard and not truth.gone:
        raise Broken("an owner was replaced that was heard of and is not gone", "acquires")
    after = Truth(taken(setting.rules, truth.run, nonce, pid), NEW, gone=False, writes=truth.writes)
    return _checked(truth, after)


def executed(setting: Setting, truth: Truth, sent: Statement, *, unseen: bool = False) -> Truth | None:
    """The row after an owned statement; None where the fence refuses it. ``unseen``: the fence was read before."""
    rules = setting.rules
    assert sent.held is not None
    if sent.kind == "renew":
        if not holds(rules, truth.run, sent.held):
            return None
        _is_owners(truth, sent)
        return truth._replace(run=renewed(truth.run))
    if not unseen and not lets_write(rules, truth.run, sent.held):
        return None
    _is_owners(truth, sent)
    if not setting.failover and (sent.basis != truth.writes or sent.waiting == ANSWERED):
        raise Broken("a write of the owner arrived over what the owner wrote after it", f"{sent.kind}s")
    after = Truth(written(rules, truth.run, sent.kind), truth.lease, truth.gone, truth.writes + 1)
    return _checked(truth, after)


def _is_owners(truth: Truth, sent: Statement) -> None:
    if truth.run.status == OVER:
        raise Broken("a run that was over was changed", f"{sent.kind}s")
    if sent.lease != truth.lease:
        raise Broken("a statement of a former owner was accepted", f"{sent.kind}s")
    if truth.run.status != RUNNING:
        raise Broken("a statement was accepted on a run that had been let go", f"{sent.kind}s")


def _checked(before: Truth, after: Truth) -> Truth:
    if after.run.epoch < before.run.epoch:
        raise Broken("the epoch went back", "acquires or lets go")
    if after.lease != before.lease and after.run.epoch == before.run.epoch:
        raise Broken("two acquisitions had the same epoch", "acquires")
    return after


def refused(setting: Setting, world: World) -> World:
    """The world without former owners and their statements, once it is seen that the fence refuses them here.

    Epochs only rise (``_checked``), so what is refused for its epoch stays refused; nothing else is left of it.
    """
    truth = world.truth
    workers = world.workers
    for place, worker in enumerate(workers):
        if worker.held is not None and worker.lease != truth.lease:
            _is_refused(setting, truth, worker.held, seen=worker.phase == "checked")
            workers = _with(workers, place, IDLE)
    wire = world.wire
    for sent in wire:
        if sent.held is not None and sent.lease != truth.lease:
            _is_refused(setting, truth, sent.held)
            wire = tuple(each for each in wire if each is not sent)
    if wire is world.wire and workers is world.workers:
        return world
    return World(truth, workers, wire, world.replica)


def _is_refused(setting: Setting, truth: Truth, held: Lease, *, seen: bool = False) -> None:
    if seen or holds(setting.rules, truth.run, held):
        raise Broken("a statement of a former owner was accepted")


# ---------------------------------------------------------------- what workers do


def _of_worker(setting: Setting, world: World, place: int, worker: Worker) -> Iterator[Move]:
    if worker.phase not in ("idle", "looked"):
        yield "leaves", _now(world, place, IDLE, waiting=NOBODY)
    if worker.phase == "idle":
        yield from _looking(setting, world, place)
    elif worker.phase in ("looked", "asked"):
        yield from _acquiring(setting, world, place, worker)
    else:
        yield from _renewing(setting, world, place, worker)
        if worker.phase in ("owns", "again"):
            yield from _writing(setting, world, place, worker)
        elif worker.phase == "checked":
            yield from _sending(setting, world, place, worker, unseen=True)
        elif worker.phase == "unsure":
            yield from _resolving(setting, world, place, worker)


def _looking(setting: Setting, world: World, place: int) -> Iterator[Move]:
    """Nothing is needed to take a run that nobody owns or that is stale by then; evidence is gathered before."""
    truth = world.truth
    if truth.run.status == OVER:
        return
    yield "looks", _now(world, place, Worker("looked"))
    owner, pid = truth.run.owner, truth.run.pid
    if truth.gone and owner is not None:
        yield "finds the owner dead", _now(world, place, Worker("looked", evidence=Evidence("dead", owner, pid)))
    if not truth.run.heard and owner is not None and not setting.rules.evidence_needs_silence:
        # Elsewhere the write sees for itself whether the owner is silent.
        yield "finds the owner silent", _now(world, place, Worker("looked", evidence=Evidence("silent", owner, pid)))


def _acquiring(setting: Setting, world: World, place: int, worker: Worker) -> Iterator[Move]:
    truth, pid = world.truth, setting.processes[place]
    nonce = worker.nonce
    if nonce is None:
        nonce = NEW if setting.rules.nonce_per == "acquisition" else f"process {pid}"
    asked = Worker("asked", nonce=nonce, evidence=worker.evidence)
    if worker.phase == "asked" and truth.run.status == RUNNING and truth.run.owner == nonce:
        # The sending whose reply was lost, or one that is told from it by nothing, has taken the run.
        yield "finds that it owns the run", _now(world, place, _owner(truth, nonce))
        return
    blind = not setting.rules.acquire_swaps and worker.phase == "looked"
    after = _owned_by(setting, truth, nonce, pid) if blind else acquired(setting, truth, nonce, pid, worker.evidence)
    if after is None:
        yield "gets nothing", _now(world, place, IDLE)
    else:
        yield "acquires", _now(world._replace(truth=after), place, _owner(after, nonce))
        if setting.losses:
            yield "acquires, the reply is lost", _now(world._replace(truth=after), place, asked)
    if setting.losses:
        yield "asks, the request is lost", _now(world, place, asked)
    if len(world.wire) < setting.late:
        late = Statement("acquire", nonce=nonce, evidence=worker.evidence, pid=pid)
        yield "asks, the request is late", _now(_sent(world, late), place, asked)


def _renewing(setting: Setting, world: World, place: int, worker: Worker) -> Iterator[Move]:
    assert worker.held is not None
    renewal = Statement("renew", worker.held, worker.lease, pid=setting.processes[place])
    after = executed(setting, world.truth, renewal)
    if after is not None:
        yield "renews", world._replace(truth=after)
    elif worker.phase == "owns":
        yield "finds its lease lost", _now(world, place, IDLE)
    if len(world.wire) < setting.late:
        yield "renews, late", _sent(world, renewal)


def _writing(setting: Setting, world: World, place: int, worker: Worker) -> Iterator[Move]:
    rules = setting.rules
    assert worker.held is not None
    kinds = (worker.kind,) if worker.phase == "again" else ("hold",) if worker.unclear else KINDS
    for kind in kinds:
        ready = worker._replace(kind=kind, landed=worker.landed if worker.phase == "again" else 0)
        if rules.fence_locks:
            yield from _sending(setting, world, place, ready)
        elif lets_write(rules, world.truth.run, worker.held):
            yield f"passes the fence to {kind}", _now(world, place, ready._replace(phase="checked"))


def _sending(setting: Setting, world: World, place: int, worker: Worker, *, unseen: bool = False) -> Iterator[Move]:
    kind = worker.kind
    unsure = worker._replace(phase="unsure")
    sent = Statement(kind, worker.held, worker.lease, worker.basis, place, pid=setting.processes[place])
    after = executed(setting, world.truth, sent, unseen=unseen)
    if after is None:
        yield from _refused(setting, world, place, worker)
    else:
        arrived = worker._replace(landed=worker.landed + 1)
        if not setting.failover and arrived.landed > 1 and kind != "hold":
            raise Broken("a command was carried out twice", f"{kind}s")
        moved = world._replace(truth=after)
        yield f"{kind}s", _now(moved, place, _done(arrived, after), waiting=ANSWERED)
        if setting.losses:
            yield f"{kind}s, the reply is lost", _now(moved, place, arrived._replace(phase="unsure"))
    if setting.losses:
        yield f"{kind}s, the request is lost", _now(world, place, unsure)
    if len(world.wire) < setting.late:
        yield f"{kind}s, the request is late", _now(_sent(world, sent), place, unsure)


def _refused(setting: Setting, world: World, place: int, worker: Worker) -> Iterator[Move]:
    if worker.phase == "owns":
        # Its own late statement may have arrived, of a command it has given up.
        yield f"is refused to {worker.kind}", _now(world, place, _read(world.truth, worker))
    elif setting.rules.resolves in ("reading once", "sending again"):
        yield "is refused, and believes it", _concluded(setting, world, place, worker, "lost")
    else:
        yield "is refused, and reads again", _now(world, place, worker._replace(phase="unsure"))


def _resolving(setting: Setting, world: World, place: int, worker: Worker) -> Iterator[Move]:
    assert worker.held is not None
    how = setting.rules.resolves
    if how == "assuming it arrived":
        yield "assumes that it arrived", _concluded(setting, world, place, worker, "arrived")
    elif how == "sending again":
        yield "sends again", _now(world, place, worker._replace(phase="again"))
    else:
        found = resolved(world.truth.run, worker.held)
        yield f"reads: {found}", _concluded(setting, world, place, worker, found)
    left = _read(world.truth, worker)
    if left.phase == "owns":
        left = left._replace(unclear=setting.rules.clears_up)
    yield "gives the command up", _now(world, place, left, waiting=NOBODY)


def _concluded(setting: Setting, world: World, place: int, worker: Worker, found: str) -> World:
    """What the worker believes of its command, held against the truth."""
    truth = world.truth
    # Whether it was the hold that counted or what was given up before it, the latter cannot arrive any more.
    if not setting.failover and worker.kind != "hold":
        if found == "arrived" and worker.landed == 0:
            raise Broken("a command was taken for done that was not", "concludes")
        if found == "again" and worker.landed > 0:
            raise Broken("a command was taken for lost that was done", "concludes")
        if found == "lost" and worker.landed > 0 and truth.lease == worker.lease:
            # Once somebody else has acquired the run, the answer makes no difference any more.
            raise Broken("a command was taken for refused that was done", "concludes")
    if found == "again":
        held = worker.held._replace(seq=truth.run.seq) if worker.held else None
        return _now(world, place, worker._replace(phase="again", held=held, basis=truth.writes))
    after = _done(worker, truth) if found == "arrived" else IDLE
    return _now(world, place, after, waiting=ANSWERED)


# ---------------------------------------------------------------- small things


def _owner(truth: Truth, nonce: Nonce) -> Worker:
    return Worker("owns", Lease(nonce, truth.run.epoch, truth.run.seq), truth.lease, truth.writes)


def _done(worker: Worker, truth: Truth) -> Worker:
    """The worker once its command is answered."""
    if worker.kind not in ("record", "hold") or worker.held is None:
        return IDLE
    held = worker.held._replace(seq=worker.held.seq + 1)
    return Worker("owns", held, worker.lease, worker.basis + 1)


def _read(truth: Truth, worker: Worker) -> Worker:
    """The worker once it has read how its run stands."""
    held = worker.held
    if held is None or (truth.run.status, truth.run.owner, truth.run.epoch) != (RUNNING, held.nonce, held.epoch):
        return IDLE
    return Worker("owns", held._replace(seq=truth.run.seq), worker.lease, truth.writes)


def _now(world: World, place: int, worker: Worker, *, waiting: int | None = None) -> World:
    """The world with this worker; ``waiting``: who waits from now on for what it has under way."""
    wire = world.wire
    if waiting is not None and wire:
        wire = tuple(each._replace(waiting=waiting) if each.waiting == place else each for each in wire)
    return World(world.truth, _with(world.workers, place, worker), wire, world.replica)


def _with(workers: tuple[Worker, ...], place: int, worker: Worker) -> tuple[Worker, ...]:
    return (*workers[:place], worker, *workers[place + 1 :])


def _sent(world: World, sent: Statement) -> World:
    return world._replace(wire=(*world.wire, sent))


def _without(wire: tuple[Statement, ...], place: int) -> tuple[Statement, ...]:
    return (*wire[:place], *wire[place + 1 :])
