"""A scenario: the model of one YAML document.

`files` reads it, `checks` has the rules about several keys, `support` names features that do not
exist yet. Invariant: every key of the format has a field here, so that a misspelt key is an error.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from pydantic import AwareDatetime, Field

from bindery.api.configuration import (
    BackfillConfiguration,
    BindRequestConfiguration,
    DisruptionConfiguration,
    SchedulerConfiguration,
)
from bindery.api.gpus import DEFAULT_GPU_DEVICE_CLASSES, DEFAULT_GPU_RESOURCES
from bindery.api.usage import UsageConfiguration
from bindery.kube.objects.resources import Resource
from bindery.scenario.events import Event, Fault, InFlightRequest
from bindery.scenario.expect import Expectation
from bindery.scenario.fields import AnyObject, Repetitions, ScenarioModel
from bindery.scenario.jobs import ScenarioJob
from bindery.scenario.nodes import HyperNode, ScenarioNode, Topology
from bindery.scenario.queues import ScenarioQueue


class ObjectName(NamedTuple):
    """Identifies an object of a kind. The namespace of a cluster-wide one means nothing."""

    namespace: str
    name: str


class ConfigurationOverrides(ScenarioModel):
    """Changes to the scheduler's default configuration, or to the one in `scheduler`."""

    scheduler: SchedulerConfiguration | None = None
    """The whole configuration of a scheduler; the other keys change it. Default: Bindery's own."""
    actions: tuple[str, ...] | None = None
    """Default: all that exist."""
    plugins: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By plugin: the arguments that differ."""
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """By plugin: the factor of its scores; default 1."""
    without_plugins: tuple[str, ...] = ()
    """Plugins of the default configuration that are disabled."""
    node_pool: str = ""
    gpu_resources: tuple[str, ...] = DEFAULT_GPU_RESOURCES
    gpu_device_classes: tuple[str, ...] = DEFAULT_GPU_DEVICE_CLASSES
    bind_request: BindRequestConfiguration = BindRequestConfiguration()
    failed_node_cooldown_seconds: float = Field(default=60.0, ge=0)
    usage: UsageConfiguration = UsageConfiguration()
    backfill: BackfillConfiguration = BackfillConfiguration()
    disruption: DisruptionConfiguration = DisruptionConfiguration()
    staleness_grace_period_seconds: float = 60.0

    def arguments(self, plugin: str) -> dict[str, Any]:
        """Return the arguments of `plugin` that differ."""
        return dict(self.plugins.get(plugin, {}))

    def to_configuration(self) -> SchedulerConfiguration:
        """Return the scheduler's configuration with the overrides in it."""
        # Nobody forges the binder's records in a scenario.
        base = self.scheduler or SchedulerConfiguration(tenancy_policy_enforced=True)
        plugins = tuple(
            plugin.model_copy(
                update={
                    "arguments": self.plugins.get(plugin.name, plugin.arguments),
                    "weight": self.weights.get(plugin.name, plugin.weight),
                }
            )
            for plugin in base.plugins
            if plugin.name not in self.without_plugins
        )
        given = self.model_fields_set & (SchedulerConfiguration.model_fields.keys() - {"plugins"})
        changes = {key: getattr(self, key) for key in given}
        if self.actions is None:
            changes.pop("actions", None)
        return base.model_copy(update={**changes, "plugins": plugins})


class Scenario(ScenarioModel):
    """A small cluster, the jobs that are submitted, and the expected result."""

    name: str = ""
    config: ConfigurationOverrides = ConfigurationOverrides()
    origin: Any = ""
    needs: Any = ()
    now: AwareDatetime = datetime(2026, 1, 1, tzinfo=UTC)
    nodes: tuple[ScenarioNode, ...] = ()
    topologies: tuple[Topology, ...] = ()
    hyper_nodes: tuple[HyperNode, ...] = ()
    queues: tuple[ScenarioQueue, ...] = ()
    priority_classes: dict[str, int] = Field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The labels of namespaces, beside the one with their name."""
    resource_quotas: tuple[AnyObject, ...] = ()
    resource_slices: tuple[AnyObject, ...] = ()
    device_classes: tuple[AnyObject, ...] = ()
    resource_claims: tuple[AnyObject, ...] = ()
    resource_claim_templates: tuple[AnyObject, ...] = ()
    volumes: tuple[AnyObject, ...] = ()
    objects: tuple[AnyObject, ...] = ()
    """Whole objects of any kind that the scheduler watches."""
    jobs: tuple[ScenarioJob, ...] = ()
    bind_requests: tuple[InFlightRequest, ...] = ()
    events: tuple[Event, ...] = ()
    faults: tuple[Fault, ...] = ()
    rounds: Annotated[Repetitions, Field(ge=1)] = 1
    settle: Repetitions = 0
    expect: Expectation = Expectation()

    def priority(self, of: str | int) -> int | None:
        """Return the number that a priority stands for, or None for an unknown name."""
        if isinstance(of, int):
            return of
        return {**BUILT_IN_PRIORITIES, **self.priority_classes}.get(of)

    def objects_of(self, resource: Resource[Any]) -> list[ObjectName]:
        """Return the names of the objects of a kind under the key `objects`."""
        return [
            ObjectName(str(meta.get("namespace") or "default"), meta["name"])
            for item in self.objects
            if item.get("kind") == resource.kind
            if item.get("apiVersion") == resource.api_version
            if isinstance(meta := item.get("metadata"), dict) and isinstance(meta.get("name"), str)
        ]

    def all_jobs(self) -> tuple[ScenarioJob, ...]:
        """Return the initial jobs and the jobs of events."""
        return self.jobs + tuple(event.job for event in self.events if event.job is not None)


BUILT_IN_PRIORITIES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The priority classes that every scenario has."""
