"""The labels that a node may not set on itself.

Source: the admission plugin NodeRestriction and the kubelet's check of `--node-labels`, Kubernetes
1.36.
"""

from collections.abc import Iterable
from typing import Final

from bindery.api import names
from bindery.nodecore.addresses import INSTANCE_TYPE_LABELS, REGION_LABELS, ZONE_LABELS

_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
_OWN_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN: Final = frozenset(
    {
        names.HOSTNAME_LABEL,
        *("kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os"),
        *("beta.kubernetes.io/arch", *INSTANCE_TYPE_LABELS, *ZONE_LABELS, *REGION_LABELS),
    }
)


def forbidden(labels: Iterable[str]) -> list[str]:
    """Return the keys of Kubernetes' own domains that the API server takes from no node, sorted."""
    return sorted(
        key
        for key in labels
        if _is_in(key, _KUBERNETES) and key not in _OWN and not _is_in(key, _OWN_DOMAINS)
    )


def _is_in(key: str, domains: Iterable[str]) -> bool:
    domain, is_domain, _ = key.rpartition("/")
    return bool(is_domain) and any(domain == one or domain.endswith(f".{one}") for one in domains)
