"""Pods for which a hollow node has to do what a real one does: the table."""

from collections.abc import Callable
from typing import Any

from bindery.api.names import HOLLOW_RUN_SECONDS_ANNOTATION
from bindery.nodeagent.lifecycle import EXIT_CODE_ANNOTATION, STOP_SECONDS_ANNOTATION
from tests.e2e.realnode import nodeextras, nodefull
from tests.e2e.realnode.nodeextras import waits
from tests.e2e.realnode.nodepods import (
    END_TOGETHER,
    IMAGES,
    INIT,
    PROBES,
    SMALL,
    WAITS,
    Case,
    Spec,
    by_command,
    container,
    differing,
    exactly,
    first,
    of,
    pod,
    prefers,
    probing,
    sidecar,
)

Group = dict[str, Spec | Case]


def ends(spec: Spec, code: int = 0) -> Case:
    """Return a pod whose containers end with a code."""
    annotations = {HOLLOW_RUN_SECONDS_ANNOTATION: "3"}
    if code:
        annotations[EXIT_CODE_ANNOTATION] = str(code)
    return Case((spec,), until="Failed" if code else "Succeeded", annotations=annotations)


def stops(spec: Spec, after_s: float = 0.0, code: int | None = None) -> Case:
    """Return a pod that is deleted, takes a while to stop, and ends with a code."""
    annotations = {STOP_SECONDS_ANNOTATION: str(after_s)} if after_s else {}
    if code is not None:
        annotations[EXIT_CODE_ANNOTATION] = str(code)
    return Case((spec,), annotations=annotations, is_deleted=True)


def _after(command: str) -> str:
    """Return a script that ends with `command` when it is stopped."""
    return f"trap '{command}' TERM; sleep 600 & wait $!"


def qos() -> Group:
    return {
        "best effort": pod(),
        "burstable": pod(SMALL),
        "guaranteed": pod(SMALL, SMALL),
        "cpu alone": pod({"cpu": "10m"}),
        "memory alone": pod({"memory": "16Mi"}),
        "limits alone": pod({}, SMALL),
        "a limit of cpu alone": pod({}, {"cpu": "10m"}),
        "a limit above the request": pod(SMALL, {"cpu": "200m", "memory": "32Mi"}),
        "requests of zero": pod({"cpu": "0", "memory": "0"}),
        "one millicore": pod({"cpu": "1m"}),
        "fractions of units": pod({"cpu": "0.0101", "memory": "16777216.5"}),
        "storage": pod({"ephemeral-storage": "1Mi"}, {"ephemeral-storage": "1Mi"}),
        "huge pages of zero": pod({**SMALL, "hugepages-2Mi": "0"}, {"hugepages-2Mi": "0"}),
        "two guaranteed containers": of(
            container("one", SMALL, SMALL), container("two", SMALL, SMALL)
        ),
        "a guaranteed and a best effort container": of(
            container("one", SMALL, SMALL), container("two")
        ),
        "a best effort init container": pod(SMALL, SMALL, initContainers=[first()]),
        "the network of the host": pod(hostNetwork=True),
        "another name of the host": pod(hostname="a", subdomain="b"),
        "its own resolver": pod(dnsPolicy="None", dnsConfig={"nameservers": ["10.96.0.10"]}),
        "the resolver of the cluster": pod(dnsPolicy="ClusterFirst"),
        "lines of /etc/hosts": pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}]),
    }


def pod_resources() -> Group:
    whole = {"requests": SMALL, "limits": SMALL}
    return {
        "resources of the pod": pod(resources=whole),
        "requests of the pod": pod(resources={"requests": SMALL}),
        "resources of the pod above those of its containers": pod(
            {"cpu": "5m"}, resources={"requests": SMALL}
        ),
        "limits of the pod": pod(resources={"limits": SMALL}),
        "resources of the pod with an init container": pod(
            resources=whole, initContainers=[first()]
        ),
        "resources of the pod with a sidecar": pod(resources=whole, initContainers=[sidecar()]),
        "a guaranteed pod with a guaranteed container": pod(SMALL, SMALL, resources=whole),
    }


