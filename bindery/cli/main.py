"""The `bindery` command, also as `kubectl bindery`: global options and the table of commands.

`lazy` imports each command when it is called. Invariant: bad input and an unreachable cluster end
with one clear line and the exit codes of `errors.ExitCode`; only a defect shows a traceback.
"""

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from bindery.api.yamlfile import FileError
from bindery.cli.choice import ClusterChoice
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.lazy import LazyGroup
from bindery.kube.errors import KubeError, UnreachableError

app = typer.Typer(
    cls=LazyGroup,
    name="bindery",
    help="Bindery schedules gangs of pods: whole, or not at all.",
    epilog="Try: bindery get gangs -A · bindery explain my-gang · bindery scenario run FILE",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def choose_cluster(
    context: typer.Context,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: $KUBECONFIG, else ~/.kube/config."),
    ] = None,
    cluster_context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="A context of the kubeconfig.")
    ] = None,
) -> None:
    """Bindery schedules gangs of pods: whole, or not at all."""
    context.obj = ClusterChoice(kubeconfig, cluster_context)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app()
    except FileError as error:
        typer.echo(str(error), err=True)
        sys.exit(ExitCode.BAD_INPUT)
    except CommandError as error:
        typer.echo(f"bindery: {error}", err=True)
        sys.exit(error.code)
    except UnreachableError as error:
        typer.echo(f"bindery: the cluster cannot be reached: {error}", err=True)
        sys.exit(ExitCode.NO_CLUSTER)
    except KubeError as error:
        typer.echo(f"bindery: {error}", err=True)
        sys.exit(ExitCode.NO_CLUSTER)
    except Exception as error:
        # Python would end with 1, which is an answer of some commands.
        traceback.print_exc()
        typer.echo(f"bindery: this is a defect, please report it: {error!r}", err=True)
        sys.exit(ExitCode.DEFECT)


if __name__ == "__main__":
    main()
