"""Cases of `nodecases` that fill their node, or that count what is left of it.

The node has one CPU to give, about 23Gi, and two devices. Its kubelet has static managers of CPUs
and memory.
"""

from tests.e2e.realnode.nodepods import (
    ENDS_BY_SIGNAL,
    SMALL,
    Case,
    Spec,
    container,
    exactly,
    first,
    having,
    of,
    on_port,
    pod,
    sidecar,
)
from tests.e2e.realnode.realpods import DEVICE

Group = dict[str, Spec | Case]

_CPU = {"cpu": "1", "memory": "16Mi"}
_DEVICE = {DEVICE: "1"}
_CRITICAL = "system-node-critical"


def cpus() -> Group:
    return {
        "an exclusive CPU": exactly("1"),
        "an exclusive CPU twice": Case((exactly("1"), exactly("1"))),
        "an exclusive CPU one after the other": Case((exactly("1"), exactly("1")), releases=True),
        "two exclusive CPUs": exactly("2"),
        "an exclusive CPU beside best effort": Case((pod(), exactly("1"), pod())),
        "a part of a CPU": exactly("500m"),
        "a CPU of a burstable pod": pod(_CPU),
        "an exclusive CPU after a shared part": Case((exactly("500m"), exactly("1"))),
        "an exclusive CPU after a small part": Case((pod({"cpu": "1m"}), exactly("1"))),
        "an exclusive CPU of an init container": exactly(
            "1", initContainers=[first("first", _CPU, _CPU)]
        ),
        "an exclusive CPU of an init container alone": pod(
            SMALL, SMALL, initContainers=[first("first", _CPU, _CPU)]
        ),
        "an exclusive CPU of a sidecar": pod(
            {"cpu": "0", "memory": "16Mi"},
            {"cpu": "0", "memory": "16Mi"},
            initContainers=[sidecar("side", _CPU, _CPU)],
        ),
        "an exclusive CPU beside a shared container": of(
            container("one", _CPU, _CPU), container("two", {"memory": "16Mi"}, {"memory": "16Mi"})
        ),
        "exclusive CPUs of two containers": of(
            container("one", _CPU, _CPU), container("two", _CPU, _CPU)
        ),
        "a CPU of the pod": pod(resources={"requests": _CPU, "limits": _CPU}),
        "a CPU of the pod and of its container": pod(
            _CPU, _CPU, resources={"requests": _CPU, "limits": _CPU}
        ),
    }


def memory() -> Group:
    return {
        "memory of its own": exactly("100m", "1Gi"),
        "memory of its own twice": Case((exactly("100m", "1Gi"), exactly("100m", "2Gi"))),
        "memory of its own one after the other": Case(
            (exactly("100m", "9Gi"), exactly("100m", "9Gi")), releases=True
        ),
        "memory of two containers": of(
            container("one", SMALL, SMALL), container("two", SMALL, SMALL)
        ),
        "memory of an init container": exactly(
            "100m",
            "64Mi",
            initContainers=[
                first("first", {"cpu": "100m", "memory": "1Gi"}, {"cpu": "100m", "memory": "1Gi"})
            ],
        ),
        "memory of a sidecar": exactly(
            "100m", "64Mi", initContainers=[sidecar("side", SMALL, SMALL)]
        ),
        "memory of a burstable pod": pod({"memory": "1Gi"}),
        "more memory than a zone has": exactly("100m", "16Gi"),
        "more memory than is left of a zone": Case(
            (exactly("100m", "9Gi"), exactly("100m", "9Gi"))
        ),
        "memory of the pod": pod(resources={"requests": SMALL, "limits": SMALL}),
    }