def ending() -> Group:
    two = of(container("one", command="sleep 3"), container("two", command="sleep 3"))
    return {
        "an end": ends(pod(command="sleep 3")),
        "an end with OnFailure": ends(pod(command="sleep 3", restartPolicy="OnFailure")),
        "exit code 1": ends(pod(command="sleep 3; exit 1"), 1),
        "exit code 42": ends(pod(command="sleep 3; exit 42"), 42),
        "exit code 255": ends(pod(command="sleep 3; exit 255"), 255),
        "its own SIGKILL": ends(pod(command="sleep 3; sh -c 'kill -9 $$'; exit 137"), 137),
        "two containers that end": ends(two),
        "two containers that fail": ends(
            of(
                container("one", command="sleep 3; exit 3"),
                container("two", command="sleep 3; exit 3"),
            ),
            3,
        ),
        "an end beside a sidecar": ends(pod(command="sleep 3", initContainers=[sidecar()])),
        "a failure beside a sidecar": ends(
            pod(command="sleep 3; exit 2", initContainers=[sidecar()]), 2
        ),
        "an end after an init container": ends(pod(command="sleep 3", initContainers=[first()])),
        "an end with a message": ends(pod(command="echo done >/dev/termination-log; sleep 3")),
        "a failure with a message from the logs": ends(
            pod(
                command="echo oops; sleep 3; exit 1",
                main={"terminationMessagePolicy": "FallbackToLogsOnError"},
            ),
            1,
        ),
        "a message at another path": ends(
            pod(command="echo a >/tmp/m; sleep 3", main={"terminationMessagePath": "/tmp/m"})
        ),
        "a guaranteed pod that ends": ends(exactly("10m", command="sleep 3")),
        "a deadline": Case((pod(activeDeadlineSeconds=6),), until="Failed"),
        "a deadline with a sidecar": Case(
            (pod(activeDeadlineSeconds=6, initContainers=[sidecar()]),), until="Failed"
        ),
        "a deadline with restarts": Case(
            (pod(activeDeadlineSeconds=6, restartPolicy="Always"),), until="Failed"
        ),
        "a deadline after the end": ends(pod(command="sleep 3", activeDeadlineSeconds=300)),
        "one of two containers that ends": differing(
            of(container("one", command="true"), container("two")), END_TOGETHER
        ),
    }


def stopping() -> Group:
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}}}
    return {
        "a stop in time": stops(pod(command=_after("exit 143"), terminationGracePeriodSeconds=30)),
        "a stop after a second": stops(
            pod(command=_after("sleep 1; exit 143"), terminationGracePeriodSeconds=30), 1
        ),
        "a kill at the end of the grace period": stops(
            pod(command="sleep 600", terminationGracePeriodSeconds=1), 60
        ),
        "a stop of two containers": stops(
            of(
                container("one", command=_after("exit 143")),
                container("two", command=_after("exit 143")),
                terminationGracePeriodSeconds=30,
            )
        ),
        "a stop with a sidecar": stops(
            pod(
                command=_after("exit 143"),
                initContainers=[sidecar(command=_after("exit 143"))],
                terminationGracePeriodSeconds=30,
            )
        ),
        "a stop with a hook": stops(
            pod(command=_after("exit 143"), main=hook, terminationGracePeriodSeconds=30), 1
        ),
        "a stop of a guaranteed pod": stops(
            exactly("10m", command=_after("exit 143"), terminationGracePeriodSeconds=30)
        ),
        "a stop that ends with 0": stops(pod(terminationGracePeriodSeconds=30), code=0),
    }


