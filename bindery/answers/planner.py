"""The scheduler of a node pool, its leader and its configuration, for answers that predict plans.

`source` has it for a live cluster; answers that depend on a plan name it.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from bindery.answers.leaders import Leader, Leading, read_leader
from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.names import scheduler_lease
from bindery.api.plugins import PluginConfigurationError
from bindery.api.yamlfile import describe, format_location
from bindery.kube.publication import Publication, configuration_hash
from bindery.scheduler.actions import registry as actions
from bindery.scheduler.plugins import registry

if TYPE_CHECKING:
    from bindery.kube.client import Client  # imports HTTP, which files do not need


_UNSERVED: Final = frozenset({Leading.ABSENT, Leading.NEVER, Leading.FORBIDDEN})
"""The states of the Lease of a pool without a scheduler. Readers may read only the Leases of a
release.
"""


@dataclass(frozen=True)
class Planner:
    """The scheduler of a node pool, and the configuration with which a command plans for it."""

    configuration: SchedulerConfiguration
    leader: Leader
    deviation: str = ""
    """Reason why the plan may differ from the scheduler's; empty for equal configurations."""
    served_pools: tuple[str, ...] = ()
    """Other node pools with a leading scheduler; read only if this pool has no known leader."""

    @property
    def unserved(self) -> str:
        """Text that no scheduler serves this node pool, but other pools are served; else empty."""
        if self.leader.state not in _UNSERVED or not self.served_pools:
            return ""
        pool = self.configuration.node_pool
        served = ", ".join(map(_pool_text, self.served_pools))
        near = get_close_matches(pool, [each for each in self.served_pools if each], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        state = self.leader.text()
        return (
            f"no scheduler is known to serve {_pool_text(pool)}, so nobody places its pods "
            f"({state}); a scheduler leads in {served}{hint}"
        )

    @property
    def absence(self) -> str:
        """The reason why no scheduler leads; empty while one leads, or if it is unknown."""
        if self.leader.leads or self.leader.state is Leading.FORBIDDEN:
            return ""
        return self.leader.text()

    @property
    def problem(self) -> str:
        """The reason why a later change of the scheduler's file cannot be used; else empty."""
        published = self.leader.publication
        return (published.problem or "") if published is not None else ""

    def lines(self) -> Iterator[str]:
        """Yield lines about the configuration and the leader."""
        changed = [key for key in self.configuration.to_wire() if key != "nodePool"]
        uses = f"differs from the defaults in {', '.join(changed)}" if changed else "the defaults"
        uses = f"hash {configuration_hash(self.configuration)}, {uses}"
        if self.deviation:
            yield f"Configuration: {self.deviation} ({uses})."
        else:
            yield f"Configuration: that of the scheduler ({uses})."
        if self.problem:
            yield f"A later change of its file cannot be used: {self.problem}"
        state = self.leader.text()
        yield f"Scheduler: {state}." if self.leader.leads else f"No scheduler leads: {state}."

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON form."""
        unserved = {"unserved": self.unserved} if self.unserved else {}
        return {
            **unserved,
            "lease": f"{self.leader.namespace}/{self.leader.lease}",
            "state": self.leader.state.value,
            "holder": self.leader.holder,
            "since": self.leader.since,
            "renewed": self.leader.renewed,
            "configuration": {
                "hash": configuration_hash(self.configuration),
                "changes": self.configuration.to_wire(),
                "deviation": self.deviation,
                "problem": self.problem,
            },
        }


def _pool_text(pool: str) -> str:
    return f"node pool {pool}" if pool else "the default node pool"


async def with_served_pools(
    client: "Client", planner: Planner, pools: Iterable[str], lease_namespace: str
) -> Planner:
    """Return `planner` with the served ones of `pools`, if its own pool is not served."""
    others = sorted({"", *pools} - {planner.configuration.node_pool})
    if planner.leader.state not in _UNSERVED:
        return planner
    leaders = await asyncio.gather(
        *(read_leader(client, scheduler_lease(pool), lease_namespace) for pool in others)
    )
    served = (pool for pool, leader in zip(others, leaders, strict=True) if leader.leads)
    return replace(planner, served_pools=tuple(served))


def configuration_of(leader: Leader) -> tuple[SchedulerConfiguration, str]:
    """Return the configuration published by `leader`, and the reason if another one may be in use.

    If it cannot be read, the defaults are used.
    """
    publication = leader.publication
    if publication is None:
        return SchedulerConfiguration(), f"the defaults, because {_why_unpublished(leader)}"
    if publication.changes is None:
        text = "the scheduler's is too large to be published; give it with --config"
        return SchedulerConfiguration(), f"the defaults, because {text}"
    try:
        found = SchedulerConfiguration.model_validate(publication.changes)
    except ValidationError as error:
        problem = error.errors()[0]
        text = f"{format_location(problem['loc'])}: {describe(problem)}"
        return SchedulerConfiguration(), (
            f"the defaults, because this command cannot read that of bindery {publication.version}:"
            f" {text}"
        )
    return _installed(found, publication)


def _installed(
    found: SchedulerConfiguration, publication: Publication
) -> tuple[SchedulerConfiguration, str]:
    """Return `found` without plugins that are not installed here, and a text about the
    difference.
    """
    try:
        actions.make(found)
    except actions.UnknownActionError as error:
        text = f"this command does not know one of the scheduler's actions: {error}"
        return SchedulerConfiguration(), f"the defaults, because {text}"
    plugins: list[PluginConfiguration] = []
    missing: list[str] = []
    for plugin in found.plugins:
        try:
            registry.load((plugin,))
            plugins.append(plugin)
        except PluginConfigurationError:
            missing.append(plugin.name)
    if missing:
        used = found.model_copy(update={"plugins": tuple(plugins)})
        text = "that of the scheduler without plugins that are not installed here"
        return used, f"{text}: {', '.join(missing)}"
    if configuration_hash(found) != publication.hash:
        text = f"that of the scheduler, but bindery {publication.version} has other defaults"
        return found, text
    return found, ""


def _why_unpublished(leader: Leader) -> str:
    match leader.state:
        case Leading.ABSENT:
            return f"there is no Lease {leader.namespace}/{leader.lease}"
        case Leading.FORBIDDEN:
            return (
                f"this user may not read Lease {leader.namespace}/{leader.lease} "
                "(ClusterRole bindery-reader)"
            )
        case Leading.NEVER:
            return "no scheduler has run"
        case _:
            return "the scheduler publishes none (an older version)"


def difference(given: SchedulerConfiguration, leader: Leader, file: str) -> str:
    """Return the reason why plans with `given`, read from `file`, may differ from the
    scheduler's.
    """
    publication = leader.publication
    if publication is None or publication.hash == configuration_hash(given):
        return file
    return f"{file}, which differs from that of the scheduler (hash {publication.hash})"
