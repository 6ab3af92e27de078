"""Random small clusters and pods, as manifests, over the rules about other pods, ports and nodes.

The same seed gives the same cluster. Few values for every label, so that rules often meet.
"""

from random import Random
from typing import Any

import msgspec

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.objects import watched as objects
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import Uid

Manifest = dict[str, Any]

KEYS = ("zone", "rack", "kubernetes.io/hostname")
APPS = ("web", "db", "batch")
TIERS = ("gold", "silver")
SPACES = ("red", "blue")
TEAMS = {"red": "one", "blue": "two"}
PORTS = (80, 443)
ADDRESSES = ("", "0.0.0.0", "10.0.0.1", "10.0.0.2")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class RandomCluster:
    """One cluster with one pod to place. `question` is what kube-scheduler is asked."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        r = self._random
        self.nodes = [self._node(f"n{index}") for index in range(r.randint(2, 9))]
        self.namespaces: list[Manifest] = [
            {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, "team": t}}}
            for name, t in TEAMS.items()
        ]
        count = r.choice((2, 6, 12, 24))
        self.pods = [self._placed(f"p{index}") for index in range(count)]
        self.pod = self._pod("asked")
        self.pod["spec"]["schedulerName"] = "bindery"
        if r.random() < 0.5:
            self.pod["spec"]["priority"] = r.choice((0, 10, 20))
            nominated = [self._nominated(f"m{index}") for index in range(r.randint(1, 4))]
            constraints = self.pod["spec"].get("topologySpreadConstraints", ())
            if not any(each.get("labelSelector") == {} for each in constraints):
                self.pods += nominated

    @property
    def question(self) -> Manifest:
        """The cluster and the pod as kube-scheduler's filters read them."""
        return {
            "nodes": self.nodes,
            "namespaces": self.namespaces,
            "pods": self.pods,
            "pod": self.pod,
        }

    # -- nodes -----------------------------------------------------------------------------------

    def _node(self, name: str) -> Manifest:
        r = self._random
        labels = {"kubernetes.io/hostname": name, "disk": r.choice(("fast", "slow"))}
        if r.random() < 0.9:
            labels["zone"] = r.choice("abc")
        if r.random() < 0.7:
            labels["rack"] = r.choice(("r1", "r2"))
        taints = []
        if r.random() < 0.2:
            taints = [{"key": "team", "value": r.choice("xy"), "effect": r.choice(EFFECTS)}]
        spec: Manifest = {"taints": taints}
        if r.random() < 0.08:
            spec["unschedulable"] = True
        amounts = {"cpu": str(r.randint(2, 12)), "memory": "64Gi", "pods": str(r.choice((4, 110)))}
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}

    # -- pods ------------------------------------------------------------------------------------

    def waiting(self, count: int) -> list[Manifest]:
        """Return further pods that wait for Bindery."""
        pods = [self._pod(f"w{index}") for index in range(count)]
        for pod in pods:
            pod["spec"]["schedulerName"] = "bindery"
        return pods

    def _placed(self, name: str) -> Manifest:
        r = self._random
        pod = self._pod(name)
        pod["spec"]["nodeName"] = r.choice(self.nodes)["metadata"]["name"]
        pod["spec"]["schedulerName"] = r.choice(("bindery", "default-scheduler"))
        pod["status"] = {"phase": "Running"}
        chance = r.random()
        if chance < 0.08:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        elif chance < 0.14:
            pod["status"]["phase"] = r.choice(("Succeeded", "Failed"))
        if r.random() < 0.2:
            pod["status"] |= self._resize()
        return pod

    def _nominated(self, name: str) -> Manifest:
        """Return a pod that another scheduler has nominated for a node."""
        r = self._random
        pod = self._pod(name)
        pod["spec"] |= {"schedulerName": "default-scheduler", "priority": r.choice((0, 10, 20))}
        node = r.choice(self.nodes)["metadata"]["name"]
        pod["status"] = {"phase": "Pending", "nominatedNodeName": node}
        asked = self.pod["spec"].get("affinity", {})
        if not any(REQUIRED in asked.get(kind, {}) for kind in ("podAffinity", "podAntiAffinity")):
            pod["spec"].get("affinity", {}).pop("podAntiAffinity", None)
        return pod

    def _resize(self) -> Manifest:
        """Return the status of a pod whose main container is resized, or was."""
        r = self._random
        in_effect, allocated = ({"cpu": f"{r.choice((100, 900, 3000))}m"} for _ in range(2))
        resources = {"resources": {"requests": in_effect}, "allocatedResources": allocated}
        reason = r.choice(("Deferred", "Infeasible"))
        pending = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        return {
            "containerStatuses": [{"name": "main", **resources}],
            "conditions": pending if r.random() < 0.5 else [],
        }

    def _pod(self, name: str) -> Manifest:
        r = self._random
        labels = {"app": r.choice(APPS)}
        if r.random() < 0.6:
            labels["tier"] = r.choice(TIERS)
        metadata = {"name": name, "namespace": r.choice(SPACES), "uid": f"uid-{name}"}
        spec: Manifest = {"containers": [self._container("main")]}
        if r.random() < 0.2:
            spec["initContainers"] = [self._init_container()]
        affinity = self._affinity(labels)
        if affinity:
            spec["affinity"] = affinity
        if r.random() < 0.35:
            spec["topologySpreadConstraints"] = self._constraints()
        if r.random() < 0.15:
            spec["nodeSelector"] = {"disk": r.choice(("fast", "slow"))}
        if r.random() < 0.3:
            spec["tolerations"] = [self._toleration()]
        return {"metadata": {**metadata, "labels": labels}, "spec": spec}

    def _container(self, name: str) -> Manifest:
        r = self._random
        container: Manifest = {"name": name}
        if r.random() < 0.6:
            container["resources"] = {"requests": {"cpu": f"{r.choice((100, 500, 1500))}m"}}
        if r.random() < 0.25:
            container["ports"] = [self._port() for _ in range(r.randint(1, 2))]
        return container

    def _init_container(self) -> Manifest:
        container = self._container("init")
        if self._random.random() < 0.6:
            container["restartPolicy"] = "Always"
        return container

    def _port(self) -> Manifest:
        r = self._random
        port: Manifest = {"containerPort": 8080, "protocol": r.choice(("TCP", "TCP", "UDP"))}
        if r.random() < 0.85:
            port["hostPort"] = r.choice(PORTS)
        address = r.choice(ADDRESSES)
        if address:
            port["hostIP"] = address
        return port

    def _toleration(self) -> Manifest:
        r = self._random
        toleration = {"key": "team", "operator": r.choice(("Equal", "Exists"))}
        if toleration["operator"] == "Equal":
            toleration["value"] = r.choice("xy")
        if r.random() < 0.5:
            toleration["effect"] = r.choice(EFFECTS)
        return toleration

    # -- rules -----------------------------------------------------------------------------------

    def _affinity(self, labels: Manifest) -> Manifest:
        r, found = self._random, {}
        for kind, chance in (("podAffinity", 0.25), ("podAntiAffinity", 0.25)):
            rules: Manifest = {}
            if r.random() < chance:
                rules[REQUIRED] = [self._term(labels) for _ in range(r.choice((1, 1, 2)))]
            if r.random() < 0.1:
                term = {"weight": r.randint(1, 100), "podAffinityTerm": self._term(labels)}
                rules[PREFERRED] = [term]
            if rules:
                found[kind] = rules
        if r.random() < 0.15:
            values = r.sample("abc", r.randint(1, 2))
            expression = {"key": "zone", "operator": r.choice(("In", "NotIn")), "values": values}
            terms = [{"matchExpressions": [expression]}]
            found["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
        return found

    def _term(self, labels: Manifest) -> Manifest:
        r = self._random
        term: Manifest = {"topologyKey": r.choice(KEYS)}
        selector = self._selector()
        if selector is not None:
            term["labelSelector"] = selector
        chance = r.random()
        if chance < 0.2:
            term["namespaces"] = r.sample(SPACES, r.randint(1, 2))
        if 0.15 < chance < 0.35:
            choices: tuple[Manifest, ...] = (
                {},
                {"matchLabels": {"team": r.choice(("one", "two", "three"))}},
            )
            term["namespaceSelector"] = r.choice(choices)
        if r.random() < 0.15 and selector is not None and "tier" in labels:
            self._add_label_keys(term, labels)
        return term

    def _add_label_keys(self, term: Manifest, labels: Manifest) -> None:
        """Add matchLabelKeys or mismatchLabelKeys, as the API server stores them."""
        kind = self._random.choice(("matchLabelKeys", "mismatchLabelKeys"))
        used = {e["key"] for e in term["labelSelector"].get("matchExpressions", ())}
        if "tier" in used or "tier" in term["labelSelector"].get("matchLabels", {}):
            return
        operator = "In" if kind == "matchLabelKeys" else "NotIn"
        expression = {"key": "tier", "operator": operator, "values": [labels["tier"]]}
        expressions = [*term["labelSelector"].get("matchExpressions", ()), expression]
        term["labelSelector"] = {**term["labelSelector"], "matchExpressions": expressions}
        term[kind] = ["tier"]

    def _selector(self) -> Manifest | None:
        r = self._random
        chance = r.random()
        if chance < 0.04:
            return None
        if chance < 0.08:
            return {}
        if chance < 0.6:
            return {"matchLabels": {"app": r.choice(APPS)}}
        operator = r.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        key, values = r.choice((("app", APPS), ("tier", TIERS)))
        expression: Manifest = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = r.sample(values, r.randint(1, len(values) - 1))
        return {"matchExpressions": [expression]}

    def _constraints(self) -> list[Manifest]:
        r = self._random
        actions = ("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
        pairs = [(key, r.choice(actions)) for key in KEYS]
        return [self._constraint(*pair) for pair in r.sample(pairs, r.choice((1, 1, 2)))]

    def _constraint(self, key: str, action: str) -> Manifest:
        r = self._random
        constraint: Manifest = {
            "maxSkew": r.choice((1, 1, 2, 3)),
            "topologyKey": key,
            "whenUnsatisfiable": action,
        }
        selector = self._selector()
        if selector is not None:
            constraint["labelSelector"] = selector
        if action == "DoNotSchedule" and r.random() < 0.3:
            constraint["minDomains"] = r.randint(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if r.random() < 0.4:
                constraint[policy] = r.choice(("Honor", "Ignore"))
        if r.random() < 0.2 and selector is not None:
            constraint["matchLabelKeys"] = ["tier"]
        return constraint


def engine_for(cluster: RandomCluster, *more: Manifest) -> Engine:
    """Return an engine that has seen the cluster, and `more` pods."""
    engine = Engine(SchedulerConfiguration(), lambda: 1_800_000_000.0)
    items: list[objects.KubeObject] = [
        msgspec.convert(manifest, kind)
        for manifests, kind in (
            (cluster.namespaces, objects.Namespace),
            (cluster.nodes, objects.Node),
            ((*cluster.pods, cluster.pod, *more), objects.Pod),
        )
        for manifest in manifests
    ]
    for item in items:
        engine.cluster.apply(Change(EventType.ADDED, item, None))
    return engine


def feasible_places(engine: Engine, uid: str) -> set[str]:
    """Return the nodes on which Bindery would place the pod `uid` now."""
    found: set[str] = set()
    with engine.session() as session:
        task = session.state.tasks[Uid(uid)]
        if session.calls.task_refusal(task) is not None:
            return set()
        finder = session.placement.finder(session.state.jobs[task.job])
        while (place := finder.best(task)) is not None and place.fits_now:
            with session.statement() as statement:
                statement.allocate(task, place.row)  # and no ledger refuses it
            found.add(session.state.nodes.name(place.row))
            finder.exclude(task, place.row, "it was found")
    return found
