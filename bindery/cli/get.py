"""`bindery get`: queues, gangs and BindRequests as tables or JSON.

`cluster` reads what is shown, `listings` and `queuerows` make the rows, `tables` prints them. What
a kind needs is imported when it is asked for.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from bindery.cli.importing import importing
from bindery.cli.options import NamespaceOption, examples, namespace_of
from bindery.cli.tables import Column, Row, print_json, print_table

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
        Column("GANGS", "gangs", is_number=True),
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
        Column("AGE", "age"),
        Column("WAITS BECAUSE", "waits"),
    ),
    Kind.REQUESTS: (
        Column("NAME", "name"),
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
"""What users call the kinds, as kubectl has them."""

_EXAMPLES = examples(
    ("get gangs -A", "gangs of all namespaces, and why they wait"),
    ("get pg -n team", "kinds may be named as for kubectl: pg, queue, br"),
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
        Kind,
        typer.Argument(parser=_kind, metavar="|".join(Kind), help="What to show."),
    ],
    namespace: NamespaceOption = None,
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Objects of all namespaces.")
    ] = False,
    output: Annotated[Output, typer.Option("-o", "--output")] = Output.TABLE,
) -> None:
    """Show queues (held/limit), gangs (and why they wait) or BindRequests."""
    columns, chosen = _COLUMNS[kind], ""
    if kind is Kind.QUEUES:
        where = "the cluster"
    elif all_namespaces:
        columns, where = (_NAMESPACE, *columns), "any namespace"
    else:
        chosen = namespace_of(context, namespace, None)
        where = f"namespace {chosen}"
    rows = _rows(context, kind, chosen)
    if output is Output.JSON:
        print_json(rows)
    else:
        print_table(columns, rows, f"There are no {kind.value} in {where}.")


def _rows(context: typer.Context, kind: Kind, namespace: str) -> Sequence[Row]:
    """Return the rows of `kind`; `namespace` is empty for those of all namespaces."""
    with importing():
        from bindery.cli import cluster, listings
        from bindery.cli.connection import with_client

        if kind is Kind.QUEUES:
            from bindery.cli.queuerows import queue_rows

    if kind is Kind.QUEUES:
        return queue_rows(with_client(context, cluster.read_queues))
    if kind is Kind.GANGS:
        read, make = cluster.read_gangs, listings.gang_rows
    else:
        read, make = cluster.read_requests, listings.request_rows
    snapshot = with_client(context, lambda client: read(client, namespace))
    return make(snapshot, datetime.now(UTC))
