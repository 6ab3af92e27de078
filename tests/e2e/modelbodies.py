"""Random objects, parts of objects and statuses for `modelcalls`; some of them are invalid."""

import random
from collections.abc import Callable
from typing import Any, Final

Plain = dict[str, Any]
TIME: Final = "2026-01-02T03:04:05Z"
_MICRO: Final = "2026-01-02T03:04:05.678901Z"


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
                "lastTransitionTime": TIME,
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
                    "lastHeartbeatTime": TIME,
                    "lastTransitionTime": TIME,
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
            status["completionTime"] = self._one(TIME, _MICRO, "yesterday")
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
        condition = {"type": "Scheduled", "status": "True", "lastTransitionTime": TIME}
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
