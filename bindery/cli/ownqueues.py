"""The queues of a user who may read a single namespace only, as a table.

Called by `queuepicture` and `queuelisting`. The figures are those in the status of the user's own
gangs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import typer

from bindery.api.names import GPU_RESOURCE
from bindery.cli.amounts import plain
from bindery.cli.connection import chosen_namespace, with_client
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.options import WideFormat
from bindery.cli.ownobjects import queues_in, read_own
from bindery.cli.tables import Column, Row, print_json, print_table, print_yaml
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects import GangQueue

_COLUMNS: Final = (
    Column("QUEUE", "name"),
    Column("HELD", "allocated", is_number=True),
    Column("ASKED", "requested", is_number=True),
    Column("FAIR", "fairShare", is_number=True),
    Column("QUOTA", "quota", is_number=True),
    Column("LIMIT", "limit", is_number=True),
    Column("RUNNING", "running", is_number=True),
    Column("WAITING", "waiting", is_number=True),
)


def show_own(
    context: typer.Context, resource: str, output: WideFormat, refusal: ForbiddenError
) -> None:
    """Print the queues of the gangs in the namespace of the context.

    `refusal`: why the cluster cannot be read as a whole.

    Raises:
        ForbiddenError: the user may not read the namespace either.
        CommandError: no gang there has figures.
    """
    name = "gpu" if resource == GPU_RESOURCE else resource
    write = plain if output in (WideFormat.TEXT, WideFormat.WIDE) else _as_written
    rows = [_row(each, name, write) for each in _read(context, None, refusal)]
    if output is WideFormat.JSON:
        print_json(rows)
    elif output is WideFormat.YAML:
        print_yaml(rows)
    else:
        print_table(_COLUMNS, rows, "")


def own_listing(context: typer.Context, namespace: str, refusal: ForbiddenError) -> Sequence[Row]:
    """Return the rows of `bindery get queues`; `namespace`: where the gangs are; "": the context's.

    Raises:
        ForbiddenError: the user may not read the namespace either.
        CommandError: no gang there has figures.
    """
    return [_listed(each) for each in _read(context, namespace or None, refusal)]


def _read(
    context: typer.Context, namespace: str | None, refusal: ForbiddenError
) -> Sequence[GangQueue]:
    where = chosen_namespace(context, namespace)
    try:
        found = queues_in(with_client(context, lambda client: read_own(client, where)))
    except ForbiddenError:
        raise refusal from None
    if not found:
        raise CommandError(
            f"no gang in namespace {where} has the figures of its queue, "
            f"and this user may not read the cluster ({refusal})",
            ExitCode.NO_CLUSTER,
        )
    return [queue for _, queue in sorted(found.items())]


def _as_written(_resource: str, amount: str) -> str:
    return amount


def _row(queue: GangQueue, resource: str, write: Callable[[str, str], str]) -> Row:
    def of(amounts: Mapping[str, str]) -> str:
        return write(resource, amounts.get(resource, "-"))

    return {
        "name": queue.name,
        "resource": resource,
        "allocated": of(queue.allocated),
        "requested": of(queue.requested),
        "fairShare": of(queue.fair_share),
        "quota": of(queue.quota),
        "limit": of(queue.limit),
        "running": queue.gangs.running,
        "waiting": queue.gangs.pending,
    }


def _listed(queue: GangQueue) -> Row:
    shares = {
        name: "/".join(
            plain(name, amount)
            for amount in (queue.allocated.get(name, "0"), queue.limit.get(name, "-"))
        )
        for name in ("gpu", "cpu", "memory")
    }
    return {
        "name": queue.name,
        "parent": "",
        "priority": "",
        "state": "",
        **shares,
        "kept": "",
        "running": queue.gangs.running,
        "waiting": queue.gangs.pending,
        "problem": "",
    }
