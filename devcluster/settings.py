"""The command lines of the control plane's programs.

Called by `local`. Everything listens on 127.0.0.1. Each value that differs from Kubernetes' default
has a comment with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devcluster.authority import Authority


@dataclass(frozen=True)
class Features:
    """Features that are off by default in Kubernetes."""

    gates: tuple[str, ...] = ()
    """Feature gates to enable."""
    apis: tuple[str, ...] = ()
    """API groups with versions to serve, such as `scheduling.k8s.io/v1alpha2`."""

    def gate_arguments(self) -> list[str]:
        """Return the option for the gates, for any of Kubernetes' programs."""
        gates = ",".join(f"{gate}=true" for gate in self.gates)
        return [f"--feature-gates={gates}"] if gates else []

    def api_arguments(self) -> list[str]:
        """Return the option for the served versions, for kube-apiserver."""
        apis = ",".join(f"{api}=true" for api in self.apis)
        return [f"--runtime-config={apis}"] if apis else []


DEFAULT_FEATURES: Final = Features()

_CONTROLLERS: Final = (
    # Controllers that a scheduler's users meet; few, because the machine may be small.
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "deployment-controller",
    "disruption-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "podgroup-protection-controller",  # idle unless the gate GenericWorkload is on
    "replicaset-controller",
    "resourceclaim-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)

_NODE_CONTROLLERS: Final = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "daemonset-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
)
"""Further controllers for real nodes."""


def etcd_arguments(data: Path, port: int, peer_port: int) -> list[str]:
    """Return the arguments of etcd."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        f"--data-dir={data}",
        "--name=default",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # The data is not needed after a boot of the machine, so it is not synced to the disk.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server_arguments(
    certificates: Path,
    tokens: Path,
    *,
    etcd_port: int,
    port: int,
    features: Features = DEFAULT_FEATURES,
) -> list[str]:
    """Return the arguments of kube-apiserver."""
    # The key of kube-apiserver's own certificate also signs ServiceAccount tokens, so no other key
    # and no tool to make one are needed.
    key = certificates / "apiserver.key"
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={key}",
        f"--service-account-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        # The Endpoints of the `kubernetes` Service may not hold a loopback address.
        "--endpoint-reconciler-type=none",
        # Benchmarks measure schedulers, not the queueing of a small server.
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        *features.gate_arguments(),
        *features.api_arguments(),
    ]


def controller_manager_arguments(
    kubeconfig: Path,
    certificates: Path,
    features: Features = DEFAULT_FEATURES,
    node_grace_s: int | None = None,
) -> list[str]:
    """Return the arguments of kube-controller-manager.

    `node_grace_s`: seconds for which nodes stay Ready without heartbeats; None: the default.
    """
    grace = [] if node_grace_s is None else [f"--node-monitor-grace-period={node_grace_s}s"]
    return [
        f"--kubeconfig={kubeconfig}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={certificates / 'apiserver.key'}",
        f"--root-ca-file={certificates / 'apiserver.crt'}",
        f"--controllers={','.join(_CONTROLLERS)}",
        "--leader-elect=false",
        # Nodes that tests create without a kubelet stay Ready for the time of a slow test.
        "--node-monitor-grace-period=10m",
        # A single instance without a reader of metrics needs no port.
        "--secure-port=0",
        # Namespaces with many pods are deleted in seconds, not minutes.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--concurrent-namespace-syncs=20",
        *grace,
        *features.gate_arguments(),
    ]


def for_real_nodes(arguments: Sequence[str], authority: Authority) -> list[str]:
    """Return the arguments of an API server on port 443 that also serves kubelets."""
    return [
        *arguments,
        # Pods reach it by the address of the Service `kubernetes`.
        "--bind-address=0.0.0.0",
        # The API server adds this address to its own certificate.
        "--advertise-address=127.0.0.1",
        f"--client-ca-file={authority.certificate}",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={authority.client_certificate}",
        f"--kubelet-client-key={authority.client_key}",
        "--kubelet-preferred-address-types=InternalIP",
        # Without kube-proxy, webhooks are called at the addresses of their pods.
        "--enable-aggregator-routing=true",
    ]


def signing(
    arguments: Sequence[str], authority: Authority, certificate_s: int | None = None
) -> list[str]:
    """Return the arguments of a controller manager that also signs certificates of kubelets.

    `certificate_s`: seconds for which a certificate is valid; None: a year, the default.
    """
    controllers = ",".join([*_CONTROLLERS, *_NODE_CONTROLLERS])
    duration = [] if certificate_s is None else [f"--cluster-signing-duration={certificate_s}s"]
    return [
        *(each for each in arguments if not each.startswith("--controllers=")),
        f"--controllers={controllers}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
        *duration,
    ]


def kube_scheduler(kubeconfig: Path, percentage_of_nodes_to_score: int = 0) -> str:
    """Return a KubeSchedulerConfiguration with the client's limits lifted.

    `percentage_of_nodes_to_score`: 0 lets kube-scheduler choose.
    """
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaderElect: false}\n"
        f"percentageOfNodesToScore: {percentage_of_nodes_to_score}\n"
        f"clientConnection: {{kubeconfig: {kubeconfig}, qps: 5000, burst: 10000}}\n"
    )
