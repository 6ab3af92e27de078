"""The rule: images come from trusted registries. Pure, and asked by all halves of the plugin."""

from collections.abc import Mapping, Sequence
from typing import Any


def images(pod: Mapping[str, Any]) -> list[str]:
    """Return the images of all containers of `pod`, a manifest."""
    spec = pod.get("spec") or {}
    kinds = ("initContainers", "containers")
    return [str(each.get("image", "")) for kind in kinds for each in spec.get(kind) or ()]


def problems(pod: Mapping[str, Any], registries: Sequence[str]) -> list[str]:
    """Return what is wrong with the images of `pod`, one sentence each."""
    return [
        f"image {image!r} is from no trusted registry ({', '.join(registries)})"
        for image in images(pod)
        if not any(image.startswith(f"{registry}/") for registry in registries)
    ]
