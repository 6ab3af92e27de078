"""Builds the configured plugins and lists them by extension point."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar, cast

from bindery.api.configuration import PluginConfiguration
from bindery.api.names import SCHEDULER_PLUGINS
from bindery.api.plugins import PluginConfigurationError, build
from bindery.kube.objects.resources import Resource
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

Point = TypeVar("Point")
"""An extension point: a Protocol."""

_UNCONFIGURED = PackingStrategies()


def implementing(point: type[Point], plugins: Iterable[object]) -> list[Point]:
    """Return those of `plugins` that have all members of `point`, a Protocol.

    A plugin registers and inherits nothing: only names are compared. `isinstance` does the same,
    but collects the names for each plugin, which took most of the time to build an engine.
    """
    protocols = [base for base in point.__mro__ if getattr(base, "_is_protocol", False)]
    names = [name for base in protocols for name in vars(base) if not name.startswith("_")]
    return [
        cast("Point", each)
        for each in plugins
        if all(getattr(each, name, None) is not None for name in names)
    ]


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
        self.queue_order = implementing(jobs.QueueOrder, self.plugins)
        self.victim_order = [_victim_key(p) for p in self.queue_order]
        self.job_order = implementing(jobs.JobOrder, self.plugins)
        self.pod_order = implementing(jobs.PodOrder, self.plugins)
        self.node_filters = implementing(nodes.NodeFilter, self.plugins)
        self.job_node_filters = implementing(nodes.JobNodeFilter, self.plugins)
        scoring = implementing(nodes.NodeScore, self.plugins)
        weighted = [(p, self.weights.get(p.name, 1.0)) for p in scoring]
        self.node_scores = [(plugin, weight) for plugin, weight in weighted if weight]
        ruling = implementing(nodes.PlacementRules, self.plugins)
        self.placement_rules = [(p, self.weights.get(p.name, 1.0)) for p in ruling]
        self.nominated_rules = implementing(nodes.NominatedRules, self.plugins)
        self.device_choices = implementing(nodes.DeviceChoice, self.plugins)
        self.domains = implementing(nodes.CandidateDomains, self.plugins)
        self.gang_domains = implementing(nodes.GangDomains, self.plugins)
        self.group_domains = implementing(nodes.GroupDomains, self.plugins)
        self.validity = implementing(jobs.JobValid, self.plugins)
        self.capacity_gates = implementing(jobs.CapacityGate, self.plugins)
        self.readiness = implementing(jobs.JobReady, self.plugins)
        self.pipelining = implementing(jobs.JobPipelined, self.plugins)
        self.starvation = implementing(jobs.JobStarving, self.plugins)
        self.room_explanations = implementing(jobs.RoomExplanation, self.plugins)
        self.victim_filters = implementing(jobs.VictimFilter, self.plugins)
        self.ledgers = implementing(state.LedgerProvider, self.plugins)
        self.mutations = implementing(state.BindRequestMutation, self.plugins)
        self.bind_data = [(p.name, p) for p in implementing(state.BindData, self.plugins)]
        self.explanations = implementing(jobs.WaitExplanation, self.plugins)
        self.watchers = implementing(state.Watches, self.plugins)
        self.supported = frozenset(
            need for p in implementing(state.Supports, self.plugins) for need in p.supported_needs()
        )
        self.task_validity = implementing(jobs.TaskValid, self.plugins)
        self.task_node_filters = implementing(nodes.TaskNodeFilter, self.plugins)
        self.rooms = implementing(nodes.NodeRoom, self.plugins)
        self.gpu_offers = implementing(state.OffersGpus, self.plugins)
        self.waits = implementing(nodes.WorthWaiting, self.plugins)
        self.release_gates = implementing(jobs.WaitsForRelease, self.plugins)
        strategies = (p.gpu_strategy() for p in implementing(nodes.GpuStrategy, self.plugins))
        self.gpu_strategy = next(strategies, None)
        # A plugin whose scores do not count leaves packing to the others.
        packing = implementing(nodes.Packing, self.plugins)
        self.packing = [p for p in packing if self.weights.get(p.name, 1.0)]
        having = implementing(nodes.HasStrategies, self.plugins)
        self.packing_strategies = next((p.packing_strategies() for p in having), _UNCONFIGURED)
        self.finders = implementing(HasFindings, self.plugins)
        self.effects = [(p.name, p) for p in implementing(state.BindEffects, self.plugins)]

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


def names() -> frozenset[str]:
    """Return the names of the installed scheduler plugins."""
    return frozenset(point.name for point in _installed(tuple(sys.path)))


@lru_cache(maxsize=4)  # the search reads a file of each installed distribution
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001  # is the key
    """Return the entry points of scheduler plugins; `path` is `sys.path`, the key of the cache."""
    return tuple(entry_points(group=SCHEDULER_PLUGINS))