def init_containers() -> Group:
    return {
        "an init container": pod(initContainers=[first()]),
        "two init containers": pod(initContainers=[first("one"), first("two")]),
        "an init container with resources": pod(SMALL, initContainers=[first("one", SMALL)]),
        "a large init container": pod(SMALL, initContainers=[first("one", {"cpu": "40m"})]),
        "an init container that takes a second": pod(initContainers=[first(command="sleep 1")]),
        "an init container that fails": differing(
            pod(initContainers=[first(command="exit 1")]), INIT, until="Failed"
        ),
        "an init container that fails again and again": waits(
            pod(restartPolicy="OnFailure", initContainers=[first(command="exit 1")]), INIT
        ),
        "an init container that does not end": waits(
            pod(initContainers=[first(command=WAITS)]), INIT
        ),
        "an init container without an image": waits(
            pod(initContainers=[first(image="bindery.dev/none:1", imagePullPolicy="Never")]), IMAGES
        ),
        "a sidecar": pod(initContainers=[sidecar()]),
        "a sidecar with resources": pod(SMALL, initContainers=[sidecar("side", SMALL)]),
        "two sidecars": pod(initContainers=[sidecar("one"), sidecar("two")]),
        "a sidecar before an init container": pod(initContainers=[sidecar(), first()]),
        "a sidecar after an init container": pod(initContainers=[first(), sidecar()]),
        "a sidecar that has started": pod(
            initContainers=[sidecar(startupProbe=by_command("true"))]
        ),
        "a sidecar that never starts": waits(
            pod(initContainers=[sidecar(startupProbe=by_command("false", failureThreshold=99))]),
            PROBES,
        ),
        "a sidecar that is ready": pod(initContainers=[sidecar(readinessProbe=by_command("true"))]),
        "a sidecar that is not ready": differing(
            pod(initContainers=[sidecar(readinessProbe=by_command("false"))]), PROBES
        ),
        "a sidecar of a pod that restarts": pod(restartPolicy="Always", initContainers=[sidecar()]),
        "a sidecar with a guaranteed pod": pod(
            SMALL, SMALL, initContainers=[sidecar("side", SMALL, SMALL)]
        ),
    }


