"""The configuration with which a command plans: of a file, of the scheduler, or the default.

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
    from bindery.kube.client import Client  # it imports the HTTP library, which files do without


def configured(origin: Origin, default: SchedulerConfiguration) -> SchedulerConfiguration:
    """Return the configuration that `origin` names, or `default`.

    Raises:
        FileError: the file cannot be used.
    """
    found = default if origin.config is None else load(SchedulerConfiguration, origin.config)
    if origin.node_pool is None:
        return found
    return found.model_copy(update={"node_pool": origin.node_pool})


async def read_planner(client: "Client", origin: Origin, lease_namespace: str) -> Planner:
    """Return the scheduler that `origin` names, with the configuration that it publishes.

    A configuration file in `origin` comes before what is published.

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
