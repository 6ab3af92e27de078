"""Cases of `nodecases` about what a hollow node does not have: volumes, images, privileges."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from devcluster.realnode.cluster import RealCluster
from tests.administrator import Administrator
from tests.e2e.realnode.nodepods import (
    APP_ARMOR,
    IMAGES,
    SMALL,
    VOLUMES,
    Case,
    Spec,
    container,
    differing,
    first,
    mounting,
    of,
    pod,
)

Group = dict[str, Spec | Case]

RUNTIME = "absent"
"""A RuntimeClass of the test that no node has a runtime for."""


@contextmanager
def corner(administrator: Administrator, cluster: RealCluster) -> Iterator[str]:
    """A namespace with the ConfigMap, the Secret and the RuntimeClass that the cases name."""
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME},
        "handler": RUNTIME,
    }
    plane = cluster.control_plane
    with plane.network.entered(), administrator.fresh_namespace() as name:
        plane.kubectl("apply", "--filename=-", stdin=json.dumps(runtime))
        for kind in (["configmap"], ["secret", "generic"]):
            plane.kubectl("create", *kind, "present", f"--namespace={name}", "--from-literal=a=b")
        yield name
        plane.kubectl("delete", "runtimeclass", RUNTIME)


def waits(spec: Spec, why: str) -> Case:
    """Return a pod that a real node does not get to run."""
    return differing(spec, why, until="Pending")


def _variable(source: Mapping[str, Any]) -> Spec:
    return pod(main={"env": [{"name": "A", "valueFrom": source}]})


def _secured(**context: Any) -> Spec:
    return pod(main={"securityContext": context})


def volumes() -> Group:
    """`present`: a ConfigMap and a Secret of the test with the key `a`."""
    token = {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}
    field = {"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    return {
        "an empty directory": mounting({"emptyDir": {}}),
        "an empty directory in memory": mounting({"emptyDir": {"medium": "Memory"}}),
        "an empty directory with a limit": mounting({"emptyDir": {"sizeLimit": "1Mi"}}),
        "an empty directory in memory with a limit": mounting(
            {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
        ),
        "a directory below a volume": mounting({"emptyDir": {}}, subPath="a/b"),
        "a directory below a volume by a variable": pod(
            main={
                "env": [{"name": "A", "value": "x"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}],
            },
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        "a volume that is only read": mounting({"emptyDir": {}}, readOnly=True),
        "a ConfigMap": mounting({"configMap": {"name": "present"}}),
        "a key of a ConfigMap": mounting(
            {"configMap": {"name": "present", "items": [{"key": "a", "path": "b"}]}}
        ),
        "a file of a ConfigMap": mounting({"configMap": {"name": "present"}}, subPath="a"),
        "a ConfigMap that is missing": waits(mounting({"configMap": {"name": "none"}}), VOLUMES),
        "a ConfigMap that may be missing": mounting(
            {"configMap": {"name": "none", "optional": True}}
        ),
        "a key that is missing": waits(
            mounting({"configMap": {"name": "present", "items": [{"key": "z", "path": "b"}]}}),
            VOLUMES,
        ),
        "a Secret": mounting({"secret": {"secretName": "present"}}),
        "a Secret that is missing": waits(mounting({"secret": {"secretName": "none"}}), VOLUMES),
        "a Secret that may be missing": mounting(
            {"secret": {"secretName": "none", "optional": True}}
        ),
        "a projected token": mounting({"projected": {"sources": [token]}}),
        "projected sources": mounting(
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "present"}},
                        {"secret": {"name": "present", "items": [{"key": "a", "path": "s"}]}},
                        {"downwardAPI": {"items": [field]}},
                    ]
                }
            }
        ),
        "a projected source that is missing": waits(
            mounting({"projected": {"sources": [{"secret": {"name": "none"}}]}}), VOLUMES
        ),
        "fields of the pod": mounting({"downwardAPI": {"items": [field]}}),
        "the token of its account": pod(automountServiceAccountToken=True),
        "a directory of the host": mounting({"hostPath": {"path": "/tmp"}}),
        "a directory of the host that is made": mounting(
            {"hostPath": {"path": "/node/shared/made", "type": "DirectoryOrCreate"}}
        ),
        "a directory of the host that is missing": waits(
            mounting({"hostPath": {"path": "/none", "type": "Directory"}}), VOLUMES
        ),
        "a claim that is missing": waits(
            mounting({"persistentVolumeClaim": {"claimName": "none"}}), VOLUMES
        ),
        "a claim that is not bound": waits(
            mounting({"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}), VOLUMES
        ),
        "a driver that is missing": waits(
            mounting({"csi": {"driver": "none.example.com"}}), VOLUMES
        ),
        "a claimed device that is missing": waits(
            pod(resourceClaims=[{"name": "c", "resourceClaimName": "none"}]), VOLUMES
        ),
    }


def configuration() -> Group:
    variables = "secretKeyRef", "configMapKeyRef"
    return {
        "a variable": _variable({"configMapKeyRef": {"name": "present", "key": "a"}}),
        "a variable of a Secret": _variable({"secretKeyRef": {"name": "present", "key": "a"}}),
        **{
            f"a variable whose source is missing ({source})": waits(
                _variable({source: {"name": "none", "key": "a"}}), IMAGES
            )
            for source in variables
        },
        "a variable whose key is missing": waits(
            _variable({"configMapKeyRef": {"name": "present", "key": "z"}}), IMAGES
        ),
        "a variable that may be missing": _variable(
            {"configMapKeyRef": {"name": "none", "key": "a", "optional": True}}
        ),
        "a variable of a field": _variable({"fieldRef": {"fieldPath": "status.podIP"}}),
        "a variable of a limit": pod(
            SMALL,
            SMALL,
            main={
                "env": [
                    {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
                ]
            },
        ),
        "variables of a ConfigMap": pod(main={"envFrom": [{"configMapRef": {"name": "present"}}]}),
        "variables of a ConfigMap that is missing": waits(
            pod(main={"envFrom": [{"configMapRef": {"name": "none"}}]}), IMAGES
        ),
        "an image that is missing": waits(
            pod(main={"image": "bindery.dev/none:1", "imagePullPolicy": "Never"}), IMAGES
        ),
        "an image that nobody serves": waits(pod(main={"image": "127.0.0.1:9/none:1"}), IMAGES),
        "a name that is no image": waits(pod(main={"image": "Not An Image"}), IMAGES),
        "one of two images that is missing": waits(
            of(
                container("one"),
                container("two", image="bindery.dev/none:1", imagePullPolicy="Never"),
            ),
            IMAGES,
        ),
        "a program that is missing": differing(
            pod(main={"command": ["/none"]}), IMAGES, until="Failed"
        ),
        "a runtime that is missing": waits(pod(runtimeClassName=RUNTIME), IMAGES),
        "a working directory": pod(main={"workingDir": "/tmp"}),
        "arguments": pod(main={"args": ["a", "b"]}),
        "a terminal": pod(main={"tty": True, "stdin": True}),
    }


def privileges() -> Group:
    return {
        "a user": _secured(runAsUser=1000, runAsGroup=1000),
        "no root": _secured(runAsNonRoot=True, runAsUser=1000),
        "no root with an image of root": waits(_secured(runAsNonRoot=True), IMAGES),
        "a privileged container": _secured(privileged=True),
        "more capabilities": _secured(capabilities={"add": ["NET_ADMIN"]}),
        "no capabilities": _secured(capabilities={"drop": ["ALL"]}),
        "a root that is only read": _secured(readOnlyRootFilesystem=True),
        "no new privileges": _secured(allowPrivilegeEscalation=False),
        "the runtime's seccomp": _secured(seccompProfile={"type": "RuntimeDefault"}),
        "no seccomp": _secured(seccompProfile={"type": "Unconfined"}),
        "a seccomp profile that is missing": waits(
            _secured(seccompProfile={"type": "Localhost", "localhostProfile": "none.json"}), IMAGES
        ),
        "an AppArmor profile": differing(
            _secured(appArmorProfile={"type": "RuntimeDefault"}), APP_ARMOR
        ),
        "no AppArmor": _secured(appArmorProfile={"type": "Unconfined"}),
        "a group of files": pod(
            securityContext={"fsGroup": 2000},
            main={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        "further groups": pod(securityContext={"supplementalGroups": [3000]}),
        "further groups alone": pod(
            securityContext={"supplementalGroups": [3000], "supplementalGroupsPolicy": "Strict"}
        ),
        "the processes of the host": pod(hostPID=True),
        "the IPC of the host": pod(hostIPC=True),
        "processes that are shared": pod(shareProcessNamespace=True),
        "an init container with privileges": pod(
            initContainers=[first(securityContext={"privileged": True})]
        ),
    }
