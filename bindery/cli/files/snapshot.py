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
    ("snapshot --hide-names | gzip > cluster.yaml.gz", "for a public bug report"),
    ("snapshot --hide-names -o cluster.yaml --names names.tsv", "names.tsv stays with you"),
)


@app.command(epilog=_EXAMPLES)
def snapshot(
    context: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Default: standard output."),
    ] = None,
    hide_names: Annotated[
        bool,
        typer.Option(
            "--hide-names",
            help="Write pseudonyms such as n0012x7 in place of names. The file is planned alike.",
        ),
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names",
            metavar="FILE",
            help="With --hide-names: write each pseudonym with its name to this file, for you.",
        ),
    ] = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
) -> None:
    """Write the live cluster as a scenario: all objects that the scheduler watches, and its
    configuration.

    The scheduler would plan the file as it would plan the cluster after a restart. Environments,
    commands and secrets are left out, and with --hide-names all names are pseudonyms.
    """
    with importing():
        from bindery.cli.connection import lease_namespace, with_client
        from bindery.cli.reading.configurations import read_planner
        from bindery.cli.reading.rawobjects import read_raw_objects
        from bindery.scenario.snapshot import hidden_snapshot_text, snapshot_text

    if names is not None and not hide_names:
        raise typer.BadParameter("it needs --hide-names", param_hint="--names")
    origin = Origin(config=config, node_pool=node_pool)

    async def read(client: "Client") -> "tuple[Planner, list[dict[str, Any]]]":
        planner = await read_planner(client, origin, lease_namespace(context))
        return planner, await read_raw_objects(client, planner.configuration)

    planner, objects = with_client(context, read)
    now = datetime.now(UTC)
    if hide_names:
        text, hidden = hidden_snapshot_text(objects, planner.configuration, now)
    else:
        text, hidden = snapshot_text(objects, planner.configuration, now), {}
    for line in planner.lines():
        typer.echo(line, err=True)
    if names is not None:
        _write(names, "".join(f"{pseudonym}\t{name}\n" for pseudonym, name in hidden.items()))
    if output is None:
        typer.echo(text, nl=False)
        return
    _write(output, text)
    typer.echo(f"Wrote {output}. Try: bindery explain NAME --file {output}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
