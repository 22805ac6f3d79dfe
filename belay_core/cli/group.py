"""The group of commands, each loaded when it is asked for and not before."""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

import click

from belay_core.cli.error_report import USAGE
from belay_core.cli.output import complain

_OURS: Final = "belay_core.cli.commands"

COMMANDS: Final = {
    "demo": ("belay_core.demo.command:demo", "Watch a run survive its worker."),
    "worker": (f"{_OURS}.worker:worker", "Execute the runs of an app until told to stop."),
    "start": (f"{_OURS}.start:start", "Start a run of a workflow."),
    "runs": (f"{_OURS}.runs:runs", "List runs, the newest first."),
    "show": (f"{_OURS}.show:show", "Show what is recorded of a run."),
    "explain": (f"{_OURS}.explain:explain", "Say why a run stands where it stands, and what gets it going."),
    "approvals": (f"{_OURS}.approvals:approvals", "List what waits for a decision, the oldest first."),
    "approve": (f"{_OURS}.decide:approve", "Approve what a gate of a run asks."),
    "reject": (f"{_OURS}.decide:reject", "Reject what a gate of a run asks."),
    "resolve": (f"{_OURS}.resolve:resolve", "Give an operator's word on a run in review."),
    "cancel": (f"{_OURS}.cancel:cancel", "Ask a run to stop."),
    "migrate": (f"{_OURS}.migrate:migrate", "Bring the schema of a database up to this version."),
}
"""Where each command lives, and its help in one line, so that listing them loads none."""


class LazyGroup(click.Group):
    """A group whose commands are known by name until one is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """The commands there are, in the order of a first acquaintance."""
        return [name for name, (where, _) in COMMANDS.items() if _exists(where)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, loaded now."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, click.Command), f"{module}:{attribute} is no command"  # noqa: S101
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _exists(where: str) -> bool:
    return find_spec(where.partition(":")[0]) is not None


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
        complain(line)
    return USAGE
