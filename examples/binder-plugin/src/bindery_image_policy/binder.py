"""The binder's half. Built by Bindery from the entry point; one object serves all pods."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from bindery.binder.plugins.interface import BindContext, PodManifest
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import PODS, metadata_only
from bindery_image_policy import policy

CHECKED = "images.example.com/checked"
"""Annotation: the pod's images were checked for the node that it is on."""


class Arguments(BaseModel):
    """What the configuration may say; an unknown key is an error at the start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    registries: tuple[str, ...]


class ImagePolicy:
    """Refuses images of other registries; notes at the pod that it has looked."""

    name: ClassVar[str] = "image_policy"
    arguments: ClassVar[type[BaseModel]] = Arguments

    def __init__(self, arguments: Arguments) -> None:
        self._registries = arguments.registries

    # -- in the admission webhook: pure, and quick -----------------------------------------------

    def validate(self, pod: PodManifest) -> list[str]:
        """Return why the pod may not be created; nothing where it may."""
        return policy.problems(pod, self._registries)

    def mutate(self, pod: PodManifest) -> PodManifest:
        """Return the pod with images pulled always, so that a tag means what it means today."""
        spec = dict(pod["spec"])
        spec["containers"] = [
            {**container, "imagePullPolicy": "Always"} for container in spec["containers"]
        ]
        return {**pod, "spec": spec}

    # -- in the binder: every step may run twice -------------------------------------------------

    async def pre_bind(self, context: BindContext) -> None:
        """Write on the pod what the scheduler's half has handed over for it."""
        await self._annotate(context, str(context.data.get("warm", False)).lower())

    async def rollback(self, context: BindContext) -> None:
        """Remove it again: the pod will not be bound to this node."""
        await self._annotate(context, None)

    async def _annotate(self, context: BindContext, value: str | None) -> None:
        pod = context.pod
        # The UID keeps the write from another pod of the same name.
        metadata: dict[str, Any] = {"uid": pod.uid, "annotations": {CHECKED: value}}
        try:
            await context.client.patch(
                metadata_only(PODS), pod.name, {"metadata": metadata}, namespace=pod.namespace
            )
        except NotFoundError:
            return  # the binder finds that out by itself
