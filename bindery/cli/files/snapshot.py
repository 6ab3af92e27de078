"""`bindery snapshot`: the live cluster as a scenario file, for what-if questions and bug reports.

`bindery.cli.reading.rawobjects` reads the cluster, `bindery.scenario.snapshot` makes the text; this
module writes it.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bindery.cli.errors import CommandError
from bindery.cli.importing import importing
from bindery.cli.options import ConfigOption, Origin, PoolOption, examples

if TYPE_CHECKING:
    from bindery.answers.planner import Planner
    from bindery.kube.client import Client

app = typer.Typer(add_completion=False)

_EXAMPLES = examples(
    ("snapshot -o cluster.yaml", "then: bindery explain train --file cluster.yaml"),
    ("snapshot | gzip > cluster.yaml.gz", "for a bug report"),
)


@app.command(epilog=_EXAMPLES)
def snapshot(
    context: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Default: standard output."),
    ] = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
) -> None:
    """Write the live cluster as a scenario: all objects that the scheduler watches, and its
    configuration.

    The scheduler would plan the file as it would plan the cluster after a restart. Environments,
    commands and secrets are left out.
    """
    with importing():
        from bindery.cli.connection import lease_namespace, with_client
        from bindery.cli.reading.configurations import read_planner
        from bindery.cli.reading.rawobjects import read_raw_objects
        from bindery.scenario.snapshot import snapshot_text

    origin = Origin(config=config, node_pool=node_pool)

    async def read(client: "Client") -> "tuple[Planner, list[dict[str, Any]]]":
        planner = await read_planner(client, origin, lease_namespace(context))
        return planner, await read_raw_objects(client, planner.configuration)

    planner, objects = with_client(context, read)
    text = snapshot_text(objects, planner.configuration, datetime.now(UTC))
    for line in planner.lines():
        typer.echo(line, err=True)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}") from error
    typer.echo(f"Wrote {output}. Try: bindery explain NAME --file {output}")
