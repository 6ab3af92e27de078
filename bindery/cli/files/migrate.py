"""`bindery migrate`: another scheduler's objects as objects of Bindery.

`foreignobjects` reads the objects, `bindery.migration` translates them, and this module prints:
YAML for `kubectl apply` on stdout, and untranslated parts on stderr.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from bindery.cli.errors import CommandError
from bindery.cli.importing import importing
from bindery.cli.options import examples

app = typer.Typer(
    help="Translate the queues and gangs of another scheduler into objects of Bindery.",
    no_args_is_help=True,
    epilog="Nothing is changed in any cluster. See docs/migrate-from-kai.md, "
    "docs/migrate-from-volcano.md and docs/migrate-from-kueue.md.",
)

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILES]...",
        help="YAML files with its objects; - is standard input. Default: ask the cluster.",
        show_default=False,
    ),
]
OwnedOption = Annotated[
    bool, typer.Option("--owned", help="Also PodGroups that were made for a workload.")
]
ValuesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIRECTORY", help="Write the values for the chart there, a file a node pool."
    ),
]


@app.command(
    epilog=examples(
        ("migrate kai", "the cluster of the kubeconfig, to look at"),
        ("migrate kai | kubectl apply -f -", "the same, applied"),
        ("migrate kai queues.yaml shards.yaml", "files instead of a cluster"),
        ("migrate kai --values ./values", "and a values file for each SchedulingShard"),
        ("--kubeconfig old.yaml migrate kai", "another cluster"),
    )
)
def kai(
    context: typer.Context,
    files: FilesArgument = None,
    owned: OwnedOption = False,
    values: ValuesOption = None,
) -> None:
    """Translate KAI-Scheduler's Queues, Topologies, PodGroups and SchedulingShards."""
    with importing():
        from bindery.cli.files.foreignobjects import KAI, read_objects
        from bindery.migration.kai import migrate
    _print(migrate(read_objects(context, files or [], KAI), with_owned=owned), values)


@app.command(
    epilog=examples(
        ("migrate volcano", "the cluster of the kubeconfig, to look at"),
        ("migrate volcano | kubectl apply -f -", "the same, applied"),
        ("migrate volcano queues.yaml", "a file instead of a cluster"),
        ("migrate volcano --owned", "also the PodGroups that Volcano's controllers made"),
    )
)
def volcano(
    context: typer.Context, files: FilesArgument = None, owned: OwnedOption = False
) -> None:
    """Translate Volcano's Queues, with their hierarchy, its HyperNodes and its PodGroups."""
    with importing():
        from bindery.cli.files.foreignobjects import VOLCANO, read_objects
        from bindery.migration.volcano import migrate
    _print(migrate(read_objects(context, files or [], VOLCANO), with_owned=owned), None)


@app.command(
    epilog=examples(
        ("migrate kueue", "the cluster of the kubeconfig, to look at"),
        ("migrate kueue | kubectl apply -f -", "the same, applied"),
        ("migrate kueue queues.yaml", "a file instead of a cluster"),
    )
)
def kueue(context: typer.Context, files: FilesArgument = None) -> None:
    """Translate Kueue's ClusterQueues, Cohorts, LocalQueues, Topologies and priority classes."""
    with importing():
        from bindery.cli.files.foreignobjects import KUEUE, read_objects
        from bindery.migration.kueue import migrate
    _print(migrate(read_objects(context, files or [], KUEUE)), None)


def _print(found: Any, values: Path | None) -> None:
    """Print the Migration `found`, and write the values of the chart below `values`."""
    import yaml

    def written(document: object) -> str:
        return yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)

    typer.echo("---\n".join(written(each) for each in found.objects), nl=False)
    for pool, configuration in found.configurations.items():
        text = written({"scheduler": {"configuration": configuration}})
        if values is None:
            release = f"of the node pool {pool}" if pool else "of the default node pool"
            comment = f"values for the chart's release {release}:\n{text}"
            typer.echo("".join(f"# {line}\n" for line in comment.splitlines()), nl=False)
        else:
            _write(values / f"values-{pool or 'default'}.yaml", text)
    _print_findings(found)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
    typer.echo(f"Wrote {path}", err=True)


def _print_findings(found: Any) -> None:
    from bindery.cli.tables import Column, print_table

    kinds: dict[str, int] = {}
    for each in found.objects:
        kinds[each["kind"]] = kinds.get(each["kind"], 0) + 1
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing"
    typer.echo(f"Translated: {counts}.", err=True)
    if not found.findings:
        return
    typer.echo("What does not carry over as it is:", err=True)
    rows = [
        {
            "object": finding.object,
            "field": finding.loss.field,
            "value": finding.loss.value,
            "reason": finding.loss.reason,
        }
        for finding in found.findings
    ]
    columns = [Column(key.upper(), key) for key in ("object", "field", "value", "reason")]
    print_table(columns, rows, "", to_stderr=True)
