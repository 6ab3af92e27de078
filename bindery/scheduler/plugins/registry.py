"""Builds the configured plugins and lists them by extension point."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bindery.api.configuration import PluginConfiguration
from bindery.api.names import SCHEDULER_PLUGINS
from bindery.api.plugins import PluginConfigurationError, build
from bindery.kube.resources import Resource
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.shapes import Need
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.plugins import interface as points
from bindery.scheduler.plugins.findings import HasFindings
from bindery.scheduler.plugins.timing import timed
from bindery.scheduler.plugins.view import PackingStrategies, SessionView

VictimKey = Callable[[SessionView, int, Job, Mapping[int, int]], SortKey]
"""`VictimOrder.victim_key`, or its substitute by `queue_key`."""

_UNCONFIGURED = PackingStrategies()


@dataclass
class PluginSet:
    """The plugins of a session, by extension point, each list in the configured order."""

    plugins: Sequence[points.Plugin]
    seconds: dict[str, float] = field(default_factory=dict)
    """Plugin name -> seconds spent in the plugin since the last `take_seconds`."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Plugin name -> factor of its scores; default 1."""
    queue_order: Sequence[points.QueueOrder] = field(init=False)
    victim_order: Sequence[VictimKey] = field(init=False)
    """One for each of `queue_order`."""
    job_order: Sequence[points.JobOrder] = field(init=False)
    pod_order: Sequence[points.PodOrder] = field(init=False)
    node_filters: Sequence[points.NodeFilter] = field(init=False)
    job_node_filters: Sequence[points.JobNodeFilter] = field(init=False)
    node_scores: Sequence[tuple[points.NodeScore, float]] = field(init=False)
    """Each with the factor of its scores; plugins with factor 0 are left out."""
    group_domains: Sequence[points.GroupDomains] = field(init=False)
    gang_domains: Sequence[points.GangDomains] = field(init=False)
    placement_rules: Sequence[tuple[points.PlacementRules, float]] = field(init=False)
    """Each with the factor of its scores."""
    nominated_rules: Sequence[points.NominatedRules] = field(init=False)
    device_choices: Sequence[points.DeviceChoice] = field(init=False)
    domains: Sequence[points.CandidateDomains] = field(init=False)
    validity: Sequence[points.JobValid] = field(init=False)
    capacity_gates: Sequence[points.CapacityGate] = field(init=False)
    readiness: Sequence[points.JobReady] = field(init=False)
    pipelining: Sequence[points.JobPipelined] = field(init=False)
    starvation: Sequence[points.JobStarving] = field(init=False)
    room_explanations: Sequence[points.RoomExplanation] = field(init=False)
    victim_filters: Sequence[points.VictimFilter] = field(init=False)
    ledgers: Sequence[points.LedgerProvider] = field(init=False)
    mutations: Sequence[points.BindRequestMutation] = field(init=False)
    bind_data: Sequence[tuple[str, points.BindData]] = field(init=False)
    explanations: Sequence[points.WaitExplanation] = field(init=False)
    watchers: Sequence[points.Watches] = field(init=False)
    supported: frozenset[Need] = field(init=False)
    task_validity: Sequence[points.TaskValid] = field(init=False)
    task_node_filters: Sequence[points.TaskNodeFilter] = field(init=False)
    rooms: Sequence[points.NodeRoom] = field(init=False)
    gpu_offers: Sequence[points.OffersGpus] = field(init=False)
    waits: Sequence[points.WorthWaiting] = field(init=False)
    release_gates: Sequence[points.WaitsForRelease] = field(init=False)
    effects: Sequence[tuple[str, points.BindEffects]] = field(init=False)
    finders: Sequence[HasFindings] = field(init=False)
    packing: Sequence[points.Packing] = field(init=False)
    packing_strategies: PackingStrategies = field(init=False)
    """The strategies of the first plugin that has them."""
    gpu_strategy: str | None = field(init=False)
    """The strategy of the first `GpuStrategy` plugin."""

    def __post_init__(self) -> None:
        # isinstance compares names of methods, so a plugin registers and inherits nothing.
        self.queue_order = [p for p in self.plugins if isinstance(p, points.QueueOrder)]
        self.victim_order = [_victim_key(p) for p in self.queue_order]
        self.job_order = [p for p in self.plugins if isinstance(p, points.JobOrder)]
        self.pod_order = [p for p in self.plugins if isinstance(p, points.PodOrder)]
        self.node_filters = [p for p in self.plugins if isinstance(p, points.NodeFilter)]
        self.job_node_filters = [p for p in self.plugins if isinstance(p, points.JobNodeFilter)]
        scoring = [p for p in self.plugins if isinstance(p, points.NodeScore)]
        weighted = [(p, self.weights.get(p.name, 1.0)) for p in scoring]
        self.node_scores = [(plugin, weight) for plugin, weight in weighted if weight]
        ruling = [p for p in self.plugins if isinstance(p, points.PlacementRules)]
        self.placement_rules = [(p, self.weights.get(p.name, 1.0)) for p in ruling]
        self.nominated_rules = [p for p in self.plugins if isinstance(p, points.NominatedRules)]
        self.device_choices = [p for p in self.plugins if isinstance(p, points.DeviceChoice)]
        self.domains = [p for p in self.plugins if isinstance(p, points.CandidateDomains)]
        self.gang_domains = [p for p in self.plugins if isinstance(p, points.GangDomains)]
        self.group_domains = [p for p in self.plugins if isinstance(p, points.GroupDomains)]
        self.validity = [p for p in self.plugins if isinstance(p, points.JobValid)]
        self.capacity_gates = [p for p in self.plugins if isinstance(p, points.CapacityGate)]
        self.readiness = [p for p in self.plugins if isinstance(p, points.JobReady)]
        self.pipelining = [p for p in self.plugins if isinstance(p, points.JobPipelined)]
        self.starvation = [p for p in self.plugins if isinstance(p, points.JobStarving)]
        self.room_explanations = [p for p in self.plugins if isinstance(p, points.RoomExplanation)]
        self.victim_filters = [p for p in self.plugins if isinstance(p, points.VictimFilter)]
        self.ledgers = [p for p in self.plugins if isinstance(p, points.LedgerProvider)]
        self.mutations = [p for p in self.plugins if isinstance(p, points.BindRequestMutation)]
        self.bind_data = [(p.name, p) for p in self.plugins if isinstance(p, points.BindData)]
        self.explanations = [p for p in self.plugins if isinstance(p, points.WaitExplanation)]
        self.watchers = [p for p in self.plugins if isinstance(p, points.Watches)]
        self.supported = frozenset(
            need
            for p in self.plugins
            if isinstance(p, points.Supports)
            for need in p.supported_needs()
        )
        self.task_validity = [p for p in self.plugins if isinstance(p, points.TaskValid)]
        self.task_node_filters = [p for p in self.plugins if isinstance(p, points.TaskNodeFilter)]
        self.rooms = [p for p in self.plugins if isinstance(p, points.NodeRoom)]
        self.gpu_offers = [p for p in self.plugins if isinstance(p, points.OffersGpus)]
        self.waits = [p for p in self.plugins if isinstance(p, points.WorthWaiting)]
        self.release_gates = [p for p in self.plugins if isinstance(p, points.WaitsForRelease)]
        strategies = (p.gpu_strategy() for p in self.plugins if isinstance(p, points.GpuStrategy))
        self.gpu_strategy = next(strategies, None)
        # A plugin whose scores do not count leaves packing to the others.
        packing = [p for p in self.plugins if isinstance(p, points.Packing)]
        self.packing = [p for p in packing if self.weights.get(p.name, 1.0)]
        having = (p for p in self.plugins if isinstance(p, points.HasStrategies))
        self.packing_strategies = next((p.packing_strategies() for p in having), _UNCONFIGURED)
        self.finders = [p for p in self.plugins if isinstance(p, HasFindings)]
        self.effects = [(p.name, p) for p in self.plugins if isinstance(p, points.BindEffects)]

    def watched_resources(self) -> tuple[Resource[Any], ...]:
        """Return the kinds observed by plugins, each once."""
        watched = (resource for p in self.watchers for resource in p.watched_resources())
        return tuple(dict.fromkeys(watched))

    def take_seconds(self) -> dict[str, float]:
        """Return the seconds spent in each plugin since the last call."""
        taken = dict(self.seconds)
        # The timed methods write into this very dict, so it is reset and not replaced.
        for name in self.seconds:
            self.seconds[name] = 0.0
        return taken


