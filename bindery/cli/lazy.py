"""A command group that imports a command only when it is run.

Used by `main`. Imports of the scheduler and the binder take a second or more, and `bindery version`
and `bindery --help` do not need them.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class LazyCommand:
    """A command or sub-group; `module`, below this package, has a `typer.Typer` named `app`."""

    module: str
    help: str


COMMANDS: Final = {
    "version": LazyCommand("lists.version", "Show the versions of command and cluster."),
    "status": LazyCommand("lists.status", "Show whether Bindery's components work."),
    "get": LazyCommand("lists.get", "Show queues, gangs or BindRequests as a table."),
    "queues": LazyCommand("lists.queues", "Draw the queues with their shares as bars."),
    "explain": LazyCommand("explain.command", "Explain why a pod or a gang waits."),
    "whatif": LazyCommand("rehearse.whatif", "Show what would happen if a file were submitted."),
    "simulate": LazyCommand("rehearse.simulate", "Play a trace of jobs through the scheduler."),
    "scenario": LazyCommand("files.scenario", "Run scenario files."),
    "snapshot": LazyCommand("files.snapshot", "Write the cluster as a scenario file."),
    "migrate": LazyCommand("files.migrate", "Translate KAI's, Volcano's or Kueue's objects."),
    "dashboard": LazyCommand("processes.dashboard", "Show the cluster as pages in a browser."),
    "scheduler": LazyCommand("processes.scheduler", "The scheduler process."),
    "binder": LazyCommand("processes.binder", "The binder process."),
    "grouper": LazyCommand("processes.grouper", "The grouper process."),
    "nodeagent": LazyCommand("processes.nodeagent", "The node agent: hollow, or beside a kubelet."),
    "node": LazyCommand("files.node", "Check checkpoint files of a kubelet."),
    "webhook": LazyCommand("processes.webhook", "The admission webhook's process."),
    "reservation": LazyCommand("processes.reservation", "The process of a reservation pod."),
}
"""In the order of `bindery --help`."""


class LazyGroup(TyperGroup):
    """Shows all of `COMMANDS`, and imports only the called command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, command in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=command.help, rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import and return the first command of `args`."""
        name = args[0]
        if name in COMMANDS:
            app: typer.Typer = import_module(f"{__package__}.{COMMANDS[name].module}").app
            command = typer.main.get_command(app)
            command.name = name
            _write_plainly(command)
            self.commands[name] = command
        return super().resolve_command(ctx, args)


def _write_plainly(command: Any) -> None:
    """Let `command` and its sub-commands write help and errors without rich.

    Importing rich takes three times as long as the rest of `--help`.
    """
    command.rich_markup_mode = None
    for each in getattr(command, "commands", {}).values():
        _write_plainly(each)
