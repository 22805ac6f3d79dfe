"""Explain the state of a run: why, since when, and what makes it continue."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from belay_core.clock import Millis, utc_text
from belay_core.engine.completion import OTHER_CODE
from belay_core.engine.failures import read_facts, read_failure
from belay_core.engine.recorded_steps import INSTEAD_OF
from belay_core.records.commands import RunHistory
from belay_core.records.run import RunStatus
from belay_core.records.step_record import StepRecord, StepState
from belay_core.records.workflow_run import RunSummary
from belay_core.stores.bundle import LeaseTimes

_LONGEST_OFFER = 500
"""Characters of the longest result that is written into a command."""


_FIRST_CHANGE = {
    "diverged": "deploy code that makes the recorded calls",
    "undecodable": "deploy code whose types fit what is stored, or replace what was written (--replace)",
    "poison": "find out what ended its workers",
}
"""What has to change before a review of a run as a whole is retried."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One run, explained: ``state`` is a status or what a suspended run waits for, ``ways_out`` are CLI commands."""

    run_id: str
    """The id of the run."""
    workflow: str | None
    """The name of the workflow; None for a run that has none."""
    state: str
    because: str
    """The reason for the state, in a sentence."""
    since_ms: Millis
    """The time since which it is in this state."""
    wakes_at_ms: Millis | None
    """The time at which it continues by itself; None if it does not."""
    ways_out: tuple[str, ...]


def shown_state(run: RunSummary) -> str:
    """The status of a run or, if it waits, the reason of its wait."""
    if run.status is RunStatus.SUSPENDED and run.waiting is not None:
        return run.waiting.reason
    return run.status.value


def explain(history: RunHistory, now: Millis, lease: LeaseTimes) -> Explanation:
    """Explain a run at this time."""
    run = history.run
    because, since, ways_out = _reason(history, now, lease)
    wakes_at = run.waiting.wake_at_ms if run.waiting else None
    return Explanation(run.run_id, run.workflow, shown_state(run), because, since, wakes_at, ways_out)


def _reason(history: RunHistory, now: Millis, lease: LeaseTimes) -> tuple[str, Millis, tuple[str, ...]]:
    run = history.run
    since = run.finished_at_ms or run.started_at_ms or run.created_at_ms
    retry = () if run.workflow is None else (_command("retry", run.run_id),)
    match run.status:
        case RunStatus.PENDING:
            return _pending(run, now)
        case RunStatus.RUNNING:
            return _running(run, now, lease)
        case RunStatus.SUSPENDED:
            return _suspended(history)
        case RunStatus.FAILED:
            kind, message = read_failure(run.error)
            return f"it failed: {kind}: {message}", since, retry
        case RunStatus.CANCELLED:
            return "it is cancelled", since, retry
        case _:
            return f"it is {run.status.value}", since, ()


def _pending(run: RunSummary, now: Millis) -> tuple[str, Millis, tuple[str, ...]]:
    if run.workflow is None:
        return "it has no workflow, so no worker takes it", run.created_at_ms, ()
    if run.ready_at_ms is not None and run.ready_at_ms > now:
        return f"it is to start at {utc_text(run.ready_at_ms)}", run.created_at_ms, (_command("cancel", run.run_id),)
    because = f"no worker that knows the workflow {run.workflow} has taken it yet"
    return because, run.created_at_ms, ("belay worker --app MODULE:ATTRIBUTE", _command("cancel", run.run_id))


def _running(run: RunSummary, now: Millis, lease: LeaseTimes) -> tuple[str, Millis, tuple[str, ...]]:
    heard = run.heartbeat_at_ms or run.created_at_ms
    owner = "nobody" if run.owner is None else f"process {run.owner.pid} on {run.owner.host_id}"
    if now - heard <= lease.stale_after_ms:
        because = f"{owner} works on it, and was last heard of at {utc_text(heard)}"
        return because, run.started_at_ms or run.created_at_ms, (_command("cancel", run.run_id),)
    because = f"{owner} was last heard of at {utc_text(heard)}; any worker takes it over"
    return because, heard, ("belay worker --app MODULE:ATTRIBUTE",)