def probes() -> Group:
    passes, fails = by_command("true"), by_command("false")
    patient = by_command("false", failureThreshold=99)
    after = {"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}
    return {
        "a readiness probe": probing(readinessProbe=passes),
        "a readiness probe that fails": differing(probing(readinessProbe=fails), PROBES),
        "a liveness probe": probing(livenessProbe=passes),
        "a liveness probe that fails late": probing(livenessProbe=patient),
        "a liveness probe that fails": differing(
            probing(livenessProbe=by_command("false", failureThreshold=1)),
            PROBES,
            until="Succeeded",
        ),
        "a startup probe": probing(startupProbe=passes),
        "a startup probe that fails": differing(probing(startupProbe=patient), PROBES),
        "all probes": probing(startupProbe=passes, readinessProbe=passes, livenessProbe=passes),
        "a readiness probe by TCP that fails": differing(
            probing(readinessProbe={"tcpSocket": {"port": 8099}, "periodSeconds": 1}), PROBES
        ),
        "a readiness probe by HTTP": pod(
            command="mkdir /tmp/w; echo hi >/tmp/w/index.html; httpd -f -p 8080 -h /tmp/w",
            main={"readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}},
        ),
        "one of two containers that is not ready": differing(
            of(container("one"), container("two", readinessProbe=fails)), PROBES
        ),
        "a readiness gate": pod(readinessGates=[{"conditionType": "example.com/ready"}]),
        "a hook after the start": probing(**after),
        "a hook before the stop": probing(lifecycle={"preStop": {"exec": {"command": ["true"]}}}),
    }


def probes_by_network() -> Group:
    """Those of a server that answers by gRPC are in `test_real_agent`: it takes long to start."""

    def served(**probe: Any) -> Spec:
        command = "mkdir /tmp/w; echo hi >/tmp/w/index.html; httpd -f -p 8080 -h /tmp/w"
        ports = [{"name": "web", "containerPort": 8080}]
        named = {name: {"periodSeconds": 1, **about} for name, about in probe.items()}
        return pod(command=command, main={"ports": ports, **named})

    root = {"httpGet": {"path": "/", "port": "web"}}
    none = {"httpGet": {"path": "/none", "port": "web"}}
    return {
        "a readiness probe by HTTP at a named port": served(readinessProbe=root),
        "a readiness probe by HTTP that is not found": differing(
            served(readinessProbe=none), PROBES
        ),
        "a startup probe by HTTP": served(startupProbe=root),
        "a liveness probe by HTTP": served(livenessProbe=root),
        "a liveness probe by HTTP that fails": differing(
            served(livenessProbe={**none, "failureThreshold": 2}), PROBES, until="Failed"
        ),
        "a readiness probe by TCP": served(readinessProbe={"tcpSocket": {"port": "web"}}),
        "a startup probe by TCP": served(startupProbe={"tcpSocket": {"port": 8080}}),
        "a liveness probe by TCP that fails": differing(
            served(livenessProbe={"tcpSocket": {"port": 8099}, "failureThreshold": 2}),
            PROBES,
            until="Failed",
        ),
        "a readiness probe by gRPC that nobody answers": differing(
            served(readinessProbe={"grpc": {"port": 8099}}), PROBES
        ),
        "a readiness probe by gRPC of another protocol": differing(
            served(readinessProbe={"grpc": {"port": 8080}}), PROBES
        ),
    }


def selection() -> Group:
    key = "kubernetes.io/os"
    taints = [{"operator": "Exists"}]
    return {
        "a selector that holds": pod(nodeSelector={key: "linux"}),
        "a selector that does not hold": pod(nodeSelector={"disk": "fast"}),
        "a selector by the old label": pod(nodeSelector={"beta.kubernetes.io/os": "linux"}),
        "a selector by the architecture": pod(nodeSelector={"kubernetes.io/arch": "amd64"}),
        "a selector by the old architecture": pod(
            nodeSelector={"beta.kubernetes.io/arch": "amd64"}
        ),
        "a selector of another system": pod(nodeSelector={key: "windows"}),
        "a selector of which one half holds": pod(nodeSelector={key: "linux", "disk": "fast"}),
        "affinity: Exists": pod(affinity=prefers({"key": key, "operator": "Exists"})),
        "affinity: not In": pod(
            affinity=prefers({"key": "disk", "operator": "In", "values": ["fast"]})
        ),
        "affinity: NotIn": pod(
            affinity=prefers({"key": "disk", "operator": "NotIn", "values": ["fast"]})
        ),
        "affinity: DoesNotExist": pod(
            affinity=prefers({"key": "disk", "operator": "DoesNotExist"})
        ),
        "affinity: not DoesNotExist": pod(
            affinity=prefers({"key": key, "operator": "DoesNotExist"})
        ),
        "affinity: not Gt": pod(
            affinity=prefers({"key": "cores", "operator": "Gt", "values": ["4"]})
        ),
        "affinity: not the name": pod(
            affinity=prefers(
                {"key": "metadata.name", "operator": "In", "values": ["other"]},
                key="matchFields",
            )
        ),
        "affinity: not this name": pod(
            affinity=prefers(
                {"key": "metadata.name", "operator": "NotIn", "values": ["other"]},
                key="matchFields",
            )
        ),
        "affinity: one of two expressions": pod(
            affinity=prefers(
                {"key": key, "operator": "Exists"}, {"key": "disk", "operator": "Exists"}
            )
        ),
        "a selector and a fitting affinity": pod(
            nodeSelector={"disk": "fast"}, affinity=prefers({"key": key, "operator": "Exists"})
        ),
        "tolerations of everything": pod(tolerations=taints),
        "an operating system": pod(os={"name": "linux"}),
        "another operating system": pod(os={"name": "windows"}),
        "an unsafe sysctl": pod(
            securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
        ),
        "a safe sysctl": pod(
            securityContext={
                "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "2000 9000"}]
            }
        ),
        "a safe sysctl of the IPC": pod(
            securityContext={"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
        ),
        "an unsafe sysctl after a safe one": pod(
            securityContext={
                "sysctls": [
                    {"name": "net.ipv4.tcp_syncookies", "value": "1"},
                    {"name": "net.core.somaxconn", "value": "1024"},
                ]
            }
        ),
        "a resource that the node does not have": pod(
            {"example.com/none": "1"}, {"example.com/none": "1"}
        ),
        "spread over nodes": pod(
            topologySpreadConstraints=[
                {
                    "maxSkew": 1,
                    "topologyKey": "rack",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                }
            ]
        ),
    }


_TOGETHER: tuple[Callable[[], Group], ...] = (
    qos,
    pod_resources,
    ending,
    stopping,
    init_containers,
    probes,
    selection,
    nodefull.ports,
    nodeextras.volumes,
    nodeextras.configuration,
    nodeextras.privileges,
    probes_by_network,
)
_ALONE: tuple[Callable[[], Group], ...] = (
    nodefull.cpus,
    nodefull.memory,
    nodefull.capacity,
    nodefull.devices,
)


def _table(groups: tuple[Callable[[], Group], ...]) -> dict[str, dict[str, Case]]:
    return {
        group.__name__.replace("_", " "): {
            name: case if isinstance(case, Case) else Case((case,))
            for name, case in group().items()
        }
        for group in groups
    }


TOGETHER = _table(_TOGETHER)
"""Group -> name -> case: pods that can come to one node at the same time."""
ALONE = _table(_ALONE)
"""The same for cases that fill their node: each has it alone."""
