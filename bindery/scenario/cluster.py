"""The in-memory cluster of a scenario: a world with its events, claims and NUMA zones.

Driven by `runner`; `binding` plays the binder on it.
"""

from collections.abc import Iterator

import msgspec

from bindery.api.times import seconds
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scenario import given_nodes
from bindery.scenario.creation import Creator
from bindery.scenario.events import Event
from bindery.scenario.format import Scenario
from bindery.scenario.given_objects import past_usage
from bindery.scenario.naming import group_keys
from bindery.scenario.nodes import ScenarioNode
from bindery.scenario.states import FINISHED, PodState
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.world import World


class ScenarioCluster(World):
    """A world that plays a scenario. Pods are known by their names in the scenario."""

    def __init__(self, scenario: Scenario) -> None:
        configuration = scenario.config.to_configuration()
        super().__init__((), configuration, scenario.now.timestamp())
        self._creator = Creator(scenario, self, self.clock)
        self._stuck_after_s = configuration.stuck_in_releasing_seconds
        self._group_keys = group_keys(scenario)
        self.given = self._creator.given
        self.numa = self._creator.numa
        self.populate = self._creator.populate
        self.uids: dict[str, Uid] = {}
        """Name of each pod -> its UID. A pod that is created again has a new UID."""
        self.bound_statements: set[tuple[str, str]] = set()
        """Namespace and id of the Statements that have succeeded; their requests are gone."""
        self.remember(past_usage(scenario, self.given, configuration))

    def put(self, item: KubeObject) -> None:
        """Create `item`, or replace the object of its identity."""
        if isinstance(item, Pod):
            self.uids[self.name_of(item)] = Uid(item.metadata.uid)
        super().put(item)

    def delete(self, item: KubeObject) -> None:
        """Delete `item`; of a pod, also its claims and zones."""
        super().delete(item)
        if isinstance(item, Pod):
            del self.uids[self.name_of(item)]
            self._free(item)

    def admit(self, pod: Pod, node: str) -> str:
        """Return the reason for which `node` refuses `pod`; empty if it takes the pod."""
        reason = self.numa.refusal(pod, node)
        if not reason:
            self.numa.start(pod, node)
        return reason

    def is_going(self, pod: Pod) -> bool:
        """Return whether `pod` is being deleted and not stuck."""
        return self.state_of(pod) is PodState.RELEASING

    def created_again(self, pod: Pod) -> Pod:
        """Return the pod that the controller of `pod` creates in its place, with new claims."""
        return self._creator.claims.renewed(super().created_again(pod))

    def happen(self, event: Event) -> None:
        """Apply `event`: advance the clock, then change the objects."""
        self.clock.now += event.advance
        for pod in self._present(event.ungate):
            spec = msgspec.structs.replace(pod.spec, scheduling_gates=None)
            self.put(msgspec.structs.replace(pod, spec=spec))
        for pod in self._present(event.fail):
            self._end(pod, PodState.FAILED)
        for pod in self._present(event.succeed):
            self._end(pod, PodState.SUCCEEDED)
        for pod in self._present(event.delete):
            self.delete(pod)
        if event.node is not None:
            self._change_node(event.node)
        if event.job is not None:
            self._creator.create_job(event.job, self.clock.now)

    def start_pods(self) -> None:
        """Start all pods on nodes that have not started."""
        for pod in list(self.pods.values()):
            if self.state_of(pod) is PodState.BOUND:
                self.run(pod, pod.spec.node_name)

    def delete_request(self, namespace: str, name: str) -> None:
        """Delete a BindRequest with all its Statements."""
        for key, statement in list(self.statements.items()):
            if (key.statement.namespace, key.request) == (namespace, name):
                self.delete(statement)

    def request_names(self) -> set[tuple[str, str]]:
        """Return namespace and name of all BindRequests."""
        return {(key.statement.namespace, key.request) for key in self.statements}

    def uid_of(self, namespace: str, name: str) -> Uid | None:
        """Return the UID of the pod `name` of `namespace`; None if there is no such pod."""
        return self.uids.get(self._creator.name_of(namespace, name))

    def name_of(self, pod: Pod) -> str:
        """Return the name of `pod` in the scenario."""
        return self._creator.name_of(pod.metadata.namespace, pod.metadata.name)

    def job_of(self, pod: Pod) -> str:
        """Return the name of the job of `pod` in the scenario."""
        job = self.engine.cluster.job_key(pod)
        if not job.is_group:
            return self.name_of(pod)
        return self._group_keys.get((job.namespace, job.name), job.name)

    def gpus_of(self, pod: Pod) -> int | None:
        """Return the whole GPUs by the entry of `pod`; None for a pod of the key `objects`."""
        return self._creator.gpus.get(self.name_of(pod))

    def state_of(self, pod: Pod) -> PodState:
        """Return the state by the object alone; only the scheduler knows Binding and Pipelined."""
        if pod.status.phase in FINISHED:
            return PodState(pod.status.phase)
        deleted_at = seconds(pod.metadata.deletion_timestamp)
        if deleted_at is not None:
            is_stuck = deleted_at < self.clock.now - self._stuck_after_s
            return PodState.STUCK_IN_RELEASING if is_stuck else PodState.RELEASING
        if pod.spec.node_name:
            return PodState.RUNNING if pod.status.phase == "Running" else PodState.BOUND
        return PodState.GATED if pod.spec.scheduling_gates else PodState.PENDING

    def _change_node(self, entry: ScenarioNode) -> None:
        """Apply the keys of `entry` that are written to the node of its name."""
        known = self._creator.nodes.get(entry.name)
        if known is not None:
            changes = {key: getattr(entry, key) for key in entry.model_fields_set}
            self._creator.put_node(entry.name, known.model_copy(update=changes))
        elif entry.name in self.nodes:  # a given node may be unreadable
            self.put(given_nodes.changed(self.nodes[entry.name], entry))

    def _end(self, pod: Pod, state: PodState) -> None:
        status = msgspec.structs.replace(pod.status, phase=state.value)
        self.put(msgspec.structs.replace(pod, status=status))
        self._free(pod)

    def _free(self, pod: Pod) -> None:
        self.numa.stop(pod.metadata.uid)
        self._creator.claims.release(pod)

    def _present(self, names: tuple[str, ...]) -> Iterator[Pod]:
        """Yield the pods of `names` that still exist: an event may come after a deletion."""
        return (self.pods[self.uids[name]] for name in names if name in self.uids)
