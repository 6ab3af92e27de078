"""`bindery snapshot`: the live cluster as a scenario file, for what-if questions and bug reports.

`bindery.cli.reading.live` reads the cluster, `bindery.scenario.capture` makes the scenario; this
module writes it.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from bindery.cli.errors import CommandError
from bindery.cli.importing import importing

_MOST_WARNINGS: Final = 10

app = typer.Typer(add_completion=False)


@app.command(epilog="Examples: bindery snapshot -o cluster.yaml · bindery snapshot | less")
def snapshot(
    context: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Default: standard output."),
    ] = None,
    node_pool: Annotated[str, typer.Option(help="Plan for the scheduler of this node pool.")] = "",
) -> None:
    """Write the live cluster as a scenario that `bindery scenario run` reads back."""
    with importing():
        import yaml

        from bindery.cli.connection import with_client
        from bindery.cli.reading.live import read_cluster
        from bindery.scenario.capture import capture

    scenario = capture(with_client(context, read_cluster), datetime.now(UTC), node_pool)
    text = yaml.safe_dump(
        scenario,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=120,
    )
    if output is None:
        typer.echo(text, nl=False)
    else:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error.strerror}") from error
        typer.echo(f"Wrote {output}. Try: bindery scenario run {output}")
    needs = scenario.get("needs", ())
    for line in needs[:_MOST_WARNINGS]:
        typer.echo(f"warning: {line}", err=True)
    if len(needs) > _MOST_WARNINGS:
        rest = len(needs) - _MOST_WARNINGS
        typer.echo(f"warning: and {rest} more; the key `needs` lists them all", err=True)
