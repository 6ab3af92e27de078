"""What a question is about: the live cluster, or the one that a scenario file begins with.

Used by `explain`, `queues` and `whatif`. Either way it is a `Look` and the configuration that plans
it; nothing is ever written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
import typer

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import POD_GROUP_ANNOTATION
from bindery.api.yamlfile import FileError, load
from bindery.cli.cluster import Look
from bindery.cli.connection import with_client
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.live import look
from bindery.cli.options import Origin
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects import (
    BindRequest,
    KubeObject,
    Node,
    OwnerReference,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
)
from bindery.kube.store import Change
from bindery.scenario.cluster import ScenarioCluster
from bindery.scenario.files import read_scenarios
from bindery.scenario.format import Scenario
from bindery.scheduler.engine import UnknownActionError
from bindery.scheduler.fairness.usage import History
from bindery.scheduler.insight.world import World
from bindery.scheduler.plugins.registry import PluginError
from bindery.scheduler.usage.codec import RecordError, decode
from bindery.scheduler.usage.keeping import record_name
from bindery.scheduler.usage.record import UsageRecord
from bindery.scheduler.usage.source import GivenUsage, PastUsage
from bindery.scheduler.usage.store import RecordStore

Item = TypeVar("Item", bound=KubeObject)

_OWN_KINDS = (Pod, Node, PodGroup, Queue, BindRequest, PriorityClass)


@dataclass(frozen=True)
class Source:
    """A cluster as of one moment, and who plans it."""

    look: Look
    configuration: SchedulerConfiguration
    now: datetime
    past: History | Mapping[str, Mapping[str, float]] | None = None
    """What queues have used: the scheduler's record, or queue -> resource -> part of capacity."""

    def in_pool(self, node_pool: str) -> "Source":
        """Return the same cluster for the scheduler of `node_pool`."""
        configuration = self.configuration.model_copy(update={"node_pool": node_pool})
        return replace(self, configuration=configuration)

    def later(self, seconds: float) -> "Source":
        """Return the same cluster, looked at `seconds` later."""
        return replace(self, now=self.now + timedelta(seconds=seconds))

    def world(self) -> World:
        """Return the scheduler's view of it, to be played with.

        Raises:
            CommandError: the configuration names an action or a plugin that is not there.
        """
        objects = (*self.look.everything(), *self.look.budgets, *self.look.workload_jobs)
        try:
            world = World(objects, self.configuration, self.now.timestamp())
        except (UnknownActionError, PluginError) as error:
            raise CommandError(f"the configuration: {error}", ExitCode.BAD_INPUT) from error
        if isinstance(self.past, History):
            source = world.engine.past.source
            assert isinstance(source, UsageRecord), "it was read for the configuration"
            source.precede(self.past)
        elif self.past:
            k_value = self.configuration.usage.k_value
            world.engine.past = PastUsage(GivenUsage(self.past), k_value)
        return world


def read_source(context: typer.Context, origin: Origin, *, with_jobs: bool = False) -> Source:
    """Return what `origin` names, read once; of a cluster also its Jobs if asked `with_jobs`.

    Raises:
        FileError: a file cannot be used.
        KubeError: the cluster does not answer, or refuses.
    """
    if origin.file is not None:
        scenario = _only_scenario(origin.file)
        used = {queue.name: queue.usage for queue in scenario.queues if queue.usage}
        configuration = _configured(origin, scenario.config.to_configuration())
        return Source(look_at(scenario), configuration, scenario.now, used)
    configuration = _configured(origin, SchedulerConfiguration())

    async def read(client: Client) -> Source:
        seen = await look(client, configuration.plugins, with_jobs=with_jobs)
        past = await _record(client, configuration)
        return Source(seen, configuration, datetime.now(UTC), past)

    return with_client(context, read)


def _configured(origin: Origin, default: SchedulerConfiguration) -> SchedulerConfiguration:
    """Return the configuration that `origin` names, or `default`.

    Raises:
        FileError: the file cannot be used.
    """
    found = default if origin.config is None else load(SchedulerConfiguration, origin.config)
    if origin.node_pool is None:
        return found
    return found.model_copy(update={"node_pool": origin.node_pool})


async def _record(client: Client, configuration: SchedulerConfiguration) -> History | None:
    """Return what the scheduler has recorded of past usage, if it does and the user may see it."""
    if configuration.usage.source != "record":
        return None
    namespace = configuration.leader_election.namespace
    try:
        text = await RecordStore(client, record_name(configuration), namespace).load()
        return decode(text)[0] if text else None
    except (ForbiddenError, RecordError):
        return None


def look_at(scenario: Scenario) -> Look:
    """Return the cluster with which `scenario` begins, as the command line sees one."""
    items = objects_of(scenario)
    return Look(
        pods=_of(Pod, items),
        nodes=_of(Node, items),
        groups=_of(PodGroup, items),
        queues=_of(Queue, items),
        requests=_of(BindRequest, items),
        priority_classes=_of(PriorityClass, items),
        further=tuple(item for item in items if not isinstance(item, _OWN_KINDS)),
    )


def objects_of(scenario: Scenario) -> list[KubeObject]:
    """Return all objects with which `scenario` begins; pods that come back have a controller."""
    changes: list[Change[KubeObject]] = []
    cluster = ScenarioCluster(scenario, changes.append)
    cluster.populate()
    lasting = {record.who.uid for record in cluster.pods.values() if record.who.recreate}
    return [
        _controlled(change.object)
        if isinstance(change.object, Pod) and change.object.metadata.uid in lasting
        else change.object
        for change in changes
    ]


def _controlled(pod: Pod) -> Pod:
    job = pod.metadata.annotations.get(POD_GROUP_ANNOTATION, "")
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=job, controller=True)
    meta = msgspec.structs.replace(pod.metadata, owner_references=[owner])
    return msgspec.structs.replace(pod, metadata=meta)


def _only_scenario(path: Path) -> Scenario:
    found = list(read_scenarios(path))
    for item in found:
        if isinstance(item, FileError):
            raise item
    if len(found) != 1:
        raise FileError(str(path), 1, f"one scenario is expected, {len(found)} found")
    (scenario,) = found
    assert isinstance(scenario, Scenario), "errors have been raised"
    return scenario


def _of(kind: type[Item], items: Iterable[KubeObject]) -> tuple[Item, ...]:
    return tuple(item for item in items if isinstance(item, kind))
