"""A mixed load of pods on a node of Bindery's agent: some stay, others come and go all the time."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import Resource
from devcluster.realnode.cluster import RealCluster
from tests.administrator import Plain
from tests.e2e.realnode import agentstorage
from tests.e2e.realnode.blows.otherside import CLAIMS, RESOURCE
from tests.e2e.realnode.nodepods import (
    WAITS,
    Spec,
    by_command,
    container,
    exactly,
    first,
    of,
    pod,
    sidecar,
)

PODS: Final = Resource("", "v1", "pods", "Pod", True, Plain)
_CLAIM_OBJECTS: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, Plain
)
STEP_S: Final = 600.0
"""How long a pod may take to run or to go, with the blows that hit it."""
NAMESPACE: Final = "blows"
STAYS, MOVES = "stays", "moves"
"""The roles of pods, and of the claims that they use."""

_SMALL: Final = {"memory": "16Mi"}
"""All CPUs are for the pod with CPUs of its own."""
_READS: Final = f"test $(cat /c/mode)$(cat /s/key)$(cat /d/name) = fasthiddenpod && {WAITS}"
ENDS_WITH: Final = 3
_COUNTS: Final = f"test -e /v/second && {{ {WAITS}; }}; touch /v/second; exit {ENDS_WITH}"
_SAVES: Final = {"preStop": {"exec": {"command": ["sh", "-c", "echo saved >/v/file"]}}}
_DOWN: Final = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.labels['kind']"}}]}


def _with(volumes: Mapping[str, Mapping[str, Any]], command: str = WAITS, **further: Any) -> Spec:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in volumes]
    return pod(
        command=command,
        main={"volumeMounts": mounts, **further.pop("main", {})},
        volumes=[{"name": name, **source} for name, source in volumes.items()],
        **further,
    )


def _files(_role: str) -> Spec:
    files: dict[str, dict[str, Any]] = {
        "c": {"configMap": {"name": "settings"}},
        "s": {"secret": {"secretName": "settings"}},
        "d": {"downwardAPI": _DOWN},
        "m": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        "v": {"emptyDir": {}},
    }
    fs_group = {"fsGroup": 1234}
    return _with(files, _READS, securityContext=fs_group, automountServiceAccountToken=True)


def _driven(role: str) -> Spec:
    """Return a pod with a directory and a device of the CSI driver."""
    spec = _with({"v": {"persistentVolumeClaim": {"claimName": f"{role}-directory"}}})
    spec["containers"][0]["volumeDevices"] = [{"name": "b", "devicePath": "/dev/block"}]
    block = {"claimName": f"{role}-block"}
    spec["volumes"].append({"name": "b", "persistentVolumeClaim": block})
    return spec


def _hooked(_role: str) -> Spec:
    probe = by_command("test -e /v")
    return _with(
        {"v": {"emptyDir": {}}},
        main={"lifecycle": _SAVES, "readinessProbe": probe, "livenessProbe": probe},
        initContainers=[first(), sidecar()],
    )


def _device(_role: str) -> Spec:
    one = {RESOURCE: "1"}
    return pod(one, one, command=f"test -n $BLOWN && {WAITS}")


def _claimed(role: str) -> Spec:
    command = f"test $CLAIMED = yes && {WAITS}"
    resources = {"requests": _SMALL, "claims": [{"name": "one"}]}
    claims = [{"name": "one", "resourceClaimName": f"{role}-claim"}]
    main = {**container("main", command=command), "resources": resources}
    return of(main, resourceClaims=claims)


KINDS: Final[Mapping[str, Callable[[str], Spec]]] = {
    "plain": lambda _: pod(_SMALL, restartPolicy="Always"),
    "files": _files,
    "driven": _driven,
    "hooked": _hooked,
    "device": _device,
    "claimed": _claimed,
    "restarting": lambda _: _with({"v": {"emptyDir": {}}}, _COUNTS, restartPolicy="Always"),
    "ending": lambda _: pod(command="exit 0"),
    "exact": lambda _: exactly("1"),
}
ONLY_MOVING: Final = "exact"
"""There is one CPU for pods."""

REFUSED: Final = ("UnexpectedAdmissionError", "no healthy devices present")
"""How a kubelet, and the agent, refuse a pod with devices whose container does not run yet, when
they have started again and the plugin has not registered again."""


def goal(kind: str, status: Mapping[str, Any]) -> bool:
    """Return whether a pod has come where its kind ends, or, for most, goes on."""
    if kind == "ending":
        return bool(status.get("phase") == "Succeeded")
    ready = [one for one in status.get("conditions", ()) if one["type"] == "Ready"]
    is_ready = any(one["status"] == "True" for one in ready)
    return is_ready and sum(one["restartCount"] for one in _containers(status)) >= _restarts(kind)


def identities(status: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return the containers of a pod, and how often each was restarted."""
    return {one["name"]: (one["containerID"], one["restartCount"]) for one in _containers(status)}


