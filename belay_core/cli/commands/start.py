"""``belay start``."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from belay_core.cli import options
from belay_core.cli.database import CommandSession, with_client
from belay_core.cli.error_report import DONE, REFUSED
from belay_core.cli.output import write_error, write_json, write_line
from belay_core.errors import InvalidInput, RunCancelled, RunFailed
from belay_core.records.attempt import JsonValue

if TYPE_CHECKING:
    from belay_core.client import RunHandle
    from belay_core.workflows.definition import Definition


@click.command()
@click.argument("workflow")
@click.argument("given", metavar="[INPUT]", required=False)
@click.option("--key", help="Idempotency key: a run started with it before is found, not made.")
@click.option("--run-id", metavar="ID", help="The id of the new run, instead of a fresh one.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher ones are taken first.")
@click.option("--at", metavar="ISO", help="Not before this moment, with its time zone.")
@click.option("--wait", is_flag=True, help="Wait for the end of the run, and print its result.")
@options.app
@options.database
@options.as_json
def start(  # noqa: PLR0913  (each is an option of the command)
    *,
    workflow: str,
    given: str | None,
    key: str | None,
    run_id: str | None,
    priority: int,
    at: str | None,
    wait: bool,
    app: str | None,
    database: str | None,
    as_json: bool,
) -> int:
    """Start a run of a workflow.

    INPUT is JSON; it may also be in a file, as @FILE, or come from the standard input, as -. Once this command says
    so, the run is kept, and a worker executes it.
    """
    from belay_core.cli.app import find_app
    from belay_core.cli.json_input import input_of

    definition = _definition(find_app(app), workflow, app)
    starting = {"idempotency_key": key, "run_id": run_id, "priority": priority, "run_at": _start_time(at)}
    value = partial(input_of, definition, given)
    work = partial(_started, definition=definition, value=value, starting=starting, wait=wait, as_json=as_json)
    return with_client(database, work, makes_file=True)


def _definition(known: "Mapping[str, Definition[Any, Any]]", workflow: str, app: str | None) -> "Definition[Any, Any]":
    if workflow not in known:
        raise InvalidInput("workflow", f"{app} has none of this name; it has {', '.join(sorted(known))}")
    return known[workflow]


def _start_time(given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        raise InvalidInput("run_at", "must be a moment by ISO 8601, such as 2031-01-31T09:00:00+01:00") from None


async def _started(
    session: CommandSession,
    *,
    definition: "Definition[Any, Any]",
    value: Callable[[], Any],
    starting: dict[str, Any],
    wait: bool,
    as_json: bool,
) -> int:
    try:
        handle = await session.client.start(definition, value(), **starting)
    except InvalidInput:
        # The key decides before anything of the input is judged.
        key = starting["idempotency_key"]
        known = None if key is None else await session.client.find(key, definition)
        if known is None:
            raise
        handle = known
    facts: dict[str, JsonValue] = {"run_id": handle.run_id, "workflow": definition.name, "created": handle.created}
    if wait:
        return await _ended(session, handle, facts, as_json=as_json)
    if as_json:
        write_json(facts)
    else:
        _say_started(handle)
    return DONE


def _say_started(handle: "RunHandle[Any]") -> None:
    word = "is started" if handle.created else "was there already, and is untouched"
    write_line(f"run {handle.run_id} {word}")


async def _ended(
    session: CommandSession, handle: "RunHandle[Any]", facts: dict[str, JsonValue], *, as_json: bool
) -> int:
    """Wait for the end of the run and print its result or error."""
    from belay_core.values import json

    if not as_json:
        _say_started(handle)
    try:
        # By its id alone: the result is printed as it is stored, whatever its type in this version of the app.
        result: JsonValue = await session.client.result(str(handle.run_id))
    except RunFailed as failed:
        facts |= {"status": "failed", "error": {"type": failed.type, "message": failed.message}}
        line, code = str(failed), REFUSED
    except RunCancelled as cancelled:
        facts |= {"status": "cancelled"}
        line, code = str(cancelled), REFUSED
    else:
        facts |= {"status": "completed", "result": result}
        line, code = json.encode(result), DONE
    if as_json:
        write_json(facts)
    elif code == DONE:
        write_line(line)
    else:
        write_error(f"belay: {line}")
    return code
