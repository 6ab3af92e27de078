"""Container images: which nodes have them, and which of them a pod uses.

The formula is that of kube-scheduler's plugin ImageLocality (Kubernetes 1.36).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects.podspec import PodSpec
from bindery.kube.objects.watched import ContainerImage

_MIB = 1024**2
_LEAST_BYTES = 23 * _MIB
"""Images of a pod that are smaller together have no effect."""
_MOST_BYTES = 1000 * _MIB
"""Larger images have no further effect, for each container."""
_PERCENT = 100


@dataclass(frozen=True, slots=True)
class UsedImages:
    """The images of a pod that any node has."""

    names: tuple[str, ...]
    """Sorted; a name is repeated for each container that uses it."""
    containers: int
    """The number of all containers, init containers included."""


NO_IMAGES = UsedImages((), 0)


def normalized(name: str) -> str:
    """Return an image's name with its tag; without one, it is `latest`."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def image_names(spec: PodSpec) -> list[str]:
    """Return the images of all containers and image volumes of a pod, with their tags."""
    containers = (*spec.containers, *(spec.init_containers or ()))
    volumes = (v.image.reference for v in spec.volumes or () if v.image is not None)
    return [normalized(name) for name in (*(c.image for c in containers), *volumes) if name]


def used_images(spec: PodSpec, known: Collection[str]) -> UsedImages:
    """Return the images of a pod that are among `known`."""
    if not known:  # clusters of hollow nodes
        return NO_IMAGES
    names = tuple(sorted(name for name in image_names(spec) if name in known))
    if not names:
        return NO_IMAGES
    return UsedImages(names, len(spec.containers) + len(spec.init_containers or ()))


class ImageTable:
    """The images of all nodes, by node row."""

    def __init__(self) -> None:
        self._reported: dict[int, Sequence[ContainerImage]] = {}
        self._sizes: dict[str, dict[int, int]] = {}
        """Image name -> node row -> bytes."""
        self._percent: dict[UsedImages, NDArray[np.int64]] = {}
        """Results of `percent` for the present state."""

    @property
    def names(self) -> Collection[str]:
        """The images that any node has; this collection changes with the table."""
        return self._sizes.keys()

    def put(self, row: int, images: Sequence[ContainerImage]) -> list[str]:
        """Set the images of the node at `row`; return the names that no node had before."""
        old = self._reported.get(row, ())
        if images == old:
            return []
        self._percent.clear()
        gone = _sizes(old)
        new: list[str] = []
        if images:
            self._reported[row] = images
        else:
            self._reported.pop(row, None)
        for name, size in _sizes(images).items():
            gone.pop(name, None)
            rows = self._sizes.get(name)
            if rows is None:
                rows = self._sizes[name] = {}
                new.append(name)
            rows[row] = size
        for name in gone:
            rows = self._sizes[name]
            del rows[row]
            if not rows:
                del self._sizes[name]
        return new

    def nodes_changed(self) -> None:
        """Drop cached results after the number of nodes has changed."""
        self._percent.clear()

    def percent(self, used: UsedImages, rows: int, nodes: int) -> NDArray[np.int64]:
        """Return how much of the images of a pod each node has, 0 to 100 [node row].

        An image counts with its size, times the share of nodes that have it: an image on few nodes
        would attract all its pods there. `rows`: the number of node rows; `nodes`: of nodes.
        """
        found = self._percent.get(used)
        if found is None or len(found) != rows:
            found = self._percent[used] = self._computed(used, rows, nodes)
        return found

    def _computed(self, used: UsedImages, rows: int, nodes: int) -> NDArray[np.int64]:
        sums = np.zeros(rows, dtype=np.int64)
        for name in used.names:
            sizes = self._sizes.get(name)
            if sizes:
                of = np.fromiter(sizes.keys(), np.intp, len(sizes))
                held = np.fromiter(sizes.values(), np.float64, len(sizes))
                sums[of] += (held * (len(sizes) / nodes)).astype(np.int64)
        most = _MOST_BYTES * max(used.containers, 1)
        counted = np.clip(sums, _LEAST_BYTES, most)
        return np.asarray(_PERCENT * (counted - _LEAST_BYTES) // (most - _LEAST_BYTES))


def _sizes(images: Iterable[ContainerImage]) -> dict[str, int]:
    return {normalized(name): max(0, image.size_bytes) for image in images for name in image.names}
