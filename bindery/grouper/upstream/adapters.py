"""The adapters, the best version first."""

from collections.abc import Collection
from typing import Final

from bindery.grouper.upstream import v1alpha2, v1alpha3, v1beta1
from bindery.grouper.upstream.model import Adapter

ADAPTERS: Final = (v1beta1.ADAPTER, v1alpha3.ADAPTER, v1alpha2.ADAPTER)


def choose(served: Collection[tuple[str, str]]) -> dict[str, Adapter]:
    """Return the adapter for each kind.

    `served`: versions with the kinds that the API server serves in them. Kinds can have different
    versions: in Kubernetes 1.37 a PodGroup has v1beta1, a CompositePodGroup has not.
    """
    return {
        kind: adapter
        for adapter in reversed(ADAPTERS)
        for kind in adapter.kinds
        if (adapter.version, kind) in served
    }