def excuse(kind: str, status: Mapping[str, Any]) -> str:
    """Return what a pod met that a kubelet's would have met, too; empty if there is nothing."""
    reason, words = REFUSED
    is_refused = status.get("reason") == reason and words in status.get("message", "")
    if is_refused and kind == "device":
        return "refused before the plugin had registered again"
    for one in _containers(status):
        is_own_end = kind == "restarting" and _exit_code(one["lastState"]) == ENDS_WITH
        if one["restartCount"] > _restarts(kind) and (is_own_end or not one["lastState"]):
            return "a container that was created and not started"
    return ""


def _exit_code(state: Mapping[str, Any]) -> int | None:
    return state["terminated"]["exitCode"] if "terminated" in state else None


def _restarts(kind: str) -> int:
    """Return how often the container of a kind ends and is restarted."""
    return 1 if kind == "restarting" else 0


def _containers(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def prepare(cluster: RealCluster, roles: Sequence[str]) -> None:
    """Create the namespace with what the pods of these roles use."""
    name = NAMESPACE
    meta = {"namespace": name, "name": "settings"}
    volumes = [
        one
        for role in roles
        for one in (
            *agentstorage.volume(name, f"{role}-directory", f"{role}-directory"),
            *agentstorage.volume(name, f"{role}-block", f"block-{role}", "Block"),
        )
    ]
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": "fast"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"key": "hidden"}},
        agentstorage.driver(),
        *volumes,
    ]
    plane = cluster.control_plane
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    plane.kubectl("apply", "--filename=-", stdin=body)
    account = "serviceaccount/default"
    plane.kubectl("wait", account, f"--namespace={name}", "--for=create", "--timeout=60s")


