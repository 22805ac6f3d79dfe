"""``belay resolve``."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from belay_core.cli import options
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE
from belay_core.cli.identity import acting_user
from belay_core.cli.json_input import stored_text
from belay_core.cli.output import write_json, write_line
from belay_core.cli.time_text import time_text
from belay_core.errors import InvalidInput

if TYPE_CHECKING:
    from belay_core.records.commands import Resolution


@dataclass(frozen=True, slots=True)
class _OperatorResolution:
    """A resolution, its name in JSON, and its text for people."""

    resolution: "Resolution"
    name: str
    text: str


@click.command()
@options.run
@click.option("--step", metavar="KEY", help="The orphaned step; not needed where there is one.")
@click.option("--happened", metavar="JSON", help="The step took place, with this result.")
@click.option("--retry", is_flag=True, help="The step did not take place, or may be done again: do it.")
@click.option("--give-up", is_flag=True, help="Let the run fail.")
@click.option("--replace", is_flag=True, help="Replace what was said of the step, if no worker has acted on it.")
@options.by
@options.database
@options.as_json
def resolve(  # noqa: PLR0913  (each is an option of the command)
    *,
    run: str,
    step: str | None,
    happened: str | None,
    retry: bool,
    give_up: bool,
    replace: bool,
    by: str | None,
    database: str | None,
    as_json: bool,
) -> int:
    """Resolve a run in review, as its operator.

    `belay explain RUN` says what is to be resolved. The JSON of --happened may also be in a file, as @FILE, or come
    from the standard input, as -.
    """
    answer = _chosen(happened, retry=retry, give_up=give_up)
    return with_client(
        database,
        partial(_resolved, run=run, step=step, answer=answer, by=acting_user(by), replace=replace, as_json=as_json),
    )


def _chosen(happened: str | None, *, retry: bool, give_up: bool) -> _OperatorResolution:
    from belay_core.records.commands import GiveUp, Happened, Retry

    if [happened is not None, retry, give_up].count(True) != 1:
        raise InvalidInput("resolution", "must be exactly one of --happened JSON, --retry and --give-up")
    if happened is not None:
        return _OperatorResolution(Happened(stored_text("happened", happened)), "happened", "took place")
    if retry:
        return _OperatorResolution(Retry(), "retry", "is to be tried again")
    return _OperatorResolution(GiveUp(), "give_up", "is given up")


async def _resolved(
    session: CommandSession,
    *,
    run: str,
    step: str | None,
    answer: _OperatorResolution,
    by: str,
    replace: bool,
    as_json: bool,
) -> int:
    about = step or await _orphan(session, run, answer, replace=replace)
    outcome = await session.client.resolve(run, answer.resolution, by=by, step_key=about, replace=replace)
    at = time_text(outcome.resolved_at_ms)
    if as_json:
        write_json({"run_id": run, "step_key": about, "resolution": answer.name, "by": by, "resolved_at": at})
    else:
        subject = f"run {run}" if about is None else f"run {run}: step {about}"
        write_line(f"{subject} {answer.text}, says {by} at {at}")
    return DONE


async def _orphan(session: CommandSession, run: str, answer: _OperatorResolution, *, replace: bool) -> str | None:
    """The key of the step that is meant; None for a run as a whole. Giving up is about the run, where several are."""
    from belay_core.client.written import orphan_meant

    history = await session.client.history(run)
    try:
        return orphan_meant(history, replace=replace)
    except InvalidInput:
        if answer.name != "give_up":
            raise
        return None
