"""Reads the Leases of the scheduler, the binder and the grouper, and their holders.

Used by `planner` and `components`. Imports neither pydantic nor the scheduler, which `bindery
version` does not need.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from bindery.api.times import age, seconds
from bindery.kube.errors import ForbiddenError, NotFoundError
from bindery.kube.objects.resources import LEASES
from bindery.kube.objects.watched import Lease
from bindery.kube.publication import Publication, published

if TYPE_CHECKING:
    from bindery.kube.client import Client  # imports HTTP, which files do not need

_AGAIN_S: Final = 3.0
"""Longer than the time between two renewals, with jitter."""


class Leading(StrEnum):
    """The state of a component by its Lease."""

    LEADS = "leads"
    ENDED = "ended"
    """The holder has not renewed the Lease in time: the process or its connection has failed."""
    RELEASED = "released"
    """The last holder has ended normally, and no other process has taken the Lease."""
    NEVER = "never held"
    ABSENT = "absent"
    """There is no such Lease: the component is not installed."""
    FORBIDDEN = "forbidden"
    """The user may not read the Lease."""


@dataclass(frozen=True)
class Leader:
    """The state of one Lease."""

    lease: str
    """The name of the Lease."""
    namespace: str
    state: Leading
    holder: str = ""
    since: str | None = None
    """Time when the holder took the Lease; RFC 3339."""
    renewed: str | None = None
    """Time of the last renewal; RFC 3339."""
    ended_s: float = 0.0
    """Seconds since the end of the Lease; 0 while it is held."""
    publication: Publication | None = None
    """The configuration of the holder, or of the last holder."""
    read_at: datetime | None = None
    """Time of the read, to which ages refer. None if the Lease was not read."""

    @property
    def leads(self) -> bool:
        """Whether a process holds the Lease."""
        return self.state is Leading.LEADS

    @property
    def led_for(self) -> str:
        """Time for which the holder had led at the read; empty without a holder."""
        return self._age(self.since) if self.leads else ""

    @property
    def renewed_ago(self) -> str:
        """Time between the last renewal and the read; empty without a renewal."""
        return self._age(self.renewed)

    def _age(self, at: str | None) -> str:
        return age(at, self.read_at) if self.read_at is not None else ""

    def text(self) -> str:
        """Return the state as a clause."""
        where = f"Lease {self.namespace}/{self.lease}"
        without = "a process without leader election has none"
        match self.state:
            case Leading.LEADS:
                led, renewed = self.led_for, self.renewed_ago
                return f"{self.holder} leads for {led}; {where} was renewed {renewed} ago"
            case Leading.ENDED:
                return f"{where} of {self.holder} ended {self.ended_s:.0f} s ago"
            case Leading.RELEASED:
                return f"{where} was released {self.renewed_ago} ago"
            case Leading.NEVER:
                return f"{where} has never been held ({without})"
            case Leading.ABSENT:
                return f"there is no {where} ({without})"
            case Leading.FORBIDDEN:
                return f"this user may not read {where}"


async def read_leader(client: "Client", name: str, namespace: str) -> Leader:
    """Return the state of the Lease `name` by this machine's clock."""
    try:
        return leader(await client.get(LEASES, name, namespace), datetime.now(UTC))
    except NotFoundError:
        return Leader(name, namespace, Leading.ABSENT)
    except ForbiddenError:
        return Leader(name, namespace, Leading.FORBIDDEN)


async def confirmed(client: "Client", seen: Leader) -> Leader:
    """Return `seen`, or the state from a second read if the Lease seemed to have ended.

    Clocks of machines differ: if the Lease was renewed between the two reads, it is held.
    """
    if seen.state is not Leading.ENDED:
        return seen
    await asyncio.sleep(_AGAIN_S)
    later = await read_leader(client, seen.lease, seen.namespace)
    if later.state is Leading.ENDED and later.renewed != seen.renewed:
        return replace(later, state=Leading.LEADS, ended_s=0.0)
    return later


def leader(lease: Lease, now: datetime) -> Leader:
    """Return the state of `lease` at `now`."""
    spec, meta = lease.spec, lease.metadata
    renewed = seconds(spec.renew_time)
    ended_s = 0.0
    if renewed is None:
        state = Leading.NEVER
    elif not spec.holder_identity:
        state = Leading.RELEASED
    else:
        ended_s = max(0.0, now.timestamp() - renewed - (spec.lease_duration_seconds or 0))
        state = Leading.ENDED if ended_s else Leading.LEADS
    return Leader(
        meta.name,
        meta.namespace,
        state,
        spec.holder_identity or "",
        spec.acquire_time,
        spec.renew_time,
        ended_s,
        published(meta.annotations),
        now,
    )
