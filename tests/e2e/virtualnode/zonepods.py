"""Random pods that a node with two NUMA zones admits, aligns or refuses."""

from random import Random
from typing import Any

from devcluster.realnode.images import BUSYBOX
from tests.e2e.besideload import without_start

_SLEEP = "trap 'exit 0' TERM; sleep 100000 & wait"
_KINDS = ("one", "one", "one", "two", "init", "sidecar", "parts", "burstable")
_WHOLE = ("1", "1", "2", "2", "3")
_PARTS = ("250m", "500m")
_MEMORY_MIB = (32, 64, 300, 700, 1100, 1500, 2200)
"""A zone has about 1,350 for pods."""


def pod(random: Random, name: str, node: str, *, starts: bool) -> dict[str, Any]:
    """Return a pod that is bound to `node`."""
    spec = _containers(random, random.choice(_KINDS))
    if not starts:
        spec = without_start(spec)
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            # Without what costs an emulated machine time.
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **spec,
        },
    }


def _containers(random: Random, kind: str) -> dict[str, Any]:
    cpu = random.choice(_PARTS if kind == "parts" else _WHOLE)
    memory = random.choice(_MEMORY_MIB)
    if kind == "burstable":
        requests = {"cpu": random.choice(_PARTS), "memory": f"{memory // 4}Mi"}
        return {"containers": [_container("app", {"requests": requests})]}
    if kind == "two":
        small = {"cpu": random.choice(("1", "500m")), "memory": "64Mi"}
        return {"containers": [_limited("app", cpu, memory), _container("side", {"limits": small})]}
    first: dict[str, Any] = {}
    if kind == "init":
        before = _limited("before", random.choice(_WHOLE), random.choice(_MEMORY_MIB[:4]))
        first = {"initContainers": [{**before, "command": ["true"]}]}
    if kind == "sidecar":
        before = _limited("before", random.choice(("1", "250m")), 64)
        first = {"initContainers": [{**before, "restartPolicy": "Always"}]}
    return {**first, "containers": [_limited("app", cpu, memory)]}


def _limited(name: str, cpu: str, memory_mib: int) -> dict[str, Any]:
    return _container(name, {"limits": {"cpu": cpu, "memory": f"{memory_mib}Mi"}})


def _container(name: str, resources: dict[str, Any]) -> dict[str, Any]:
    # Memory is promised in full and never used.
    script = ["sh", "-c", _SLEEP]
    return {"name": name, "image": BUSYBOX, "command": script, "resources": resources}
