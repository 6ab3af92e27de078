"""Random calls for the comparison of the model with a real API server, chosen by a seed.

Names come from small pools, so calls meet the same objects. About half of the calls have a mistake:
another UID, an old version, a missing object, an invalid field.
"""

import random
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.e2e.modelcomparison import Asked, Sides
from tests.histories.apiserver.kinds import Kind

Plain = dict[str, Any]
NAMESPACES: Final = ("one", "two")
"""In these, pods can be created."""
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIALS: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WRONG_UID: Final = "00000000-0000-4000-8000-000000000000"
_TIME: Final = "2026-01-02T03:04:05Z"
_MICRO: Final = "2026-01-02T03:04:05.678901Z"
KINDS: Final = {
    "pods": 30,
    "nodes": 8,
    "leases": 8,
    "events": 5,
    "configmaps": 5,
    "namespaces": 4,
    "poddisruptionbudgets": 8,
    "resourceclaims": 7,
    "persistentvolumeclaims": 4,
    "persistentvolumes": 4,
    "priorityclasses": 2,
    "bindrequests": 12,
    "podgroups": 12,
    "queues": 10,
}
"""Plural -> how often it is called, relative to the others."""


class Calls:
    """Draws calls, by the objects in the model."""

    def __init__(self, sides: Sides, chance: random.Random) -> None:
        self._sides = sides
        self._model = sides.model
        self._chance = chance
        self._old: list[Mapping[str, Any]] = []
        """Metadata of earlier versions and of deleted objects."""
        self._tokens: list[str] = []
        self._bodies = Bodies(chance)
        self._slow = 2
        """How many evictions may still have another UID: the real server tries each for 10 s."""

    def step(self) -> None:
        """Make one call at both servers; sometimes several, which lead to an eviction."""
        if self._is(0.008):
            self._evict_guarded()
            return
        plural = self._chance.choices(list(KINDS), list(KINDS.values()))[0]
        kind = self._model.kind(plural)
        asked = self._draw(kind)
        if asked is None:
            return
        _, answer = self._sides.ask(asked)
        meta = answer.get("metadata", {})
        if "resourceVersion" in meta and "uid" in meta:
            self._old.append(meta)
            del self._old[:-200]
        if meta.get("continue"):
            self._follow(asked, meta["continue"])

    def _follow(self, asked: Asked, token: str) -> None:
        """Ask for the next page at both; the tokens differ."""
        target = re.sub(r"&continue=[^&]*", "", asked.target)
        theirs = self._sides.partners.real[token]
        self._sides.ask_apart(
            Asked("GET", f"{target}&continue={token}", accept=asked.accept),
            Asked("GET", f"{target}&continue={theirs}", accept=asked.accept),
        )

    def _draw(self, kind: Kind) -> Asked | None:
        acts: list[tuple[Callable[[Kind], Asked | None], int]] = [
            (self._create, 26),
            (self._read, 5),
            (self._list, 4),
            (self._replace, 12),
            (self._patch, 16),
            (self._delete, 10),
        ]
        if "status" in kind.subresources:
            acts.append((self._status, 16))
        if kind.plural == "pods":
            acts += [(self._bind, 20), (self._evict, 18), (self._gates, 3)]
        if kind.plural == "namespaces":
            acts.append((self._finalize, 10))
        act = self._chance.choices([a for a, _ in acts], [w for _, w in acts])[0]
        return act(kind)

    # ---- where ----

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def _root(self, kind: Kind) -> str:
        return f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"

    def _path(self, kind: Kind, namespace: str, name: str = "", sub: str = "") -> str:
        path = self._root(kind)
        if kind.namespaced and namespace:
            path += f"/namespaces/{namespace}"
        return "/".join(each for each in (path, kind.plural, name, sub) if each)

    def _namespace(self, kind: Kind) -> str:
        if not kind.namespaced:
            return ""
        if kind.plural != "pods" and self._is(0.06):
            return self._chance.choice(("ns-0", "ns-1", "ns-2", "absent"))
        return self._chance.choice(NAMESPACES)

    def _new_name(self, kind: Kind) -> str:
        prefix = "ns" if kind.plural == "namespaces" else kind.plural[:4]
        if self._is(0.03):
            return self._chance.choice(("Upper", "under_score", "-dash", "a" * 260, "dot.ted"))
        # Few budgets, as an eviction with two of them is refused.
        count = {"namespaces": 3, "poddisruptionbudgets": 2}.get(kind.plural, 8)
        return f"{prefix}-{self._chance.randrange(count)}"

    def _existing(self, kind: Kind) -> Mapping[str, Any] | None:
        stored = [
            each
            for each in self._model.objects(kind.plural)
            if self._is_ours(kind, each["metadata"])
        ]
        return self._chance.choice(stored) if stored else None

    def _is_ours(self, kind: Kind, meta: Mapping[str, Any]) -> bool:
        if kind.plural == "namespaces":
            return bool(meta["name"].startswith("ns-"))
        return kind.namespaced is False or meta["namespace"] in (
            *NAMESPACES,
            "ns-0",
            "ns-1",
            "ns-2",
        )

    def _target(self, kind: Kind) -> tuple[str, str, Mapping[str, Any] | None]:
        """Return namespace and name of an object, and the object; sometimes of none."""
        found = self._existing(kind)
        if found is None or self._is(0.07):
            return self._chance.choice(NAMESPACES) if kind.namespaced else "", "missing", None
        meta = found["metadata"]
        return meta.get("namespace", ""), meta["name"], found

    def _uid(self, meta: Mapping[str, Any]) -> str:
        if self._is(0.25):
            old = [str(each["uid"]) for each in self._old[-20:]]
            return self._chance.choice([_WRONG_UID, *old])
        return str(meta["uid"])

    def _version(self, meta: Mapping[str, Any]) -> str:
        known = self._sides.partners.real_versions
        if self._is(0.25):
            old = [each for each in self._old if each["resourceVersion"] in known]
            if old:
                return str(self._chance.choice(old)["resourceVersion"])
        version = str(meta["resourceVersion"])
        if version not in known:
            self._sides.check_watches()
        return version

    # ---- acts ----

    def _create(self, kind: Kind) -> Asked:
        namespace = self._namespace(kind)
        body = self._bodies.new(kind.plural)
        meta: Plain = {"name": self._new_name(kind), **self._bodies.metadata()}
        if self._is(0.08):
            # One name for each prefix: both servers then list them in the same order.
            meta["generateName"] = f"{meta.pop('name')[:20]}-{self._sides.calls}-"
        elif self._is(0.02):
            del meta["name"]
        if self._is(0.03):
            meta["namespace"] = "another"
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **body}
        if kind.plural == "poddisruptionbudgets" and self._is(0.9):
            app = "a" if meta.get("name", "").endswith("0") else "b"
            body["spec"]["selector"]["matchLabels"]["app"] = app
        if self._is(0.02):
            body["kind"] = "Another"
        query = "?dryRun=All" if self._is(0.03) else ""
        if kind.plural == "events" and namespace:
            body["regarding"]["namespace"] = namespace
        return Asked("POST", self._path(kind, namespace) + query, body)

    def _read(self, kind: Kind) -> Asked:
        namespace, name, _ = self._target(kind)
        accept = _PARTIAL if self._is(0.3) else "application/json"
        return Asked("GET", self._path(kind, namespace, name), accept=accept)

    def _list(self, kind: Kind) -> Asked:
        namespace = self._chance.choice(NAMESPACES) if kind.namespaced else ""
        query = []
        if kind.plural in _SHARED:  # the real server has some of its own
            query.append("labelSelector=app")
        else:
            if kind.plural not in _NOT_ALONE and self._is(0.4):
                namespace = ""
            if self._is(0.3):
                query.append("labelSelector=" + self._chance.choice(_LABEL_SELECTORS))
        if self._is(0.4):
            query.append(f"limit={self._chance.choice((1, 2, 100))}")
        if self._is(0.3):
            selectors = _FIELD_SELECTORS.get(kind.plural, ())
            selector = self._chance.choice((*selectors, "metadata.name=x", "no.such=1"))
            query.append("fieldSelector=" + selector)
        accept = _PARTIALS if self._is(0.3) else "application/json"
        return Asked("GET", self._path(kind, namespace) + "?" + "&".join(query), accept=accept)

    def _replace(self, kind: Kind) -> Asked:
        namespace, name, found = self._target(kind)
        if found is None:
            name = self._new_name(kind) if self._is(0.5) else name
            body = {"metadata": {"name": name}, **self._bodies.new(kind.plural)}
            if kind.plural == "events":
                body["regarding"]["namespace"] = namespace
        else:
            body = self._changed(kind, found)
        body = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        if self._is(0.03):
            body["metadata"]["name"] = "another"
        return Asked("PUT", self._path(kind, namespace, name), body)

    def _changed(self, kind: Kind, found: Mapping[str, Any], *, spec: bool = True) -> Plain:
        body = self._copy(found)
        meta = body["metadata"]
        meta["resourceVersion"] = self._version(found["metadata"])
        for name in ("creationTimestamp", "deletionTimestamp"):
            meta.pop(name, None)  # they may differ by a second
        if self._is(0.15):
            del meta["resourceVersion"]
        if self._is(0.15):
            meta["uid"] = self._uid(found["metadata"])
        if spec and self._is(0.5):
            self._bodies.change(kind.plural, body)
        if self._is(0.4):
            meta |= self._bodies.metadata()
        return body

    def _copy(self, found: Mapping[str, Any]) -> Plain:
        copied: Plain = (
            self._model.store.of(self._model.kind(_plural(found)))
            .objects[found["metadata"].get("namespace", ""), found["metadata"]["name"]]
            .copy()
        )
        return copied

    def _patch(self, kind: Kind) -> Asked:
        namespace, name, found = self._target(kind)
        path = self._path(kind, namespace, name)
        if self._is(0.3):
            return Asked("PATCH", path, self._json_patch(found), JSON_PATCH)
        body: Plain = {"metadata": self._bodies.metadata()}
        if self._is(0.5):
            body = {}
            self._bodies.change(kind.plural, body)
            body["metadata"] = {**body.get("metadata", {}), **self._bodies.metadata()}
        meta = body["metadata"]
        if found is not None and self._is(0.3):
            meta["resourceVersion"] = self._version(found["metadata"])
        if found is not None and self._is(0.2):
            meta["uid"] = self._uid(found["metadata"])
        if self._is(0.1):
            meta["labels"] = {"app": None}
        strategic = self._is(0.3) and (kind.plural in ("pods", "nodes") or "bindery" in kind.group)
        return Asked("PATCH", path, body, STRATEGIC if strategic else MERGE)

    def _json_patch(self, found: Mapping[str, Any] | None) -> list[Plain]:
        labels = (found or {"metadata": {}})["metadata"].get("labels") or {}
        path = "/metadata/labels/app"
        value = self._chance.choice(("a", "b", labels.get("app", "a")))
        acts: list[list[Plain]] = [
            [
                {"op": "test", "path": path, "value": value},
                {"op": "replace", "path": path, "value": "z"},
            ],
            [{"op": "replace", "path": path, "value": "y"}],
            [{"op": "remove", "path": path}],
            [{"op": "add", "path": path, "value": "x"}],
            [{"op": "add", "path": "/metadata/annotations", "value": {"k": "v"}}],
            [{"op": "test", "path": "/metadata/annotations/no~1such", "value": None}],
        ]
        return self._chance.choice(acts)

    def _delete(self, kind: Kind) -> Asked:
        namespace, name, found = self._target(kind)
        options: Plain = {}
        if self._is(0.5):
            options["propagationPolicy"] = self._chance.choice(
                ("Background", "Background", "Foreground", "Orphan")
            )
        if found is not None and self._is(0.4):
            options["preconditions"] = {"uid": self._uid(found["metadata"])}
        if found is not None and self._is(0.2):
            version = {"resourceVersion": self._version(found["metadata"])}
            options["preconditions"] = options.get("preconditions", {}) | version
        if self._is(0.4):
            options["gracePeriodSeconds"] = self._chance.choice((0, 0, 5, 100))
        if self._is(0.03) and not (found or {"metadata": {}})["metadata"].get("finalizers"):
            options["dryRun"] = ["All"]
        return Asked("DELETE", self._path(kind, namespace, name), options or None)

    def _status(self, kind: Kind) -> Asked:
        namespace, name, found = self._target(kind)
        path = self._path(kind, namespace, name, "status")
        if found is not None and kind.plural != "persistentvolumes" and self._is(0.3):
            body = self._changed(kind, found, spec=False)
            body["status"] = {**(body.get("status") or {}), **self._bodies.status(kind.plural)}
            return Asked("PUT", path, body)
        body = {"status": self._bodies.status(kind.plural), "metadata": {}}
        if found is not None and self._is(0.4):
            body["metadata"]["resourceVersion"] = self._version(found["metadata"])
        if found is not None and self._is(0.2):
            body["metadata"]["uid"] = self._uid(found["metadata"])
        if self._is(0.2):
            body["metadata"] |= self._bodies.metadata()
        strategic = kind.plural in ("pods", "nodes") and self._is(0.6)
        return Asked("PATCH", path, body, STRATEGIC if strategic else MERGE)

    def _bind(self, kind: Kind) -> Asked:
        namespace, name, found = self._target(kind)
        meta: Plain = {"name": "another" if self._is(0.03) else name, "namespace": namespace}
        if found is not None and self._is(0.8):
            meta["uid"] = self._uid(found["metadata"])
        if self._is(0.4):
            meta["annotations"] = {"bound": self._chance.choice("ab")}
        if self._is(0.3):
            meta["labels"] = {"app": self._chance.choice("abc")}
        target: Plain = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": f"node-{self._chance.randrange(3)}",
        }
        if self._is(0.04):
            del target["name"]
        if self._is(0.04):
            target["kind"] = "Service"
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        query = "?dryRun=All" if self._is(0.03) else ""
        return Asked("POST", self._path(kind, namespace, name, "binding") + query, body)

    def _evict(self, kind: Kind) -> Asked:
        namespace, name, found = self._target(kind)
        guarded = self._guarded()
        if guarded and self._is(0.8):
            found = self._chance.choice(guarded)
            namespace, name = found["metadata"]["namespace"], found["metadata"]["name"]
        options: Plain = {}
        if found is not None and self._is(0.7):
            uid = found["metadata"]["uid"]
            if self._slow and self._is(0.05):
                self._slow -= 1
                uid = _WRONG_UID
            options["preconditions"] = {"uid": uid}
        if self._is(0.2):
            options["gracePeriodSeconds"] = self._chance.choice((0, 7))
        if self._is(0.15):
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "another" if self._is(0.03) else name, "namespace": namespace},
            "deleteOptions": options,
        }
        return Asked("POST", self._path(kind, namespace, name, "eviction"), body)

    def _evict_guarded(self) -> None:
        """Evict a running pod that a disruption budget guards, twice."""
        namespace, pods = self._chance.choice(NAMESPACES), self._model.kind("pods")
        budgets, name = self._model.kind("poddisruptionbudgets"), f"guarded-{self._sides.calls}"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        budget = {"metadata": {"name": "podd-0"}, "spec": spec}
        self._sides.ask(Asked("POST", self._path(budgets, namespace), budget))
        path = self._path(budgets, namespace, "podd-0", "status")
        status = {"status": self._bodies.status("poddisruptionbudgets")}
        self._sides.ask(Asked("PATCH", path, status, MERGE))
        body = {"metadata": {"name": name, "labels": {"app": "a"}}, **self._bodies.new("pods")}
        body["spec"] |= {"nodeName": "node-0", "schedulingGates": []}
        self._sides.ask(Asked("POST", self._path(pods, namespace), body))
        ready = {"type": "Ready", "status": self._chance.choice(("True", "True", "False"))}
        running = {"status": {"phase": "Running", "conditions": [ready]}}
        path = self._path(pods, namespace, name, "status")
        self._sides.ask(Asked("PATCH", path, running, STRATEGIC))
        for _ in range(2):
            eviction = {"metadata": {"name": name, "namespace": namespace}}
            path = self._path(pods, namespace, name, "eviction")
            self._sides.ask(Asked("POST", path, eviction))

    def _guarded(self) -> list[Mapping[str, Any]]:
        """Return the running pods with a disruption budget."""
        apps = {
            (each["metadata"]["namespace"], each["spec"]["selector"]["matchLabels"]["app"])
            for each in self._model.objects("poddisruptionbudgets")
        }
        return [
            each
            for each in self._model.objects("pods")
            if each["status"]["phase"] == "Running"
            and "deletionTimestamp" not in each["metadata"]
            and (each["metadata"]["namespace"], each["metadata"].get("labels", {}).get("app"))
            in apps
        ]

    def _gates(self, kind: Kind) -> Asked | None:
        gated = [
            each for each in self._model.objects("pods") if each["spec"].get("schedulingGates")
        ]
        if not gated:
            return None
        meta = self._chance.choice(gated)["metadata"]
        patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
        return Asked("PATCH", self._path(kind, meta["namespace"], meta["name"]), patch, JSON_PATCH)

    def _finalize(self, kind: Kind) -> Asked | None:
        _, name, found = self._target(kind)
        if found is None or not found["metadata"].get("deletionTimestamp"):
            return None
        body = self._copy(found)
        body["spec"] = {}
        return Asked("PUT", self._path(kind, "", name, "finalize"), body)