def _victim_key(plugin: points.QueueOrder) -> VictimKey:
    """Return the plugin's `victim_key`; its `queue_key` if it has none."""
    if isinstance(plugin, points.VictimOrder):
        return plugin.victim_key
    return lambda session, row, job, _: plugin.queue_key(session, row, job)


def load(configured: Sequence[PluginConfiguration]) -> PluginSet:
    """Return the configured plugins, built from their entry points.

    Raises:
        PluginConfigurationError: a plugin is unknown, does not accept its arguments, or has a
            weight although it does not score nodes.
    """
    seconds: dict[str, float] = {}
    plugins = [timed(plugin, seconds) for plugin in build(configured, _installed(tuple(sys.path)))]
    for index, (item, plugin) in enumerate(zip(configured, plugins, strict=True)):
        if item.weight != 1.0 and not isinstance(plugin, points.NodeScore):
            raise PluginConfigurationError(
                ("plugins", index, "weight"), f"plugin {item.name} does not score nodes"
            )
    return PluginSet(plugins, seconds, {item.name: item.weight for item in configured})


@lru_cache(maxsize=4)  # the search reads a file of each installed distribution
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001  # is the key
    """Return the entry points of scheduler plugins; `path` is `sys.path`, the key of the cache."""
    return tuple(entry_points(group=SCHEDULER_PLUGINS))
