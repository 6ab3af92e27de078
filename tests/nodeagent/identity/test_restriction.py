"""The labels that a node may give itself."""

import pytest

from bindery.nodeagent.identity.restriction import forbidden


@pytest.mark.parametrize(
    ("key", "is_forbidden"),
    [
        ("kubernetes.io/hostname", False),
        ("topology.kubernetes.io/zone", False),
        ("node.kubernetes.io/anything", False),
        ("a.kubelet.kubernetes.io/b", False),
        ("example.com/pool", False),
        ("pool", False),
        ("notkubernetes.io/a", False),
        ("node-role.kubernetes.io/worker", True),
        ("node-restriction.kubernetes.io/a", True),
        ("kubernetes.io/a", True),
        ("a.k8s.io/b", True),
    ],
)
def test_kubernetes_own_labels_are_for_administrators(key: str, is_forbidden: bool) -> None:
    assert forbidden([key]) == ([key] if is_forbidden else [])
