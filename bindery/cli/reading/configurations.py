"""The configuration with which a command plans: from a file, from the scheduler, or the default.

Used by `livesource` and `scenariosource`.
"""

from typing import TYPE_CHECKING

from bindery.answers.leaders import confirmed, read_leader
from bindery.answers.planner import Planner, configuration_of, difference
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import scheduler_lease
from bindery.api.yamlfile import load
from bindery.cli.options import Origin

if TYPE_CHECKING:
    from bindery.kube.client import Client  # imports HTTP, which files do not need


def configured(origin: Origin, default: SchedulerConfiguration) -> SchedulerConfiguration:
    """Return the configuration of the file in `origin`, or `default`.

    Raises:
        FileError: the file cannot be used.
    """
    found = default if origin.config is None else load(SchedulerConfiguration, origin.config)
    if origin.node_pool is None:
        return found
    return found.model_copy(update={"node_pool": origin.node_pool})


async def read_planner(client: "Client", origin: Origin, lease_namespace: str) -> Planner:
    """Return the scheduler of the node pool in `origin`, with its published configuration.

    A configuration file in `origin` has priority over the published configuration.

    Raises:
        FileError: the configuration file cannot be used.
    """
    given = configured(origin, SchedulerConfiguration())
    if origin.config is not None:
        lease_namespace = given.leader_election.namespace
    seen = await read_leader(client, scheduler_lease(given.node_pool), lease_namespace)
    leader = await confirmed(client, seen)
    if origin.config is not None:
        return Planner(given, leader, difference(given, leader, str(origin.config)))
    configuration, deviation = configuration_of(leader)
    used = configuration.model_copy(update={"node_pool": given.node_pool})
    return Planner(used, leader, deviation)