def capacity() -> Group:
    return {
        "more cores than the node has": pod({"cpu": "64"}),
        "the last core is taken": Case((pod({"cpu": "600m"}), pod({"cpu": "600m"}))),
        "the last core is free again": Case(
            (pod({"cpu": "600m"}), pod({"cpu": "600m"})), releases=True
        ),
        "more memory than the node has": pod({"memory": "9Ti"}),
        "more cores and more memory": pod({"cpu": "64", "memory": "9Ti"}),
        "more storage than the node has": pod({"ephemeral-storage": "90Ti"}),
        "the last storage is taken": Case(
            (pod({"ephemeral-storage": "4Gi"}), pod({"ephemeral-storage": "4Gi"}))
        ),
        "huge pages where there are none": pod(
            {"hugepages-2Mi": "4Mi", **SMALL}, {"hugepages-2Mi": "4Mi"}
        ),
        "an init container that is too large": pod(
            SMALL, initContainers=[first("first", {"cpu": "64"})]
        ),
        "a sidecar that is too large with the rest": pod(
            {"cpu": "500m"}, initContainers=[sidecar("side", {"cpu": "600m"})]
        ),
        "a large init container after a sidecar": pod(
            SMALL, initContainers=[sidecar("side", {"cpu": "600m"}), first("f", {"cpu": "600m"})]
        ),
        "a large init container before a sidecar": pod(
            SMALL, initContainers=[first("f", {"cpu": "600m"}), sidecar("side", {"cpu": "600m"})]
        ),
        "resources of the pod that are too large": pod(resources={"requests": {"cpu": "64"}}),
        "two containers that are too large together": of(
            container("one", {"cpu": "600m"}), container("two", {"cpu": "600m"})
        ),
        "a critical pod that pushes another out": Case(
            (
                pod({"cpu": "600m"}, command=ENDS_BY_SIGNAL),
                pod({"cpu": "600m"}, priorityClassName=_CRITICAL),
            )
        ),
        "a critical pod that pushes the smaller one out": Case(
            (
                pod({"cpu": "500m"}, command=ENDS_BY_SIGNAL),
                pod({"cpu": "300m"}, command=ENDS_BY_SIGNAL),
                pod({"cpu": "400m"}, priorityClassName=_CRITICAL),
            )
        ),
        "a critical pod that is too large": pod({"cpu": "64"}, priorityClassName=_CRITICAL),
        "a critical pod on the wrong node": pod(
            {"cpu": "64"}, priorityClassName=_CRITICAL, nodeSelector={"disk": "fast"}
        ),
    }


def devices() -> Group:
    return {
        "a device": having(DEVICE, 1),
        "all devices": having(DEVICE, 2),
        "more devices than there are": having(DEVICE, 3),
        "no devices": having(DEVICE, 0),
        "the last device is taken": Case((having(DEVICE, 2), having(DEVICE, 1))),
        "the last device is free again": Case(
            (having(DEVICE, 2), having(DEVICE, 2)), releases=True
        ),
        "devices of two pods": Case((having(DEVICE, 1), having(DEVICE, 1))),
        "devices of two containers": of(
            container("one", _DEVICE, _DEVICE), container("two", _DEVICE, _DEVICE)
        ),
        "a device of an init container": pod(initContainers=[first("first", _DEVICE, _DEVICE)]),
        "a device of an init container and of its pod": pod(
            _DEVICE, _DEVICE, initContainers=[first("first", _DEVICE, _DEVICE)]
        ),
        "a device of a sidecar": pod(initContainers=[sidecar("side", _DEVICE, _DEVICE)]),
        "a device of a sidecar and of its pod": pod(
            _DEVICE, _DEVICE, initContainers=[sidecar("side", _DEVICE, _DEVICE)]
        ),
        "a device and an exclusive CPU": pod({**_CPU, **_DEVICE}, {**_CPU, **_DEVICE}),
        "a device and too many cores": pod({"cpu": "64", **_DEVICE}, _DEVICE),
    }


def ports() -> Group:
    return {
        "a port of the host": on_port(8091),
        "a port of the host that is taken": Case((on_port(8092), on_port(8092))),
        "a port of the host that is free again": Case(
            (on_port(8093), on_port(8093)), releases=True
        ),
        "a port by TCP and by UDP": Case((on_port(8094), on_port(8094, protocol="UDP"))),
        "a port of two addresses": Case(
            (on_port(8095, hostIP="127.0.0.1"), on_port(8095, hostIP="127.0.0.2"))
        ),
        "a port of all addresses after one of one": Case(
            (on_port(8096, hostIP="127.0.0.1"), on_port(8096))
        ),
        "a port of a sidecar": Case(
            (
                pod(initContainers=[sidecar(ports=[{"containerPort": 80, "hostPort": 8097}])]),
                on_port(8097),
            )
        ),
        "a port in the network of the host": Case(
            (
                pod(hostNetwork=True, main={"ports": [{"containerPort": 8098}]}),
                on_port(8098),
            )
        ),
    }
