"""The queues of a user with read access to only one namespace, as a table.

Called by `queuepicture` and `queuelisting`. The figures come from the status of the user's own
gangs.
"""

from collections.abc import Sequence
from typing import Final

import typer

from bindery.answers.amounts import plain
from bindery.answers.ownqueues import listed_row, queues_in, share_row
from bindery.answers.rows import Row
from bindery.api.names import GPU_RESOURCE
from bindery.cli.connection import chosen_namespace, with_client
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.options import WideFormat
from bindery.cli.reading.cluster import read_own
from bindery.cli.tables import Column, print_list, print_table
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.podgroups import GangQueue

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

    `refusal`: the reason why the whole cluster cannot be read.

    Raises:
        ForbiddenError: the user may not read the namespace either.
        CommandError: no gang in the namespace has figures.
    """
    name = "gpu" if resource == GPU_RESOURCE else resource
    write = plain if output in (WideFormat.TEXT, WideFormat.WIDE) else _as_written
    rows = [share_row(each, name, write) for each in _read(context, None, refusal)]
    if not print_list(rows, output):
        print_table(_COLUMNS, rows, "")


def own_listing(context: typer.Context, namespace: str, refusal: ForbiddenError) -> Sequence[Row]:
    """Return the rows of `bindery get queues`; `namespace`: of the gangs; "": the context's.

    Raises:
        ForbiddenError: the user may not read the namespace either.
        CommandError: no gang in the namespace has figures.
    """
    return [listed_row(each) for each in _read(context, namespace or None, refusal)]


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
