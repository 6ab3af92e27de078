"""The `bindery` command, also as `kubectl bindery`: global options and the table of commands.

`lazy` imports each command when it is called. Invariant: bad input and an unreachable cluster end
with one clear line and the exit codes of `errors.ExitCode`; only a defect shows a traceback.
"""

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

import bindery
from bindery.cli.choice import ClusterChoice
from bindery.cli.errors import ExitCode
from bindery.cli.lazy import LazyGroup

_MOST_ERROR = 8192
"""Maximum number of characters of an error message."""

app = typer.Typer(
    cls=LazyGroup,
    name="bindery",
    help="Bindery schedules gangs of pods: all pods of a gang, or none.",
    epilog="Try: bindery get gangs -A · bindery explain my-gang · bindery scenario run FILE",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # for the reason, see `lazy`
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"bindery {bindery.__version__}")
        raise typer.Exit


@app.callback()
def choose_cluster(
    context: typer.Context,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: $KUBECONFIG, else ~/.kube/config.")
    ] = None,
    cluster_context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="A context of the kubeconfig.")
    ] = None,
    lease_namespace: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar="BINDERY_LEASE_NAMESPACE",
            help="The namespace of the Leases, if the chart has another leaseNamespace.",
        ),
    ] = ClusterChoice.lease_namespace,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Bindery schedules gangs of pods: all pods of a gang, or none."""
    context.obj = ClusterChoice(kubeconfig, cluster_context, lease_namespace)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app()
    except Exception as error:
        from bindery.api.shown import shown
        from bindery.cli.failures import described

        line, code = described(error)
        if code is ExitCode.DEFECT:
            # Python would exit with 1, which is an answer of some commands.
            traceback.print_exc()
        typer.echo(shown(line, _MOST_ERROR, keep="\n"), err=True)
        sys.exit(code)


if __name__ == "__main__":
    main()
