"""Fingerprints of sets of pods, compatible with the package podfingerprint (version v001).

Exporters of NodeResourceTopology write the fingerprint of the pods in their report, and schedulers
compare it with the fingerprint of their known pods. Equal sets have equal fingerprints; the order
does not matter. Different sets may collide, but rarely. Not for security. Pure.

Source: https://github.com/k8stopologyawareschedwg/podfingerprint v0.2.2.
"""

from collections.abc import Iterable
from typing import Final

import xxhash

ANNOTATION: Final = "topology.node.k8s.io/fingerprint"
"""On a NodeResourceTopology: the fingerprint. Newer exporters use the attribute."""
ATTRIBUTE: Final = "nodeTopologyPodsFingerprint"
"""An attribute of a NodeResourceTopology: the fingerprint."""
METHOD_ATTRIBUTE: Final = "nodeTopologyPodsFingerprintMethod"
"""An attribute of a NodeResourceTopology: the selection of pods in the fingerprint."""
METHOD_ALL: Final = "all"
"""All pods of the node."""
METHOD_EXCLUSIVE: Final = "with-exclusive-resources"
"""Only pods with exclusive CPUs, memory or devices."""
PREFIX: Final = "pfp0v001"


def sign(pods: Iterable[tuple[str, str]]) -> str:
    """Return the fingerprint of `pods`, each a namespace and a name."""
    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), seed=xxhash.xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    digest = xxhash.xxh64(b"".join(value.to_bytes(8, "little") for value in hashes))
    return PREFIX + digest.hexdigest()


def is_readable(fingerprint: str) -> bool:
    """Return whether `fingerprint` has the form and version that `sign` returns."""
    return fingerprint.startswith(PREFIX) and len(fingerprint) == len(PREFIX) + 16
