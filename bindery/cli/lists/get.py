"""`bindery get`: queues, gangs and BindRequests as tables, JSON or YAML.

`cluster` reads the objects, `listings` and `queuelisting` make the rows, `tables` prints them. The
modules of a kind are imported only when needed.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from bindery.answers.rows import Row
from bindery.cli.importing import importing
from bindery.cli.options import NamespaceOption, examples, namespace_of
from bindery.cli.tables import Column, print_list, print_table

app = typer.Typer(no_args_is_help=True, add_completion=False)


class Kind(StrEnum):
    """The kinds that can be listed."""

    QUEUES = "queues"
    GANGS = "gangs"
    REQUESTS = "requests"


class Output(StrEnum):
    """The output format."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


_NAMESPACE: Final = Column("NAMESPACE", "namespace")
_COLUMNS: Final[dict[Kind, tuple[Column, ...]]] = {
    Kind.QUEUES: (
        Column("NAME", "name"),
        Column("PARENT", "parent"),
        Column("PRIORITY", "priority", is_number=True),
        Column("STATE", "state"),
        Column("GPUS", "gpu", is_number=True),
        Column("CPU", "cpu", is_number=True),
        Column("MEMORY", "memory", is_number=True),
        Column("KEPT", "kept"),
        Column("RUNNING", "running", is_number=True),
        Column("WAITING", "waiting", is_number=True),
        Column("PROBLEM", "problem"),
    ),
    Kind.GANGS: (
        Column("NAME", "name"),
        Column("QUEUE", "queue"),
        Column("STATE", "state"),
        Column("RUNNING", "running", is_number=True),
        Column("BOUND", "bound", is_number=True),
        Column("MIN", "min", is_number=True),
        Column("PODS", "pods", is_number=True),
        Column("TURN", "turn"),
        Column("AGE", "age"),
        Column("WAITS BECAUSE", "waits"),
    ),
    Kind.REQUESTS: (
        Column("NAME", "name"),
        Column("GANG", "gang"),
        Column("PHASE", "phase"),
        Column("BOUND", "bound", is_number=True),
        Column("NODES", "nodes"),
        Column("ATTEMPTS", "attempts", is_number=True),
        Column("AGE", "age"),
        Column("REASON", "reason"),
    ),
}


_NAMES: Final[dict[str, Kind]] = {
    **dict.fromkeys(("queues", "queue", "bq"), Kind.QUEUES),
    **dict.fromkeys(("gangs", "gang", "podgroups", "podgroup", "pg"), Kind.GANGS),
    **dict.fromkeys(("requests", "request", "bindrequests", "bindrequest", "br"), Kind.REQUESTS),
}
"""The names of the kinds, as in kubectl."""

_EXAMPLES = examples(
    ("get gangs -A", "gangs of all namespaces, and why they wait"),
    ("get pg -n team", "kinds may be named as for kubectl: pg, queue, br"),
    ("get gangs -A --idle", "gangs whose GPUs are idle for longer than their queue allows"),
    ("get requests --gang train", "what the binder does with a gang; pod/NAME for a single pod"),
    ("get requests -n team -o json", "for programs"),
)


def _kind(name: str) -> Kind:
    try:
        return _NAMES[name.lower()]
    except KeyError:
        raise typer.BadParameter(f"{name} is none of {', '.join(Kind)}, queue, pg, br") from None


@app.command(epilog=_EXAMPLES)
def get(
    context: typer.Context,
    kind: Annotated[
        Kind, typer.Argument(parser=_kind, metavar="|".join(Kind), help="What to show.")
    ],
    namespace: NamespaceOption = None,
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Objects of all namespaces.")
    ] = False,
    gang: Annotated[
        str, typer.Option("--gang", metavar="NAME", help="Only the requests of this gang.")
    ] = "",
    idle: Annotated[
        bool, typer.Option("--idle", help="Only gangs whose GPUs are idle for too long.")
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output")] = Output.TABLE,
) -> None:
    """Show queues (held/limit), gangs (and why they wait) or BindRequests.

    A BindRequest has a line for each of its Statements: each gang is bound whole or not at all.
    """
    if gang and kind is not Kind.REQUESTS:
        raise typer.BadParameter("only requests are chosen by their gang", param_hint="--gang")
    if idle and kind is not Kind.GANGS:
        raise typer.BadParameter("only gangs have idle GPUs", param_hint="--idle")
    columns, chosen = _COLUMNS[kind], ""
    if kind is Kind.QUEUES:
        chosen, where = namespace or "", "the cluster"
    elif all_namespaces:
        columns, where = (_NAMESPACE, *columns), "any namespace"
    else:
        chosen = namespace_of(context, namespace, None)
        where = f"namespace {chosen}"
    rows = _rows(context, kind, chosen, gang)
    if idle:
        rows = [row for row in rows if row["idle"]]
    if not print_list(rows, output):
        suffix = f" of gang {gang}" if gang else " with idle GPUs" if idle else ""
        print_table(columns, rows, f"There are no {kind.value}{suffix} in {where}.")


def _rows(context: typer.Context, kind: Kind, namespace: str, gang: str) -> Sequence[Row]:
    """Return the rows of `kind`; `namespace` is empty for all namespaces.

    For queues, `namespace` is used only if the user may not read the whole cluster.
    """
    with importing():
        from bindery.answers import listings
        from bindery.cli.connection import with_client
        from bindery.cli.reading import cluster

        if kind is Kind.QUEUES:
            from bindery.cli.lists.queuelisting import listed_queues

    if kind is Kind.QUEUES:
        return listed_queues(context, namespace)
    read = cluster.read_gangs if kind is Kind.GANGS else cluster.read_requests
    snapshot = with_client(context, lambda client: read(client, namespace))
    now = datetime.now(UTC)
    if kind is Kind.GANGS:
        return listings.gang_rows(snapshot, now)
    return listings.request_rows(snapshot, now, gang)
