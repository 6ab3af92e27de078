"""Random calls for the comparison of the model with a real API server, chosen by a seed.

Names come from small pools, so calls meet the same objects. About half of the calls have a mistake:
another UID, an old version, a missing object, an invalid field.
"""

import random
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.e2e.modelbodies import TIME, Bodies, Plain
from tests.e2e.modelcomparison import Asked, Sides
from tests.histories.apiserver.kinds import Kind

NAMESPACES: Final = ("one", "two")
"""In these, pods can be created."""
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIALS: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WRONG_UID: Final = "00000000-0000-4000-8000-000000000000"
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
        accept = PARTIAL if self._is(0.3) else "application/json"
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
            meta.pop(name, None)  # they may differ by a second, as the two below
        status = body.get("status", {})
        status.pop("disruptedPods", None)
        for each in status.get("conditions", ()):
            each["lastTransitionTime"] = TIME
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
        if found is not None and self._is(0.3):
            meta["resourceVersion"] = self._version(found["metadata"])
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
