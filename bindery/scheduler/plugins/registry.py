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
from bindery.scheduler.plugins.findings import HasFindings
from bindery.scheduler.plugins.interface import jobs, nodes, state
from bindery.scheduler.plugins.interface.base import Plugin
from bindery.scheduler.plugins.timing import timed
from bindery.scheduler.plugins.view import PackingStrategies, SessionView

VictimKey = Callable[[SessionView, int, Job, Mapping[int, int]], SortKey]
"""`VictimOrder.victim_key`, or its substitute by `queue_key`."""

_UNCONFIGURED = PackingStrategies()


@dataclass
class PluginSet:
    """The plugins of a session, by extension point, each list in the configured order."""

    plugins: Sequence[Plugin]
    seconds: dict[str, float] = field(default_factory=dict)
    """Plugin name -> seconds spent in the plugin since the last `take_seconds`."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Plugin name -> factor of its scores; default 1."""
    queue_order: Sequence[jobs.QueueOrder] = field(init=False)
    victim_order: Sequence[VictimKey] = field(init=False)
    """One for each of `queue_order`."""
    job_order: Sequence[jobs.JobOrder] = field(init=False)
    pod_order: Sequence[jobs.PodOrder] = field(init=False)
    node_filters: Sequence[nodes.NodeFilter] = field(init=False)
    job_node_filters: Sequence[nodes.JobNodeFilter] = field(init=False)
    node_scores: Sequence[tuple[nodes.NodeScore, float]] = field(init=False)
    """Each with the factor of its scores; plugins with factor 0 are left out."""
    group_domains: Sequence[nodes.GroupDomains] = field(init=False)
    gang_domains: Sequence[nodes.GangDomains] = field(init=False)
    placement_rules: Sequence[tuple[nodes.PlacementRules, float]] = field(init=False)
    """Each with the factor of its scores."""
    nominated_rules: Sequence[nodes.NominatedRules] = field(init=False)
    device_choices: Sequence[nodes.DeviceChoice] = field(init=False)
    domains: Sequence[nodes.CandidateDomains] = field(init=False)
    validity: Sequence[jobs.JobValid] = field(init=False)
    capacity_gates: Sequence[jobs.CapacityGate] = field(init=False)
    readiness: Sequence[jobs.JobReady] = field(init=False)
    pipelining: Sequence[jobs.JobPipelined] = field(init=False)
    starvation: Sequence[jobs.JobStarving] = field(init=False)
    room_explanations: Sequence[jobs.RoomExplanation] = field(init=False)
    victim_filters: Sequence[jobs.VictimFilter] = field(init=False)
    ledgers: Sequence[state.LedgerProvider] = field(init=False)
    mutations: Sequence[state.BindRequestMutation] = field(init=False)
    bind_data: Sequence[tuple[str, state.BindData]] = field(init=False)
    explanations: Sequence[jobs.WaitExplanation] = field(init=False)
    watchers: Sequence[state.Watches] = field(init=False)
    supported: frozenset[Need] = field(init=False)
    task_validity: Sequence[jobs.TaskValid] = field(init=False)
    task_node_filters: Sequence[nodes.TaskNodeFilter] = field(init=False)
    rooms: Sequence[nodes.NodeRoom] = field(init=False)
    gpu_offers: Sequence[state.OffersGpus] = field(init=False)
    waits: Sequence[nodes.WorthWaiting] = field(init=False)
    release_gates: Sequence[jobs.WaitsForRelease] = field(init=False)
    effects: Sequence[tuple[str, state.BindEffects]] = field(init=False)
    finders: Sequence[HasFindings] = field(init=False)
    packing: Sequence[nodes.Packing] = field(init=False)
    packing_strategies: PackingStrategies = field(init=False)
    """The strategies of the first plugin that has them."""
    gpu_strategy: str | None = field(init=False)
    """The strategy of the first `GpuStrategy` plugin."""

    def __post_init__(self) -> None:
        # isinstance compares names of methods, so a plugin registers and inherits nothing.
        self.queue_order = [p for p in self.plugins if isinstance(p, jobs.QueueOrder)]
        self.victim_order = [_victim_key(p) for p in self.queue_order]
        self.job_order = [p for p in self.plugins if isinstance(p, jobs.JobOrder)]
        self.pod_order = [p for p in self.plugins if isinstance(p, jobs.PodOrder)]
        self.node_filters = [p for p in self.plugins if isinstance(p, nodes.NodeFilter)]
        self.job_node_filters = [p for p in self.plugins if isinstance(p, nodes.JobNodeFilter)]
        scoring = [p for p in self.plugins if isinstance(p, nodes.NodeScore)]
        weighted = [(p, self.weights.get(p.name, 1.0)) for p in scoring]
        self.node_scores = [(plugin, weight) for plugin, weight in weighted if weight]
        ruling = [p for p in self.plugins if isinstance(p, nodes.PlacementRules)]
        self.placement_rules = [(p, self.weights.get(p.name, 1.0)) for p in ruling]
        self.nominated_rules = [p for p in self.plugins if isinstance(p, nodes.NominatedRules)]
        self.device_choices = [p for p in self.plugins if isinstance(p, nodes.DeviceChoice)]
        self.domains = [p for p in self.plugins if isinstance(p, nodes.CandidateDomains)]
        self.gang_domains = [p for p in self.plugins if isinstance(p, nodes.GangDomains)]
        self.group_domains = [p for p in self.plugins if isinstance(p, nodes.GroupDomains)]
        self.validity = [p for p in self.plugins if isinstance(p, jobs.JobValid)]
        self.capacity_gates = [p for p in self.plugins if isinstance(p, jobs.CapacityGate)]
        self.readiness = [p for p in self.plugins if isinstance(p, jobs.JobReady)]
        self.pipelining = [p for p in self.plugins if isinstance(p, jobs.JobPipelined)]
        self.starvation = [p for p in self.plugins if isinstance(p, jobs.JobStarving)]
        self.room_explanations = [p for p in self.plugins if isinstance(p, jobs.RoomExplanation)]
        self.victim_filters = [p for p in self.plugins if isinstance(p, jobs.VictimFilter)]
        self.ledgers = [p for p in self.plugins if isinstance(p, state.LedgerProvider)]
        self.mutations = [p for p in self.plugins if isinstance(p, state.BindRequestMutation)]
        self.bind_data = [(p.name, p) for p in self.plugins if isinstance(p, state.BindData)]
        self.explanations = [p for p in self.plugins if isinstance(p, jobs.WaitExplanation)]
        self.watchers = [p for p in self.plugins if isinstance(p, state.Watches)]
        self.supported = frozenset(
            need
            for p in self.plugins
            if isinstance(p, state.Supports)
            for need in p.supported_needs()
        )
        self.task_validity = [p for p in self.plugins if isinstance(p, jobs.TaskValid)]
        self.task_node_filters = [p for p in self.plugins if isinstance(p, nodes.TaskNodeFilter)]
        self.rooms = [p for p in self.plugins if isinstance(p, nodes.NodeRoom)]
        self.gpu_offers = [p for p in self.plugins if isinstance(p, state.OffersGpus)]
        self.waits = [p for p in self.plugins if isinstance(p, nodes.WorthWaiting)]
        self.release_gates = [p for p in self.plugins if isinstance(p, jobs.WaitsForRelease)]
        strategies = (p.gpu_strategy() for p in self.plugins if isinstance(p, nodes.GpuStrategy))
        self.gpu_strategy = next(strategies, None)
        # A plugin whose scores do not count leaves packing to the others.
        packing = [p for p in self.plugins if isinstance(p, nodes.Packing)]
        self.packing = [p for p in packing if self.weights.get(p.name, 1.0)]
        having = (p for p in self.plugins if isinstance(p, nodes.HasStrategies))
        self.packing_strategies = next((p.packing_strategies() for p in having), _UNCONFIGURED)
        self.finders = [p for p in self.plugins if isinstance(p, HasFindings)]
        self.effects = [(p.name, p) for p in self.plugins if isinstance(p, state.BindEffects)]

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


def _victim_key(plugin: jobs.QueueOrder) -> VictimKey:
    """Return the plugin's `victim_key`; its `queue_key` if it has none."""
    if isinstance(plugin, jobs.VictimOrder):
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
        if item.weight != 1.0 and not isinstance(plugin, nodes.NodeScore):
            raise PluginConfigurationError(
                ("plugins", index, "weight"), f"plugin {item.name} does not score nodes"
            )
    return PluginSet(plugins, seconds, {item.name: item.weight for item in configured})


@lru_cache(maxsize=4)  # the search reads a file of each installed distribution
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001  # is the key
    """Return the entry points of scheduler plugins; `path` is `sys.path`, the key of the cache."""
    return tuple(entry_points(group=SCHEDULER_PLUGINS))