class Load:
    """The pods of one node, in `NAMESPACE`.

    Attributes:
        advances: how often a pod was seen to go on: containers, address, refusal, or its removal,
            if it had not ended: the API server waits for no agent then.
        cycles: kind -> how many pods came and went.
        set_aside: kinds of pods that were made again, each with its `excuse`.
    """

    def __init__(self, client: Client, node: str) -> None:
        self._client, self.node = client, node
        self._pods: dict[str, dict[str, Any]] = {}
        self._arrived: dict[str, dict[str, tuple[str, int]]] = {}
        self.advances = 0
        self.cycles = dict.fromkeys(KINDS, 0)
        self.set_aside: list[str] = []
        self._is_over = asyncio.Event()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Read the pods again and again."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(0.3)

    async def _look(self) -> None:
        before = self._pods
        found = await self._client.list(PODS, namespace=NAMESPACE)
        self._pods = {one.metadata.name: one.status for one in found}
        for name, old in before.items():
            new = self._pods.get(name)
            is_removed = new is None and old.get("phase") not in ENDED_POD_PHASES
            self.advances += is_removed or (new is not None and _work(old) != _work(new))

    def shown(self) -> str:
        """Return where the pods are, for the message of a failure."""
        return "\n".join(f"{name}: {json.dumps(_work(one))}" for name, one in self._pods.items())

    def statuses(self, role: str) -> dict[str, dict[str, Any]]:
        """Return the names of the pods of a role, with their statuses as last read."""
        return {name: one for name, one in self._pods.items() if name.startswith(f"{role}-")}

    async def until(self, holds: Callable[[], bool], otherwise: str) -> None:
        """Wait; raises AssertionError with what has not come, and where the pods are."""
        deadline_s = time.monotonic() + STEP_S
        while not holds():
            assert time.monotonic() < deadline_s, f"{otherwise}: {self.shown()}"
            await asyncio.sleep(0.1)

    async def settle(self) -> None:
        """Create the pods that stay, and wait until they run."""
        kinds = [kind for kind in KINDS if kind != ONLY_MOVING]
        await asyncio.gather(*(self._bring(kind, f"{STAYS}-{kind}", STAYS) for kind in kinds))

    async def move(self, cycles: int | None = None) -> None:
        """Let pods come and go: so often, or until `stop`."""
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                group.create_task(self._moving(kind, cycles))

    def stop(self) -> None:
        """Let the pods that come and go do so for the last time."""
        self._is_over.set()

    async def leave(self) -> None:
        """Delete the pods that stay, and wait until they are gone."""
        kinds = [kind for kind in KINDS if kind != ONLY_MOVING]
        await asyncio.gather(*(self._take(kind, f"{STAYS}-{kind}", STAYS) for kind in kinds))

    def replaced(self) -> dict[str, str]:
        """Return the pods that stay whose containers are others than when they had arrived."""
        return {
            name: f"{arrived} is now {now}"
            for name, arrived in self._arrived.items()
            if name.startswith(STAYS) and (now := identities(self._pods[name])) != arrived
        }

    async def _moving(self, kind: str, cycles: int | None) -> None:
        while not self._is_over.is_set() and self.cycles[kind] != cycles:
            self.cycles[kind] += 1
            name = f"{MOVES}-{kind}-{self.cycles[kind]}"
            await self._bring(kind, name, MOVES)
            await self._take(kind, name, MOVES)

    async def _bring(self, kind: str, name: str, role: str) -> None:
        """Create a pod and wait until it has arrived, again if it is set aside."""
        while True:
            await self.create(kind, name, role)
            if await self._arrives(kind, name):
                self._arrived[name] = identities(self._pods[name])
                return
            await self._take(kind, name, role)

    async def _take(self, kind: str, name: str, role: str) -> None:
        await self._client.delete(PODS, name, NAMESPACE, grace_period_s=2)
        await self.until(lambda: name not in self._pods, f"{name} does not go")
        if kind == "claimed":
            await self._client.delete(_CLAIM_OBJECTS, f"{role}-claim", NAMESPACE)

    async def create(self, kind: str, name: str, role: str) -> None:
        """Create a pod on the node."""
        spec = {**KINDS[kind](role), "schedulerName": "none"}
        metadata = {"name": name, "labels": {"kind": "pod"}}
        body = {"metadata": metadata, "spec": {**spec, "terminationGracePeriodSeconds": 2}}
        created = await self._client.create(PODS, body, NAMESPACE)
        if kind == "claimed":
            await self._allocate(f"{role}-claim", name, created.metadata.uid)
        await self._client.bind(NAMESPACE, name, created.metadata.uid, self.node)
        self._pods[name] = {}

    async def _allocate(self, claim: str, name: str, uid: str) -> None:
        """Create a claim of a pod, allocated: there is no scheduler."""
        exactly_one = {"deviceClassName": "blown"}
        spec = {"devices": {"requests": [{"name": "one", "exactly": exactly_one}]}}
        body = {"metadata": {"name": claim}, "spec": spec}
        while True:
            try:
                old = await self._client.get(_CLAIM_OBJECTS, claim, NAMESPACE)
            except NotFoundError:
                break
            assert old.metadata.name == claim
            await asyncio.sleep(0.3)
        await self._client.create(_CLAIM_OBJECTS, body, NAMESPACE)
        result = {"request": "one", "driver": CLAIMS, "pool": "blown", "device": "one"}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        await self._client.patch(
            _CLAIM_OBJECTS, claim, {"status": status}, namespace=NAMESPACE,
            subresource="status",
        )  # fmt: skip

    async def _arrives(self, kind: str, name: str) -> bool:
        """Return whether a pod arrives as it would without blows; False: make it again."""

        def has_failed() -> bool:
            return self._pods.get(name, {}).get("phase") == "Failed"

        await self.until(
            lambda: has_failed() or goal(kind, self._pods.get(name, {})), f"{name} does not arrive"
        )
        status = self._pods[name]
        is_restarted = any(one["restartCount"] > _restarts(kind) for one in _containers(status))
        if not has_failed() and not is_restarted:
            return True
        why = excuse(kind, status)
        assert why, f"{name} is otherwise: {status}"
        self.set_aside.append(f"{kind}: {why}")
        return False


def _work(status: Mapping[str, Any]) -> list[Any]:
    """Return what of a pod's status only its agent writes."""
    keys = ("reason", "podIP", "initContainerStatuses", "containerStatuses")
    return [status.get(key) for key in keys]
