"""A random history of the contract's calls."""

from typing import Any, Final

from belay_core.ids import RunId
from belay_core.jitter import seeded
from belay_core.records.attempt import ABSENT, Attempt, AttemptId, AttemptPatch, FinishAttempt
from belay_core.records.owner import LivenessEvidence, OwnerId
from belay_core.records.run import CreateOptions, RunRow, RunSnapshot, RunStatus, TransitionGuard
from belay_testing.conformance.parts import PENDING, A, B, C
from belay_testing.conformance.twins import Twins

RUNS: Final = [RunId(name) for name in ("a", "b", "c", "line", "Ü\U0001f9d7", "x" * 1_001)]
DIGESTS: Final = ("d1", "d2")
DATA: Final[list[Any]] = [None, 1, 1.0, True, "ü\u0000", {"b": [1, {}], "a": -0.0}, {"a": 0, "b": [1, {}]}]
VALUES: Final[list[Any]] = [ABSENT, ABSENT, *DATA]
OWNERS: Final = (A, A, B, C, OwnerId("host-a", 101, "owner-a2"))


class ContractHistory:
    """Draws calls, valid ones and invalid ones, both often enough."""

    def __init__(self, seed: str, twins: Twins) -> None:
        self.rng = seeded(seed)
        self.twins = twins
        self.read: dict[RunId, RunRow] = {}
        """What was last read of each run; by now it may have changed."""
        self.claims: list[tuple[RunId, OwnerId, int]] = []
        self.attempt: Attempt | None = None
        self.moves = MOVES

    async def begin(self) -> None:
        """Create some owned runs, so that later calls find one."""
        for run_id in RUNS[:3]:
            await self.twins.runs("create", run_id, "{}")
            await self.twins.runs("claim_and_own", run_id, PENDING, A, self.twins.now)
            await self._read_run(run_id)

    async def step(self) -> None:
        """One call, and then perhaps some time."""
        await getattr(self, self.rng.choice(self.moves))()
        self.twins.advance(self.rng.choice((0, 0, 0, 1, 700, 16_000, 30_000)))

    async def compare(self) -> None:
        """Everything that is stored."""
        for run_id in RUNS:
            await self._read_run(run_id)
            await self.twins.runs("lineage", run_id)
            await self.twins.runs("latest_round", run_id)
            for digest in DIGESTS:
                for number in (1, 2):
                    await self.twins.attempts("get", AttemptId(run_id, digest, number))

    async def _read_run(self, run_id: RunId) -> None:
        row = await self.twins.runs("get", run_id)
        if isinstance(row, RunRow):
            self.read[run_id] = row

    def run(self) -> RunId:
        """Mostly a run that exists."""
        there = list(self.read)
        return self.rng.choice(there) if there and self.rng.random() < 0.9 else self.rng.choice(RUNS)

    def owner(self, run_id: RunId) -> OwnerId:
        """Mostly the one that was read last."""
        row = self.read.get(run_id)
        known = row is not None and row.owner is not None and self.rng.random() < 0.7
        return row.owner if known and row is not None and row.owner is not None else self.rng.choice(OWNERS)

    def expected(self, run_id: RunId) -> RunSnapshot | RunRow:
        """Mostly what was read, sometimes of another run."""
        if self.rng.random() < 0.1 or run_id not in self.read:
            return self.rng.choice((PENDING, RunSnapshot(RunStatus.SUSPENDED), RunSnapshot(RunStatus.RUNNING)))
        row = self.read[run_id]
        return self.rng.choice((row, row.snapshot))

    def now(self) -> int:
        """Mostly the current time; a reading may lag, and run ahead a little."""
        return max(0, self.twins.now + self.rng.choice((0, 0, 0, 0, -5, -40_000, 9_999, 10_000, 10_001)))

    def proof(self, run_id: RunId, now: int) -> LivenessEvidence:
        """Mostly about the owner that was read, at this time."""
        about = self.owner(run_id)
        kind: Any = self.rng.choice(("lease-expired", "same-host-pid-dead", "cross-host-unreachable-stale"))
        return LivenessEvidence(about, now - (self.rng.random() < 0.1), kind)

    async def read_run(self) -> None:
        """Read a run."""
        await self._read_run(self.run())

    async def create(self) -> None:
        """Create a run, perhaps a child or a round."""
        lineage = self.rng.choice((None, None, "line", "other"))
        ordinal = None if lineage is None else self.rng.randrange(3)
        parent = self.rng.choice((None, None, None, self.rng.choice(RUNS)))
        run_id = self.rng.choice(RUNS)
        state = self.rng.choice(("{}", ' {"a": 1.0e2}', "[]", "nonsense"))
        await self.twins.runs("create", run_id, state, CreateOptions(parent, lineage, ordinal))
        await self._read_run(run_id)

    async def claim(self) -> None:
        """Reserve a run."""
        run_id, claimant, now = self.run(), self.rng.choice(OWNERS), self.now()
        await self.twins.runs("claim", run_id, self.expected(run_id), claimant, now)
        self.claims.append((run_id, claimant, now))

    async def claim_and_own(self) -> None:
        """Own a run in one step."""
        run_id, now = self.run(), self.now()
        proof = self.rng.choice((None, self.proof(run_id, now)))
        await self.twins.runs("claim_and_own", run_id, self.expected(run_id), self.rng.choice(OWNERS), now, proof)
        await self._read_run(run_id)

    async def steal(self) -> None:
        """Reserve a run of a dead owner."""
        run_id, claimant, now = self.run(), self.rng.choice(OWNERS), self.now()
        await self.twins.runs("steal", run_id, self.expected(run_id), claimant, now, self.proof(run_id, now))
        self.claims.append((run_id, claimant, now))

    def claimed(self) -> tuple[RunId, OwnerId, int]:
        """Mostly one of the last claims that were tried."""
        if self.claims and self.rng.random() < 0.9:
            return self.rng.choice(self.claims[-3:])
        return self.run(), self.rng.choice(OWNERS), self.twins.now

    async def activate(self) -> None:
        """Turn a claim into ownership."""
        run_id, claimant, at = self.claimed()
        await self.twins.runs("activate", run_id, claimant, at, self.expected(run_id))
        await self._read_run(run_id)

    async def abandon_claim(self) -> None:
        """Give up a claim."""
        await self.twins.runs("abandon_claim", *self.claimed())

    async def recover_claim(self) -> None:
        """Clear the claim of a dead owner."""
        run_id, claimant, at = self.claimed()
        now, observer = self.now(), self.rng.choice(OWNERS)
        proof = LivenessEvidence(claimant, now, self.rng.choice(("lease-expired", "same-host-pid-dead")))
        await self.twins.runs("recover_claim", run_id, claimant, at, observer, now, proof)

    async def beat(self) -> None:
        """Send a heartbeat."""
        run_id = self.run()
        await self.twins.runs(self.rng.choice(("heartbeat", "reconfirm")), run_id, self.owner(run_id), self.now())

    async def transition_owned(self) -> None:
        """Move a run to another status, or release it."""
        run_id = self.run()
        status = self.rng.choice((*["running"] * 4, "suspended", "completed", "failed", "pending"))
        state = self.rng.choice((None, '{"s":1}', "nonsense"))
        guard = TransitionGuard(self.rng.choice((None, None, "absent", "present")))
        await self.twins.runs("transition_owned", run_id, self.owner(run_id), status, state, guard)

    async def cancel(self) -> None:
        """Request the cancel of a run or a lineage, or acknowledge it."""
        run_id = self.run()
        if self.rng.random() < 0.4:
            await self.twins.runs("acknowledge_cancel", run_id, self.owner(run_id), self.now())
        elif self.rng.random() < 0.5:
            name = self.rng.choice(("request_cancel", "request_cancel_lineage"))
            await self.twins.runs(name, run_id, self.twins.now)

    def attempt_id(self) -> AttemptId:
        """One of few attempts."""
        return AttemptId(self.run(), self.rng.choice(DIGESTS), self.rng.choice((1, 1, 2)))

    async def put(self) -> None:
        """Store an attempt, sometimes the last one again."""
        if self.attempt is None or self.rng.random() < 0.7:
            named = self.attempt_id()
            state = self.rng.choice(("running", "running", "completed"))
            meta, checkpoint, outcome = self.rng.choice(DATA), self.rng.choice(VALUES), self.rng.choice(VALUES)
            heartbeat = self.rng.choice((None, 5))
            self.attempt = Attempt(
                named.run_id,
                named.step_key_digest,
                named.attempt,
                state,
                self.rng.randrange(3),
                meta,
                heartbeat_at_ms=heartbeat,
                checkpoint=checkpoint,
                outcome=outcome,
            )
        await self.twins.attempts("put", self.attempt, self.owner(self.attempt.run_id))

    async def finish(self) -> None:
        """End an attempt."""
        named = self.attempt_id()
        state = self.rng.choice(("completed", "failed", "running"))
        values = (self.rng.choice(VALUES), self.rng.choice(VALUES), ABSENT)
        end = FinishAttempt(named.run_id, named.step_key_digest, named.attempt, state, 9, *values)
        await self.twins.attempts("finish", end, self.owner(named.run_id))

    async def change_attempt(self) -> None:
        """A heartbeat or a patch of an attempt."""
        named = self.attempt_id()
        owner = self.owner(named.run_id)
        value = self.rng.choice(VALUES)
        if self.rng.random() < 0.5:
            await self.twins.attempts("patch", named, AttemptPatch(error=value), owner)
        else:
            key = (named.run_id, named.step_key_digest, named.attempt)
            await self.twins.attempts("heartbeat", *key, owner, self.rng.randrange(20), value)


MOVES: Final[list[str]] = [
    *("create", "create", "read_run", "read_run", "claim", "claim", "claim_and_own", "claim_and_own", "claim_and_own"),
    *("steal", "activate", "activate", "abandon_claim", "recover_claim", "beat", "beat", "transition_owned"),
    *("transition_owned", "cancel", "put", "put", "put", "finish", "finish", "change_attempt", "change_attempt"),
]
