"""The group of commands: belay's own, each imported on demand, and those of other packages."""

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import click

from belay_core.cli.error_report import USAGE
from belay_core.cli.output import write_error

GROUP: Final = "belay.commands"
"""Entry points of other packages: the name of a command, and a click command in a module that is quick to load."""

_OURS: Final = "belay_core.cli.commands"
_HELP_WIDTH: Final = 80

COMMANDS: Final = {
    "worker": (f"{_OURS}.worker:worker", "Execute the runs of an app until SIGTERM or Ctrl-C."),
    "start": (f"{_OURS}.start:start", "Start a run of a workflow."),
    "runs": (f"{_OURS}.runs:runs", "List runs, the newest first."),
    "show": (f"{_OURS}.show:show", "Show what is recorded of a run."),
    "explain": (f"{_OURS}.explain:explain", "Explain the state of a run, and what makes it continue."),
    "approvals": (f"{_OURS}.approvals:approvals", "List what waits for a decision, the oldest first."),
    "approve": (f"{_OURS}.decide:approve", "Approve what a gate of a run asks."),
    "reject": (f"{_OURS}.decide:reject", "Reject what a gate of a run asks."),
    "resolve": (f"{_OURS}.resolve:resolve", "Resolve a run in review, as its operator."),
    "retry": (f"{_OURS}.retry:retry", "Let a failed or cancelled run go on."),
    "cancel": (f"{_OURS}.cancel:cancel", "Ask a run to stop."),
    "migrate": (f"{_OURS}.migrate:migrate", "Bring the schema of a database up to this version."),
}
"""The place and the short help of each command, so that listing them imports none."""


class LazyGroup(click.Group):
    """A group that imports a command only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Belay's own commands, in the order in which they are learned, then those of other packages."""
        return [*COMMANDS, *plugins()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  (as above)
        """Import and return the command of this name."""
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name][0].partition(":")
            return _checked(getattr(import_module(module), attribute), COMMANDS[cmd_name][0])
        plugin = plugins().get(cmd_name)
        return None if plugin is None else _checked(plugin.load(), plugin.value)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  (as above)
        """List belay's own commands without importing them, and those of other packages with their own help."""
        rows = [(name, help_text) for name, (_, help_text) in COMMANDS.items()]
        rows += [(name, _short_help(plugin)) for name, plugin in plugins().items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@cache
def plugins() -> dict[str, EntryPoint]:
    """The commands of other packages, by name; they cannot replace one of belay's."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    return {name: found[name] for name in sorted(found.keys() - COMMANDS.keys())}


def _short_help(plugin: EntryPoint) -> str:
    try:
        return _checked(plugin.load(), plugin.value).get_short_help_str(limit=_HELP_WIDTH)
    except Exception as error:  # noqa: BLE001  (code of another package; the help of the others must still work)
        return f"(cannot be loaded: {type(error).__name__})"


def _checked(found: object, where: str) -> click.Command:
    if not isinstance(found, click.Command):
        raise TypeError(f"{where} is no click command")
    return found


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="belay-core", prog_name="belay", message="%(prog)s %(version)s")
@click.pass_context
def belay(ctx: click.Context) -> int | None:
    """Durable workflows on the database you already have.

    Every command takes --help, and --json for one JSON document on the standard output. Exit codes: 0 done, 1 refused
    or not achieved, 2 what was typed cannot be used.
    """
    if ctx.invoked_subcommand is not None:
        return None
    for line in ctx.get_help().splitlines():
        write_error(line)
    return USAGE