def _plural(found: Mapping[str, Any]) -> str:
    kind: str = found["kind"].lower()
    return kind + "es" if kind.endswith("ss") else kind + "s"


_SHARED: Final = ("namespaces", "priorityclasses")
_NOT_ALONE: Final = ("leases", "configmaps")
_LABEL_SELECTORS: Final = (
    "app", "app=a", "app!=a", "app%20in%20(a,b)", "app%20notin%20(a),tier", "!app", "app%3D%3D"
)  # fmt: skip
_FIELD_SELECTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName=",
        "spec.nodeName=node-1",
        "status.phase!=Failed",
        "spec.schedulerName=bindery",
    ),
    "nodes": ("spec.unschedulable=true", "spec.unschedulable=false"),
    "events": ("reportingController=test",),
}


class Bodies:
    """Draws objects and parts of them, some of them invalid."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def _one(self, *choices: Any) -> Any:
        return self._chance.choice(choices)

    def metadata(self) -> Plain:
        """Return labels, annotations, finalizers and owners."""
        meta: Plain = {}
        if self._is(0.6):
            meta["labels"] = {"app": self._one("a", "b", "c")}
        if self._is(0.3):
            meta["annotations"] = {"note": self._one("x", "y")}
        if self._is(0.08):
            meta["finalizers"] = self._one(
                ["test.example/f"], ["test.example/f", "test.example/g"], []
            )
        if self._is(0.05):
            owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "owner-uid"}
            meta["ownerReferences"] = self._one([owner], [{**owner, "uid": ""}])
        if self._is(0.03):
            meta["labels"] = self._one({"app": "not valid!"}, {"-bad": "x"}, {"ok/fine": "a" * 70})
        if self._is(0.02):
            meta["finalizers"] = ["unqualified"]
        return meta

    def new(self, plural: str) -> Plain:
        """Return a new object without metadata."""
        body: Plain = getattr(self, f"_new_{plural}")()
        return body

    def change(self, plural: str, body: Plain) -> None:
        """Change an object, or fill a merge patch."""
        change: Callable[[Plain], None] = getattr(self, f"_change_{plural}")
        change(body)

    def status(self, plural: str) -> Plain:
        """Return a status, or a part of one."""
        status: Plain = getattr(self, f"_status_{plural}")()
        return status

    # ---- pods ----

    def _new_pods(self) -> Plain:
        container: Plain = {"name": "main", "image": self._one("a:1", "a", "r.io/b:latest")}
        if self._is(0.5):
            requests = {"cpu": self._one("1", "500m"), "memory": "1Gi"}
            container["resources"] = self._one(
                {"requests": requests},
                {"limits": requests},
                {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
                {"limits": {"nvidia.com/gpu": "1"}},
                {"requests": {"nvidia.com/gpu": "1"}},
            )
        spec: Plain = {
            "automountServiceAccountToken": False,
            "schedulerName": "bindery",
            "containers": [container],
        }
        if self._is(0.3):
            spec["terminationGracePeriodSeconds"] = self._one(0, 10)
        if self._is(0.15):
            spec["schedulingGates"] = [{"name": "wait"}]
        if self._is(0.1):
            spec["nodeName"] = "node-0"
        if self._is(0.1):
            spec["restartPolicy"] = self._one("Never", "OnFailure", "Sometimes")
        if self._is(0.1):
            spec["priorityClassName"] = self._one("prio-0", "prio-1", "system-node-critical")
        if self._is(0.05):
            spec["containers"] = self._one([], [container, container], [{"name": "x"}])
        if self._is(0.05):
            spec["tolerations"] = [{"operator": "Exists"}]
        return {"spec": spec}

    def _change_pods(self, body: Plain) -> None:
        spec = body.setdefault("spec", {})
        which = self._one("deadline", "node", "selector", "tolerations", "priority", "scheduler")
        if which == "deadline":
            spec["activeDeadlineSeconds"] = self._one(10, 100, 1000)
        elif which == "node":
            spec["nodeName"] = "node-2"
        elif which == "selector":
            spec["nodeSelector"] = {"zone": self._one("x", "y")}
        elif which == "tolerations":
            spec["tolerations"] = [*spec.get("tolerations", []), {"key": "k", "operator": "Exists"}]
        elif which == "priority":
            spec["priority"] = 5
        else:
            spec["schedulerName"] = "another"

    def _status_pods(self) -> Plain:
        status: Plain = {}
        if self._is(0.6):
            status["phase"] = self._one("Pending", *["Running"] * 5, "Succeeded", "Failed")
        if self._is(0.6):
            condition = {
                "type": self._one("Ready", "Ready", "Ready", "PodScheduled"),
                "status": self._one("True", "True", "True", "False"),
                "reason": self._one("A", "B"),
                "lastTransitionTime": _TIME,
            }
            status["conditions"] = [condition]
        if self._is(0.2):
            status["nominatedNodeName"] = self._one("node-1", "", "Not_Valid")
        if self._is(0.1):
            status["podIP"] = "10.0.0.1"
            status["podIPs"] = [{"ip": "10.0.0.1"}]
        if self._is(0.05):
            status["qosClass"] = "Guaranteed"
        return status

    # ---- nodes ----

    def _new_nodes(self) -> Plain:
        body: Plain = {}
        if self._is(0.4):
            body["spec"] = self._one(
                {"unschedulable": True},
                {"taints": [{"key": "k", "effect": "NoSchedule"}]},
                {"taints": [{"key": "", "effect": "NoSchedule"}]},
                {"taints": [{"key": "k", "value": "v"}]},
            )
        if self._is(0.5):
            body["status"] = self._status_nodes()
        return body

    def _change_nodes(self, body: Plain) -> None:
        body.setdefault("spec", {})["unschedulable"] = self._one(True, False)

    def _status_nodes(self) -> Plain:
        status: Plain = {"capacity": {"cpu": self._one("8", "16")}, "allocatable": {"cpu": "8"}}
        if self._is(0.6):
            status["conditions"] = [
                {
                    "type": self._one("Ready", "DiskPressure"),
                    "status": self._one("True", "False"),
                    "reason": "Drawn",
                    "lastHeartbeatTime": _TIME,
                    "lastTransitionTime": _TIME,
                }
            ]
        return status

    # ---- leases, events, config maps, namespaces, priority classes ----

    def _new_leases(self) -> Plain:
        spec = {
            "holderIdentity": self._one("a", "b"),
            "leaseDurationSeconds": self._one(15, 15, 15, 0),
            "leaseTransitions": self._one(1, 2, 3, -1),
            "renewTime": _MICRO,
        }
        return {"spec": spec}

    def _change_leases(self, body: Plain) -> None:
        spec = body.setdefault("spec", {})
        spec["holderIdentity"] = self._one("a", "b", None)
        spec["leaseTransitions"] = self._one(1, 2, 3, -1)

    def _new_events(self) -> Plain:
        body = {
            "eventTime": _MICRO,
            "type": self._one("Normal", "Warning", "Normal", "Odd"),
            "reason": "Drawn",
            "action": "Drawing",
            "note": self._one("a note", "a note", "n" * 1100),
            "reportingController": "test",
            "reportingInstance": "test-1",
            "regarding": {"kind": "Pod", "name": "pods-1", "apiVersion": "v1"},
        }
        if self._is(0.1):
            del body[self._one("eventTime", "reason", "action", "reportingController")]
        return body

    def _change_events(self, body: Plain) -> None:
        if self._is(0.3):
            body["reason"] = "Another"
        body["series"] = {"count": self._one(2, 3), "lastObservedTime": _MICRO}

    def _new_configmaps(self) -> Plain:
        body: Plain = {"data": {self._one("key", "key", "key", "not valid"): self._one("a", "b")}}
        if self._is(0.1):
            body["immutable"] = True
        return body

    def _change_configmaps(self, body: Plain) -> None:
        body["data"] = {"key": self._one("a", "b", "c")}

    def _new_namespaces(self) -> Plain:
        return {}

    def _change_namespaces(self, body: Plain) -> None:
        body.setdefault("metadata", {})["annotations"] = {"note": self._one("x", "y", "z")}

    def _status_namespaces(self) -> Plain:
        return {"phase": self._one("Active", "Terminating")}

    def _new_priorityclasses(self) -> Plain:
        return {"value": self._one(1, 10, 100)}

    def _change_priorityclasses(self, body: Plain) -> None:
        body[self._one("value", "description")] = self._one("text", "words")
        if "value" in body:
            body["value"] = self._one(1, 10, 100)

    # ---- budgets, claims, volumes ----

    def _new_poddisruptionbudgets(self) -> Plain:
        spec: Plain = {"selector": {"matchLabels": {"app": self._one("a", "b", "c")}}}
        spec |= self._one(
            {"minAvailable": 1}, {"maxUnavailable": "10%"}, {"minAvailable": -1},
            {"minAvailable": 1, "maxUnavailable": 1}, {"maxUnavailable": 0},
        )  # fmt: skip
        if self._is(0.2):
            spec["unhealthyPodEvictionPolicy"] = self._one("AlwaysAllow", "IfHealthyBudget")
        return {"spec": spec}

    def _change_poddisruptionbudgets(self, body: Plain) -> None:
        spec = body.setdefault("spec", {})
        spec["minAvailable"] = self._one(0, 1, 2)
        if self._is(0.9):
            spec["maxUnavailable"] = None

    def _status_poddisruptionbudgets(self) -> Plain:
        return {
            "disruptionsAllowed": self._one(0, 1, 2, 2, -1),
            "currentHealthy": self._one(0, 1, 3),
            "desiredHealthy": self._one(1, 2),
            "expectedPods": 3,
            "observedGeneration": self._one(1, 9, 9, 9),
        }

    def _new_resourceclaims(self) -> Plain:
        exactly = {"deviceClassName": "gpu"}
        return {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}

    def _change_resourceclaims(self, body: Plain) -> None:
        if self._is(0.5):
            body.setdefault("spec", {})["devices"] = {}

    def _status_resourceclaims(self) -> Plain:
        result = {
            "request": "r",
            "driver": "d.example",
            "pool": "p",
            "device": self._one("g0", "g1"),
        }
        status: Plain = {"allocation": {"devices": {"results": [result]}}}
        if self._is(0.6):
            pods = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in (0, 1, 0)]
            status["reservedFor"] = pods[: self._one(1, 2, 2, 3)]
        if self._is(0.3):
            status["allocation"] = None
        return status

    def _new_persistentvolumeclaims(self) -> Plain:
        return {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self._one("fast", ""),
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }

    def _change_persistentvolumeclaims(self, body: Plain) -> None:
        if self._is(0.3):
            body.setdefault("spec", {})["storageClassName"] = "slow"
        else:
            body.setdefault("metadata", {})["annotations"] = {"selected": self._one("a", "b")}

    def _status_persistentvolumeclaims(self) -> Plain:
        return {"phase": self._one("Pending", "Bound")}

    def _new_persistentvolumes(self) -> Plain:
        return {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "storageClassName": "fast",
                "hostPath": {"path": "/data"},
            }
        }

    def _change_persistentvolumes(self, body: Plain) -> None:
        body.setdefault("spec", {})["persistentVolumeReclaimPolicy"] = self._one("Delete", "Retain")

    def _status_persistentvolumes(self) -> Plain:
        return {"phase": self._one("Available", "Bound", "Released")}

    # ---- own kinds ----

    def _new_bindrequests(self) -> Plain:
        pod = {"podName": "p", "podUID": "u", "selectedNode": "n", "unknown": 1}
        statement: Plain = {"id": "s", "pods": [pod]}
        if self._is(0.3):
            statement["parts"] = self._one(1, 2, 0, 20000)
        if self._is(0.2):
            del pod[self._one("podName", "podUID", "selectedNode")]
        if self._is(0.2):
            pod["receivedResourceType"] = self._one("Fraction", "Whole")
        spec: Plain = {"statements": [statement], "fencingToken": self._one(0, 1)}
        if self._is(0.1):
            spec["statements"] = self._one([], "text", None, [None])
        if self._is(0.1):
            del spec["statements"]
        body: Plain = {"spec": spec}
        if self._is(0.1):
            body["status"] = {"phase": "Succeeded"}
        if self._is(0.05):
            del body["spec"]
        return body

    def _change_bindrequests(self, body: Plain) -> None:
        spec = body.setdefault("spec", {})
        spec["withdrawn"] = self._one(["s"], ["s", "t"], "no list", None)
        if self._is(0.2):
            spec["backoffLimit"] = self._one(3, -1, 2.0, 2.5)

    def _status_bindrequests(self) -> Plain:
        status: Plain = {"phase": self._one("Binding", "Succeeded", "Failed", "Odd")}
        if self._is(0.4):
            status["completionTime"] = self._one(_TIME, _MICRO, "yesterday")
        if self._is(0.4):
            status["statements"] = [{"id": "s", "phase": "Binding", "boundPods": ["u"], "odd": 1}]
        status["boundCount"] = self._one(0, 1, 2, -1)
        return status

    def _new_podgroups(self) -> Plain:
        spec: Plain = {"minMember": self._one(0, 1, 2, -1, "two")}
        if self._is(0.4):
            spec["members"] = self._one(
                [{"pod": "u"}], [{"controller": "u", "pod": "v"}], [{}],
                [{"label": {"key": "k", "value": "v"}}], [{"label": {"key": "k"}}],
                [{"annotation": {"key": "", "value": "v"}}],
            )  # fmt: skip
        if self._is(0.2):
            spec["subGroups"] = [{"name": self._one("s", "")}, {"name": "s"}]
        if self._is(0.2):
            spec["roles"] = {"worker": self._one(1, "one", -1)}
        if self._is(0.2):
            spec["runTimeLimitSeconds"] = self._one(0, 0.5, 60)
        return {"spec": spec} if self._is(0.75) else {}

    def _change_podgroups(self, body: Plain) -> None:
        spec = body.setdefault("spec", {})
        spec["minMember"] = self._one(1, 2, 3, 1000000)
        spec["queue"] = self._one("q", None)

    def _status_podgroups(self) -> Plain:
        status: Plain = {"state": self._one("Waiting", "Running", "Lost")}
        condition = {"type": "Scheduled", "status": "True", "lastTransitionTime": _TIME}
        if self._is(0.5):
            status["conditions"] = self._one(
                [condition], [condition, condition], [{"type": "Scheduled"}]
            )
        if self._is(0.3):
            status["pods"] = {"running": self._one(1, 2)}
        return status

    def _new_queues(self) -> Plain:
        share = {"quota": self._one(1, "2", -1, -2, "x", 1.5), "limit": self._one(5, "10Gi")}
        spec = {"resources": {"gpu": share}, "state": self._one("Open", "Closed", "Ajar")}
        return {"spec": spec} if self._is(0.7) else {}

    def _change_queues(self, body: Plain) -> None:
        spec = body.setdefault("spec", {})
        spec["priority"] = self._one(1, 2, "high")
        if self._is(0.3):
            spec["parent"] = self._one("root", None)

    def _status_queues(self) -> Plain:
        return {"children": self._one(["a"], "none"), "unknown": 1}


def prepare(sides: Sides, kinds: Mapping[str, Kind]) -> None:
    """Delete the objects of earlier runs, create the namespaces of pods, and open watches."""
    for kind in sorted(kinds.values(), key=lambda each: each.plural == "namespaces"):
        _clear(sides, kind)
    for namespace in NAMESPACES:
        sides.ask(_created("/api/v1/namespaces", {"metadata": {"name": namespace}}))
        account = {"metadata": {"name": "default"}}
        sides.ask(_created(f"/api/v1/namespaces/{namespace}/serviceaccounts", account))
    for plural, kind in kinds.items():
        root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        inside = f"/namespaces/{NAMESPACES[0]}" if plural in _NOT_ALONE else ""
        path = f"{root}{inside}/{plural}"
        sides.watch(path)
        if plural == "pods":
            sides.watch(path, "fieldSelector=spec.nodeName%3D,status.phase!%3DFailed")
            sides.watch(f"/api/v1/namespaces/{NAMESPACES[1]}/pods", "labelSelector=app%3Da")
            sides.watch(path, accept=_PARTIAL)
        if plural == "queues":
            sides.watch(path, "labelSelector=app%20in%20(a,b)", accept=_PARTIAL)


def _created(path: str, body: Plain) -> Asked:
    return Asked("POST", path, body)


def _clear(sides: Sides, kind: Kind) -> None:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    _, listed = sides.real.handle(Asked("GET", f"{root}/{kind.plural}"))
    for each in listed["items"]:
        meta = each["metadata"]
        namespace = meta.get("namespace", "")
        place = namespace if kind.namespaced else meta["name"]
        is_theirs = place.startswith(("kube-", "system-", "default"))
        if is_theirs:
            continue
        inside = f"/namespaces/{namespace}" if namespace else ""
        path = f"{root}{inside}/{kind.plural}/{meta['name']}"
        sides.real.handle(Asked("PATCH", path, {"metadata": {"finalizers": None}}, MERGE))
        sides.real.handle(Asked("DELETE", path, {"gracePeriodSeconds": 0}))
        if kind.plural == "namespaces":
            ended = {**each, "spec": {}}
            ended["metadata"] = {"name": meta["name"]}
            sides.real.handle(
                Asked("PUT", f"{path}/finalize", {**ended, "kind": "Namespace", "apiVersion": "v1"})
            )
