"""The grouper of a live cluster: its existence and its rows. Used by `submission`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bindery.api.names import GROUPER_LEASE
from bindery.api.yamlfile import Document, FileError
from bindery.grouper.table.loading import table_of
from bindery.grouper.table.publishing import RowsNotPublishedError, published
from bindery.kube.errors import ForbiddenError, NotFoundError
from bindery.kube.objects.resources import LEASES

if TYPE_CHECKING:
    from bindery.kube.client import Client  # imports HTTP, which files do not need


@dataclass(frozen=True)
class GrouperRows:
    """The rows of users that the grouper uses."""

    documents: tuple[Document, ...] = ()
    is_there: bool = True
    """Whether a grouper has run in the cluster."""
    problem: str = ""
    """Reason why the grouper's rows may differ; empty if they are known."""


async def read_rows(client: "Client", lease_namespace: str) -> GrouperRows:
    """Return the rows that the grouper publishes on its Lease.

    A failed read becomes the answer's `problem`.
    """
    where = f"Lease {lease_namespace}/{GROUPER_LEASE}"
    try:
        lease = await client.get(LEASES, GROUPER_LEASE, lease_namespace)
        documents = tuple(published(lease.metadata.annotations, where))
        table_of(documents)
    except NotFoundError:
        return GrouperRows(is_there=False)
    except ForbiddenError:
        return GrouperRows(problem=f"this user may not read {where}: rows of users are not known")
    except RowsNotPublishedError:
        text = "the rows of users are too large to be published; give them with --rows"
        return GrouperRows(problem=text)
    except FileError as error:
        return GrouperRows(problem=f"the rows of users cannot be read: {error}")
    return GrouperRows(documents)
