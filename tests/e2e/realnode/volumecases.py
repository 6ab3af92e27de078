"""Pods with volumes for a kubelet and for the agent, beside those of `nodeextras.volumes`.

Their claims are bound to volumes that both nodes have: of the tests' CSI driver, which really
mounts, and directories of the node. Each node has its own content.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import SHARED
from devcluster.realnode.node import RealNode
from tests.e2e.realnode import agentstorage
from tests.e2e.realnode.nodeextras import Group
from tests.e2e.realnode.nodepods import (
    SMALL,
    WAITS,
    Case,
    Spec,
    container,
    first,
    mounting,
    of,
    pod,
)

FILES: Final = "files"
"""A ConfigMap and a Secret with two texts; the ConfigMap also has bytes."""
LOCAL: Final = "local"
"""A directory below the shared one of each node."""
_WRITES: Final = f"mkdir /v/made && echo kept >/v/made/file && chmod 640 /v/made/file && {WAITS}"

CLAIMS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{
        name: agentstorage.driven(name)
        for name in (
            "plain", "written", "read", "below", "variable", "twice", "many-a", "many-b", "first",
            "restarted", "user",
        )
    },
    "only-read": agentstorage.driven("only-read", readOnly=True),
    "attributes": agentstorage.driven("attributes", volumeAttributes={"b": "2", "a": "1"}),
    **{
        name: {**agentstorage.driven(name, fsType="ext4"), "accessModes": ["ReadWriteOnce"]}
        for name in ("group", "group-once")
    },
    **{
        name: {**agentstorage.driven(f"block-{name}"), "volumeMode": "Block"}
        for name in ("disk", "disk-read", "disk-both")
    },
    LOCAL: {"local": {"path": f"{SHARED}/{LOCAL}"}},
    "local-none": {"local": {"path": f"{SHARED}/none"}},
    "path": {"hostPath": {"path": f"{SHARED}/path", "type": "DirectoryOrCreate"}},
    "path-none": {"hostPath": {"path": f"{SHARED}/none", "type": "Directory"}},
    "no-driver": {"csi": {"driver": "none.example.com", "volumeHandle": "none"}},
}  # fmt: skip
"""Claim -> the spec of its volume, as far as `agentstorage.bound` does not complete it."""


@contextmanager
def stored(cluster: RealCluster, namespace: str, nodes: tuple[RealNode, ...]) -> Iterator[None]:
    """The objects that the cases name, and the directories of the nodes."""
    plane = cluster.control_plane
    for node in nodes:
        (node.shared / LOCAL).mkdir(exist_ok=True)
        # The API server writes the zone of a node to its pods.
        zone = agentnode.FACTS["zone"]
        plane.kubectl("label", "node", node.name, f"topology.kubernetes.io/zone={zone}")
        registered = f"jsonpath={{.spec.drivers[0].name}}={agentstorage.DRIVER}"
        plane.kubectl("wait", f"csinode/{node.name}", f"--for={registered}", "--timeout=60s")
    names = [node.name for node in nodes]
    volumes = [
        agentstorage.bound(namespace, claim, _on(names, volume)) for claim, volume in CLAIMS.items()
    ]
    objects = [
        _named("ConfigMap", namespace, data=_TEXTS, binaryData={"bytes": "AP8="}),
        _named("Secret", namespace, stringData=_TEXTS),
        agentstorage.driver(),
        *(each for pair in volumes for each in pair),
    ]
    every = {"apiVersion": "v1", "kind": "List", "items": objects}
    plane.kubectl("apply", "--filename=-", stdin=json.dumps(every))
    bound = "--for=jsonpath={.status.phase}=Bound"
    claims = f"--namespace={namespace}"
    plane.kubectl("wait", "persistentvolumeclaims", "--all", claims, bound, "--timeout=60s")
    yield
    for pair in volumes:
        plane.kubectl("delete", "persistentvolume", pair[0]["metadata"]["name"], "--wait=false")


_TEXTS: Final = {"one": "first\n", "two": "second\n"}


def _named(kind: str, namespace: str, **content: Any) -> dict[str, Any]:
    metadata = {"name": FILES, "namespace": namespace}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}


def _on(nodes: list[str], volume: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a volume; one that is local to a node may be on each of `nodes`."""
    if LOCAL not in volume:
        return volume
    is_there = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    terms = [{"matchExpressions": [is_there]}]
    return {**volume, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def table() -> dict[str, dict[str, Case]]:
    """Return group -> name -> case, as `nodecases.TOGETHER`."""
    groups = (files, shared_directories, paths, claims, devices)
    return {
        f"volumes, {group.__name__.replace('_', ' ')}": {
            name: case if isinstance(case, Case) else Case((case,))
            for name, case in group().items()
        }
        for group in groups
    }


def _waits(spec: Spec) -> Case:
    return Case((spec,), until="Pending")


def _config(**further: Any) -> Spec:
    return {"configMap": {"name": FILES, **further}}


def _secret(**further: Any) -> Spec:
    return {"secret": {"secretName": FILES, **further}}


def _projected(*sources: Spec, **further: Any) -> Spec:
    return {"projected": {"sources": list(sources), **further}}


def _field(path: str, field: str, **further: Any) -> Spec:
    return {"path": path, "fieldRef": {"fieldPath": field}, **further}


def _amount(path: str, resource: str, **further: Any) -> Spec:
    source = {"containerName": "main", "resource": resource, **further}
    return {"path": path, "resourceFieldRef": source}


def _of_group(source: Spec, group: int = 2000, **context: Any) -> Spec:
    """Return a pod whose volume belongs to a group."""
    return {**mounting(source), "securityContext": {"fsGroup": group, **context}}


def _with_main(source: Spec, mount: Mapping[str, Any] = {}, **main: Any) -> Spec:
    """Return a pod with one volume, and with further fields of its container."""
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return pod(main={"volumeMounts": mounts, **main}, volumes=[{"name": "v", **source}])


def files() -> Group:
    """Volumes whose content the API server has."""
    account = {"serviceAccountToken": {"path": "t", "audience": "somebody", "mode": 0o400}}
    amounts = [
        _amount("cpu", "limits.cpu", divisor="1m"),
        _amount("memory", "requests.memory", divisor="1Mi"),
    ]
    downward = [
        _field("uid", "metadata.uid"),
        _field("labels", "metadata.labels"),
        _field("annotations", "metadata.annotations"),
        _field("deep/namespace", "metadata.namespace", mode=0o440),
    ]
    sized = _with_main({"downwardAPI": {"items": amounts}})
    sized["containers"][0]["resources"] = {"requests": SMALL, "limits": SMALL}
    unsized = {"downwardAPI": {"items": [_amount("cpu", "limits.cpu")]}}
    items = [{"key": "one", "path": "a/b/c", "mode": 0o600}, {"key": "bytes", "path": "a/z"}]
    return {
        "texts and bytes": mounting(_config()),
        "a mode of all files": mounting(_config(defaultMode=0o400)),
        "paths and modes of keys": mounting(_config(items=items, defaultMode=0o444)),
        "a key that may be missing": mounting(
            _config(items=[{"key": "none", "path": "n"}], optional=True)
        ),
        "a file of a Secret": mounting(_secret(), subPath="two"),
        "a Secret that only its owner reads": mounting(_secret(defaultMode=0o400)),
        "a Secret of a group": _of_group(_secret(defaultMode=0o400)),
        "a ConfigMap of a group": _of_group(_config(defaultMode=0o755)),
        "a ConfigMap of a user": pod(
            main={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            volumes=[{"name": "v", **_config()}],
            securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 3000},
        ),
        "all of the pod": mounting({"downwardAPI": {"items": downward, "defaultMode": 0o600}}),
        "amounts": sized,
        "an amount that is the node's": mounting(unsized),
        "a token for somebody": mounting(_projected(account)),
        "a token of a user": _with_main(
            _projected({"serviceAccountToken": {"path": "t"}}), securityContext={"runAsUser": 1000}
        ),
        "a token of a group": _of_group(_projected({"serviceAccountToken": {"path": "t"}})),
        "sources with modes": mounting(
            _projected(
                {"configMap": {"name": FILES, "items": items}},
                {"secret": {"name": FILES, "items": [{"key": "two", "path": "a/two"}]}},
                {"secret": {"name": "none", "optional": True}},
                {"downwardAPI": {"items": downward}},
                defaultMode=0o440,
            )
        ),
    }


def shared_directories() -> Group:
    """Empty directories that several containers use."""
    there: Spec = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    empty: Spec = {"emptyDir": {}}
    memory: Spec = {"emptyDir": {"medium": "Memory", "sizeLimit": "2Mi"}}
    below: Spec = {"volumeMounts": [{"name": "v", "mountPath": "/w", "subPath": "made"}]}
    return {
        "written by an init container": of(
            container("main", **there),
            initContainers=[first(command="echo kept >/v/file && chmod 600 /v/file", **there)],
            volumes=[{"name": "v", **empty}],
        ),
        "a part of it for another container": of(
            container("one", **there),
            container("two", **below),
            initContainers=[first(command="mkdir /v/made && echo kept >/v/made/file", **there)],
            volumes=[{"name": "v", **empty}],
        ),
        "used by no container": pod(volumes=[{"name": "v", **empty}]),
        "of a group": _of_group(empty),
        "in memory, of a group": _of_group(memory),
        "in memory, of a user": pod(
            command=_WRITES,
            main={**there, "securityContext": {"runAsUser": 1000}},
            volumes=[{"name": "v", **memory}],
        ),
        "kept by a container that starts again": pod(
            command=f"test -e /v/file || {{ echo >/v/file; exit 1; }}; {WAITS}",
            main=there,
            volumes=[{"name": "v", **empty}],
            restartPolicy="OnFailure",
        ),
        "read only with all below it": mounting(
            empty, readOnly=True, recursiveReadOnly="IfPossible"
        ),
    }


def paths() -> Group:
    """Files and directories of the node."""

    def path(name: str, kind: str = "") -> Spec:
        return {"hostPath": {"path": name, "type": kind}}

    return {
        "a file": mounting(path("/etc/passwd", "File")),
        "a file that is made": mounting(path(f"{SHARED}/made-file", "FileOrCreate")),
        "a directory in place of a file": _waits(mounting(path("/etc", "File"))),
        "a file in place of a directory": _waits(mounting(path("/etc/passwd", "Directory"))),
        "a character device": mounting(path("/dev/null", "CharDevice")),
        "a file in place of a device": _waits(mounting(path("/etc/passwd", "BlockDevice"))),
        "a file in place of a socket": _waits(mounting(path("/etc/passwd", "Socket"))),
        "a socket": mounting(path("/run/containerd/containerd.sock", "Socket")),
        "a part that is made": mounting(path(f"{SHARED}/parts", "DirectoryOrCreate"), subPath="a"),
        "mounts that come later": mounting(path(SHARED), mountPropagation="HostToContainer"),
        "mounts in both directions": _with_main(
            path(SHARED),
            {"mountPropagation": "Bidirectional"},
            securityContext={"privileged": True},
        ),
    }


def _claim(name: str, **further: Any) -> Spec:
    return {"persistentVolumeClaim": {"claimName": name, **further}}


def claims() -> Group:
    """Claims with a file system."""
    there: Spec = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    many: Spec = {
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("a", "b")],
    }
    return {
        "a directory of a driver": mounting(_claim("plain")),
        "written": pod(command=_WRITES, main=there, volumes=[{"name": "v", **_claim("written")}]),
        "read only in the container": mounting(_claim("read"), readOnly=True),
        "read only in the pod": mounting(_claim("attributes", readOnly=True)),
        "a volume that is read only": mounting(_claim("only-read")),
        "a directory below it": mounting(_claim("below"), subPath="a/b"),
        "a directory by a variable": _with_main(
            _claim("variable"), {"subPathExpr": "$(A)"}, env=[{"name": "A", "value": "x"}]
        ),
        "for two containers": of(
            container("one", **there), container("two", **there),
            volumes=[{"name": "v", **_claim("twice")}],
        ),
        "two claims": pod(
            main=many,
            volumes=[{"name": name, **_claim(f"many-{name}")} for name in ("a", "b")],
        ),
        "for an init container only": of(
            container("main"),
            initContainers=[first(**there)],
            volumes=[{"name": "v", **_claim("first")}],
        ),
        "of a group": _of_group(_claim("group")),
        "of a group where it differs": _of_group(
            _claim("group-once"), fsGroupChangePolicy="OnRootMismatch"
        ),
        "of a user": _with_main(_claim("user"), securityContext={"runAsUser": 1000}),
        "for a container that starts again": pod(
            command=f"test -e /v/file || {{ echo >/v/file; exit 1; }}; {WAITS}",
            main=there,
            volumes=[{"name": "v", **_claim("restarted")}],
            restartPolicy="OnFailure",
        ),
        "a local directory": mounting(_claim(LOCAL)),
        "a local directory that is missing": _waits(mounting(_claim("local-none"))),
        "a path": mounting(_claim("path")),
        "a path that is missing": _waits(mounting(_claim("path-none"))),
        "a driver that is missing": _waits(mounting(_claim("no-driver"))),
    }  # fmt: skip


def devices() -> Group:
    """Claims as block devices."""

    def with_device(name: str, **main: Any) -> Spec:
        devices = [{"name": "b", "devicePath": "/dev/xvda"}]
        return pod(main={"volumeDevices": devices, **main}, volumes=[{"name": "b", **_claim(name)}])

    both = with_device("disk-both")
    both["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    both["volumes"].append({"name": "v", "emptyDir": {}})
    mounted = mounting(_claim("disk-read"))
    return {
        "a device": with_device("disk"),
        "a device and a directory": both,
        "a device that is mounted": _waits(mounted),
    }
