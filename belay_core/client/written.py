"""What a person wrote or means: checked against what is recorded of the run, before anything is stored."""

from collections.abc import Mapping
from typing import Any

from belay_core.clock import utc_text
from belay_core.engine.failures import read_facts
from belay_core.errors import InvalidInput, InvalidTransitionError
from belay_core.records.commands import RunHistory
from belay_core.records.step_record import SCHEMA, StepKind, StepState
from belay_core.values import json
from belay_core.values.json_schema import mismatch


def schema_at(history: RunHistory, step_key: str) -> Mapping[str, Any]:
    """The JSON schema that is recorded with the last attempt of a step or gate; empty where there is none."""
    last = next((each for each in reversed(history.attempts) if each.step_key == step_key), None)
    found = read_facts(None if last is None else last.meta).get(SCHEMA)
    return found if isinstance(found, dict) else {}


def written_complaint(schema: Mapping[str, Any], text: str) -> str | None:
    """Why JSON text that a person wrote is not of a type, as its place and the rule; None where it is."""
    try:
        value = json.decode(text, unique_keys=True)
    except json.JsonRefused as refused:
        return str(refused)
    return mismatch(schema, value)


def orphan_meant(history: RunHistory, *, replace: bool = False) -> str | None:
    """The key of the one orphaned step without an operator's word, or with ``replace`` also with one; None if none is.

    Raises ``InvalidInput`` where there are several, and ``InvalidTransitionError`` where all have their word.
    """
    latest = {each.step_key: each for each in history.attempts}.values()
    orphans = [each for each in latest if each.state is StepState.ORPHANED and each.kind is StepKind.STEP]
    meant = [each.step_key for each in orphans if replace or each.resolved_at_ms is None]
    if len(meant) > 1:
        raise InvalidInput("step_key", f"several steps are orphaned, name one: {', '.join(meant)}")
    if orphans and not meant:
        last = orphans[-1]
        said = f"{last.resolved_by} has said so at {utc_text(last.resolved_at_ms or 0)}; replace it, or start a worker"
        raise InvalidTransitionError(f"run {history.run.run_id} has its word on step {last.step_key}: {said}")
    return meant[0] if meant else None
