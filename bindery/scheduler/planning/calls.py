"""The calls of plugins: each answer combines those of all plugins of an extension point.

The plugins of the points that are called most are found once a session.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.domains import EVERYWHERE, AskedDomain, Domain, DomainAsk, Freeable
from bindery.scheduler.model.jobs import Job, JobKey, Task
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Shape, unmet_text
from bindery.scheduler.model.verdicts import Refusal, Rows, SortKey
from bindery.scheduler.plugins.interface import jobs, nodes
from bindery.scheduler.plugins.registry import PluginSet
from bindery.scheduler.plugins.view import PackingStrategies, SessionView


class PackingPolicies:
    """How pods are packed, by all plugins that are a `PackingPolicy`."""

    def __init__(self, session: SessionView, plugins: PluginSet) -> None:
        self._session = session
        self._policies = plugins.of(nodes.PackingPolicy)
        # A plugin whose scores do not count leaves packing to the others.
        self._counting = [policy for policy in self._policies if plugins.weight(policy)]
        strategies = (policy.packing_strategies() for policy in self._policies)
        self.strategies = next(filter(None, strategies), PackingStrategies())
        """The configured strategies."""

    def is_packed(self, shape: Shape) -> bool:
        """Return whether a plugin decides alone how pods of `shape` are packed."""
        return any(policy.packs(self._session, shape) for policy in self._counting)

    def chosen_devices(self, task: Task, row: int) -> Sequence[str] | None:
        """Return the devices for `task` from the first policy with an answer; None without one."""
        choices = (policy.choose_devices(self._session, task, row) for policy in self._policies)
        return next((devices for devices in choices if devices is not None), None)

    def worth_waiting(self, shape: Shape, row: int, rows: Rows) -> BoolColumn | None:
        """Return a mask of `rows` that a policy prefers to `row`; the first policy decides."""
        for policy in self._policies:
            better = policy.worth_waiting(self._session, shape, row, rows)
            if better is not None and better.any():
                return better
        return None


class PluginCalls:
    """Asks the plugins about jobs, pods, queues, domains and scores."""

    def __init__(self, session: SessionView, plugins: PluginSet) -> None:
        self._session = session
        self._plugins = plugins
        self._queue_order = plugins.of(jobs.QueueOrder)
        self._victim_order = [
            (p, p if isinstance(p, jobs.VictimOrder) else None) for p in self._queue_order
        ]
        self._job_order = plugins.of(jobs.JobOrder)
        self._pod_order = plugins.of(jobs.PodOrder)
        self._validity = plugins.of(jobs.JobValid)
        self._gates = plugins.of(jobs.CapacityGate)
        self._gang_domains_of = plugins.of(nodes.GangDomains)
        weighted = ((p, plugins.weight(p)) for p in plugins.of(nodes.NodeScore))
        self._scoring = [(plugin, weight) for plugin, weight in weighted if weight]

    # -- order ---------------------------------------------------------------------------------

    def queue_key(self, row: int, job: Job) -> SortKey:
        """Return the part of the key of the queue at `row` that plugins decide."""
        return tuple(plugin.queue_key(self._session, row, job) for plugin in self._queue_order)

    def victim_key(self, row: int, job: Job, released: Mapping[int, int]) -> SortKey:
        """Return the same for the choice of victims: by `queue_key` without a `VictimOrder`."""
        return tuple(
            plugin.queue_key(self._session, row, job)
            if victims is None
            else victims.victim_key(self._session, row, job, released)
            for plugin, victims in self._victim_order
        )

    def pods_in_order(self, job: Job) -> list[Task]:
        """Return the pending pods of `job` in the order of placement, without future ones."""
        pending = job.pending.values()
        tasks = [task for task in pending if not task.is_future] if job.stages else list(pending)
        # Most jobs have one pod, and keys cost as much as the rest.
        return sorted(tasks, key=self.pod_sort_key) if len(tasks) > 1 else tasks

    def pod_sort_key(self, task: Task) -> SortKey:
        """Return the sort key of pods of a job for placement. Evictions use the reverse order."""
        return (*(p.pod_key(self._session, task) for p in self._pod_order), task.order)

    def job_sort_key(self, job: Job) -> SortKey:
        """Return the sort key of jobs of a queue for serving. Evictions use the reverse order."""
        return (*self.job_key(job), job.created, job.key)

    def job_key(self, job: Job) -> SortKey:
        """Return the part of the sort key of `job` that plugins decide."""
        return tuple([plugin.job_key(self._session, job) for plugin in self._job_order])

    # -- gates ---------------------------------------------------------------------------------

    def invalid(self, job: Job) -> Refusal | None:
        """Return why plugins refuse `job`; None if it can be planned."""
        for plugin in self._validity:
            refusal = plugin.invalid(self._session, job)
            if refusal:
                return refusal
        return None

    def task_refusal(self, task: Task) -> Refusal | None:
        """Return why `task` cannot be planned even with free nodes; None if it can."""
        shape = task.shape
        if shape.refusal is not None:
            return Refusal(shape.refusal_reason, shape.refusal)
        if not shape.needs:  # most pods: no plugin is called for them
            return None
        if not shape.needs <= self._plugins.supported:
            lacking = shape.needs - self._plugins.supported
            return Refusal(JobReason.NOT_SUPPORTED, unmet_text(lacking))
        answers = (
            plugin.invalid_task(self._session, task) for plugin in self._plugins.of(jobs.TaskValid)
        )
        return next(filter(None, answers), None)

    def over_capacity(self, job: Job, tasks: Sequence[Task]) -> Refusal | None:
        """Return the first refusal of a capacity gate for `tasks` of `job`; None if all agree."""
        for gate in self._gates:
            refusal = gate.over_capacity(self._session, job, tasks)
            if refusal is not None:
                return refusal
        return None

    def is_ready(self, job: Job) -> bool:
        """Return whether all plugins agree that the placed pods of `job` may be bound."""
        return all(p.is_ready(self._session, job) for p in self._plugins.of(jobs.JobReady))

    def is_pipelined(self, job: Job) -> bool:
        """Return whether all plugins agree that promises to `job` are kept."""
        return all(p.is_pipelined(self._session, job) for p in self._plugins.of(jobs.JobPipelined))

    def is_starving(self, job: Job) -> bool:
        """Return whether all plugins agree that room may be made for `job`."""
        return all(p.is_starving(self._session, job) for p in self._plugins.of(jobs.JobStarving))

    # -- domains and scores --------------------------------------------------------------------

    def job_domains(
        self, job: Job, pods: nodes.NextPods, freeable: Freeable | None = None
    ) -> Iterator[Domain]:
        """Yield the domains of the whole `job` from plugins, best first.

        `pods`: returns the pods that are placed together. `freeable`: see `DomainAsk`.
        """
        offered = self._gang_domains(job, pods, freeable)
        yield from (EVERYWHERE,) if offered is None else offered

    def are_tied(self, job: Job, pods: nodes.NextPods) -> bool:
        """Return whether a rule other than topology keeps `pods` of `job` together."""
        return self._gang_domains(job, pods, None) is not None

    def _gang_domains(
        self, job: Job, pods: nodes.NextPods, freeable: Freeable | None
    ) -> Iterable[Domain] | None:
        for plugin in self._gang_domains_of:
            domains = plugin.gang_domains(self._session, job, pods, freeable)
            if domains is not None:
                return domains
        return None

    def held_domains(self) -> dict[JobKey, BoolColumn]:
        """Return job -> the node rows that it keeps for itself, as a mask."""
        found: dict[JobKey, BoolColumn] = {}
        for plugin in self._plugins.of(nodes.HoldsDomains):
            for key, rows in plugin.held_domains(self._session).items():
                found[key] = found[key] | rows if key in found else rows
        return found

    def has_held_domain(self, task: Task) -> bool:
        """Return whether `task` goes into nodes that its job keeps for itself already."""
        holding = self._plugins.of(nodes.HoldsDomains)
        return any(plugin.has_held_domain(self._session, task) for plugin in holding)

    def asked_domains(self, job: Job) -> Iterator[AskedDomain]:
        """Yield the nodes that `job` would keep for itself once its waiting pods are placed."""
        for plugin in self._plugins.of(nodes.HoldsDomains):
            yield from plugin.asked_domains(self._session, job)

    def group_domains(self, ask: DomainAsk) -> Iterator[Domain]:
        """Yield the domains for the pods of `ask`, best first; none without a plugin for them."""
        for plugin in self._plugins.of(nodes.GroupDomains):
            yield from plugin.group_domains(self._session, ask)
            return

    def tree_positions(self, job: Job) -> NDArray[np.intp] | None:
        """Return node row -> position: rows that are close in the tree of `job` are adjacent.

        None: the job has no tree, or no plugin serves its topology constraint.
        """
        constraint = job.topology
        if constraint is None and job.tree is not None:
            constraint = next((g.topology for g in job.tree.all_groups() if g.topology), None)
        if constraint is None:
            return None
        found = (
            plugin.tree_positions(self._session, constraint)
            for plugin in self._plugins.of(nodes.GroupDomains)
        )
        return next(found, None)

    def no_domain(self, ask: DomainAsk) -> Refusal:
        """Return why there is no domain for `ask`."""
        for plugin in self._plugins.of(nodes.GroupDomains):
            return plugin.no_domain(self._session, ask)
        return Refusal(JobReason.UNSCHEDULABLE, "no plugin serves its topology constraint")

    def scores(self, shape: Shape, rows: Rows) -> NDArray[np.float64]:
        """Return the weighted sum of all plugins' scores of `rows` for pods of `shape`."""
        total = np.zeros(len(rows), dtype=np.float64)
        for plugin, weight in self._scoring:
            scores = plugin.node_scores(self._session, shape, rows)
            if scores is not None:
                total += scores if weight == 1.0 else weight * scores
        return total

    def scores_by_plugin(self, shape: Shape, rows: Rows) -> dict[str, NDArray[np.float64]]:
        """Return the weighted scores of `rows` by plugin, without plugins that score none."""
        found = {
            plugin.name: (plugin.node_scores(self._session, shape, rows), weight)
            for plugin, weight in self._scoring
        }
        parts = {name: weight * s for name, (s, weight) in found.items() if s is not None}
        rulings = self._plugins.of(nodes.PlacementRules) if shape.unruled is not None else ()
        for ruling in rulings:
            rules = ruling.placement_rules(self._session, shape)
            scores = rules.scores() if rules is not None else None
            if scores is not None:
                parts[ruling.name] = self._plugins.weight(ruling) * scores[rows]
        return parts