def _suspended(history: RunHistory) -> tuple[str, Millis, tuple[str, ...]]:
    run = history.run
    reason = run.waiting.reason if run.waiting else "unknown"
    since = max((each.started_at_ms for each in history.attempts), default=run.created_at_ms)
    if run.cancel_requested_at_ms is not None:
        because = "it was asked to stop, and the next worker to take it settles it as cancelled"
        return because, run.cancel_requested_at_ms, ("belay worker --app MODULE:ATTRIBUTE",)
    match reason:
        case "approval":
            return _approval(history, since)
        case "needs_review":
            return _review(history, since)
        case "timer" | "backoff":
            what = "it sleeps" if reason == "timer" else "a step failed and is tried again"
            wake = run.waiting.wake_at_ms if run.waiting else None
            until = "no fixed moment" if wake is None else utc_text(wake)
            return f"{what} until {until}", since, (_command("cancel", run.run_id),)
        case "released" if (facts := read_facts(run.waiting_request)).get("kind") == OTHER_CODE:
            because = f"no worker here has code for it: {facts.get('detail')}"
            return because, since, ("belay worker --app MODULE:ATTRIBUTE", _command("cancel", run.run_id))
        case _:
            return "its worker left; any other takes it", since, ("belay worker --app MODULE:ATTRIBUTE",)


def _approval(history: RunHistory, since: Millis) -> tuple[str, Millis, tuple[str, ...]]:
    run_id = history.run.run_id
    asked = [each for each in history.approvals if each.decision is None]
    if not asked:
        return "it was decided, and the next worker goes on with it", since, ("belay worker --app MODULE:ATTRIBUTE",)
    gates = ", ".join(each.gate for each in asked)
    ways = tuple(_command(verb, run_id, "--gate", each.gate) for each in asked for verb in ("approve", "reject"))
    return f"it waits for somebody to decide at {gates}", min(each.asked_at_ms for each in asked), ways


def _review(history: RunHistory, since: Millis) -> tuple[str, Millis, tuple[str, ...]]:
    run = history.run
    facts = read_facts(run.waiting_request)
    why, detail, step = facts.get("why", "unknown"), facts.get("detail", ""), facts.get("step")
    about = f" at {step}" if step else ""
    ways: tuple[str, ...] = tuple(_command("resolve", run.run_id, word) for word in ("--retry", "--give-up"))
    orphans = [each for each in _last_attempts(history) if _unresolved(each)]
    if orphans:
        about_it = _command("resolve", run.run_id, "--step", orphans[0].step_key)
        ways = (
            f"{about_it} --happened {_known_result(history, orphans[0])}",
            f"{about_it} --retry",
            _command("resolve", run.run_id, "--give-up"),
        )
    if not orphans and (first := _FIRST_CHANGE.get(str(why))):
        detail = f"{detail}; before a retry, {first}: it comes back to this review otherwise"
    if why == "orphan":
        detail = next((_unkept(each) for each in orphans if each.step_key == step and each.error), detail)
    return f"it needs an operator's word ({why}{about}): {detail}", since, ways


def _known_result(history: RunHistory, orphan: StepRecord) -> str:
    """The recorded result of the step that may be the same under another name, to copy into a shell; else a word."""
    renamed = read_facts(orphan.meta).get(INSTEAD_OF)
    known = next((each.outcome for each in _last_attempts(history) if each.step_key == renamed), None)
    return "RESULT" if known is None or len(known) > _LONGEST_OFFER else shlex.quote(known)


def _unkept(orphan: StepRecord) -> str:
    """What is known of a step whose effect may have taken place, and of which no result is kept."""
    kind, message = read_failure(orphan.error)
    if read_facts(orphan.meta).get("unencodable"):
        return f"it took place, and its result cannot be kept: {kind}: {message}"
    return f"its time was up before it ended, and it may have taken place: {kind}: {message}"


def _last_attempts(history: RunHistory) -> Iterable[StepRecord]:
    return {each.step_key: each for each in history.attempts}.values()


def _command(*words: str) -> str:
    """A command to copy into a shell: ids and names are quoted, since they may come from untrusted input."""
    return shlex.join(("belay", *words))


def _unresolved(attempt: StepRecord) -> bool:
    return attempt.state is StepState.ORPHANED and attempt.resolved_at_ms is None
