"""The people of a soak: they start runs, decide at gates, and resolve what nobody else can know."""

import random
from pathlib import Path
from typing import Literal

from belay_core import AlreadyDecided, Client, Decided, GiveUp, InvalidTransitionError, Retry, RunNotFoundError
from belay_core.records.step_record import StepState
from tests.soak.flows import EDIT
from tests.soak.judge import Operator, read_ledger

_RNG = random.Random(7)  # noqa: S311  (the same decisions each time)


async def decide_gates(client: Client, operator: Operator) -> None:
    """Approve, edit or reject whatever waits at the gate ``clerk``, and some of what waits at ``late``."""
    for approval in await client.approvals(limit=200):
        if approval.gate == "late" and _RNG.random() < 0.5:
            continue
        number, choice = int(approval.subject), _RNG.choice(["approved", "edited", "rejected"])
        if approval.gate == "late":
            choice = "approved"
        edited = str(number + EDIT) if choice == "edited" else None
        decision: Literal["approved", "rejected"] = "rejected" if choice == "rejected" else "approved"
        answer = await client.decide(approval, decision, edited_text=edited)
        if approval.gate != "clerk":
            continue
        if isinstance(answer, Decided | AlreadyDecided) and approval.run_id not in operator.gates:
            shown = None if decision == "rejected" else int(edited or number)
            kind = "Rejected" if decision == "rejected" else "Approved"
            if isinstance(answer, Decided):
                operator.gates[approval.run_id] = [kind, shown]


async def resolve_reviews(client: Client, operator: Operator, ledger: Path) -> None:
    """Say of every step whose end is unknown what the world says of it: it happened, or it may run again."""
    waiting = await client.list(waiting_for="needs_review", limit=200)
    done = {line["key"]: line["number"] for line in read_ledger(ledger) if line["kind"] == "done"} if waiting else {}
    for run in waiting:
        try:
            history = await client.history(run.run_id)
            orphans = [each for each in history.attempts if each.state is StepState.ORPHANED]
            if not orphans and history.run.waiting is not None and history.run.waiting.reason == "needs_review":
                operator.other_reviews.append(f"{run.run_id}: {(await client.explain(run.run_id)).because}")
                await client.resolve(run.run_id, GiveUp())
            for orphan in orphans:
                key = f"{run.run_id}/{orphan.step_key}"
                if orphan.resolved_at_ms is not None:
                    continue
                if key in done:
                    await client.resolve(run.run_id, client.happened(done[key]), step_key=orphan.step_key)
                else:
                    # Counted before it is sent: whether it was stored is not known where the answer is lost.
                    operator.retried[key] += 1
                    await client.resolve(run.run_id, Retry(), step_key=orphan.step_key)
                operator.resolved.add(key)
        except (InvalidTransitionError, RunNotFoundError):
            continue
