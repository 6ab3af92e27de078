"""Writes to claims and volumes for one pod, and their rollback.

Part of the binder's plugin `volumes`. Each write has the version of the object that was checked,
and adds the pod's UID as a mark. An object with another mark, or without one, is never rolled back.
Writes and rollbacks may be repeated.
"""

from collections.abc import Mapping
from typing import Any, Final

from bindery.api.names import GROUP
from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.storage import (
    CLAIMS,
    VOLUMES,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
)

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CHOSEN_FOR: Final = f"{GROUP}/chosen-for"
"""Annotation of a claim or volume: the UID of the pod for which the binder wrote it."""
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume whose claimRef is the cluster's, not a user's, and may be removed."""


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether `claim` is bound to a volume for good."""
    completed = _BIND_COMPLETED in claim.metadata.annotations
    return bool(claim.spec.volume_name) and completed and claim.status.phase == "Bound"


class VolumeWriter:
    """Writes claims and volumes for `pod`."""

    def __init__(self, client: Client, pod: PodView) -> None:
        self._client, self._pod = client, pod

    async def give(self, volume_name: str, claim_name: str, claim_uid: str) -> None:
        """Set the volume's claimRef to the claim, so that the controller binds the two.

        Raises:
            PluginError: the volume is deleted or belongs to another claim.
        """
        reference = ClaimReference(namespace=self._pod.namespace, name=claim_name, uid=claim_uid)

        def change(volume: PersistentVolume) -> Mapping[str, Any] | None:
            current = volume.spec.claim_ref
            if current == reference:
                return None
            if current is not None and (
                current.uid
                or (current.namespace, current.name) != (reference.namespace, reference.name)
            ):
                message = f"volume {volume_name} belongs to {current.namespace}/{current.name}"
                raise PluginError(message, reason="VolumeTaken", permanent=True)
            annotations = {CHOSEN_FOR: self._pod.uid}
            if current is None:
                annotations[_BOUND_BY_CONTROLLER] = "yes"
            return {
                "metadata": {"annotations": annotations},
                "spec": {
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": reference.namespace,
                        "name": reference.name,
                        "uid": reference.uid,
                    }
                },
            }

        try:
            await self._client.update(VOLUMES, volume_name, "", change)
        except NotFoundError as error:
            message = f"volume {volume_name} no longer exists"
            raise PluginError(message, reason="VolumeGone", permanent=True) from error

    async def select(self, claim_name: str, claim_uid: str, node: str) -> None:
        """Ask the provisioner of the claim for a volume that `node` can use.

        Raises:
            PluginError: the claim is deleted, or its volume is being provisioned for another node.
        """

        def change(claim: PersistentVolumeClaim) -> Mapping[str, Any] | None:
            if claim.metadata.uid != claim_uid:
                raise PluginError(_gone(claim_name), reason="ClaimGone", permanent=True)
            now = claim.metadata.annotations.get(SELECTED_NODE)
            if now == node or claim.spec.volume_name:
                return None
            if now is not None:
                message = f"claim {claim_name} is being provisioned for node {now}"
                raise PluginError(message, reason="ClaimSelected", permanent=True)
            annotations = {SELECTED_NODE: node, CHOSEN_FOR: self._pod.uid}
            return {"metadata": {"annotations": annotations}}

        try:
            await self._client.update(CLAIMS, claim_name, self._pod.namespace, change)
        except NotFoundError as error:
            raise PluginError(_gone(claim_name), reason="ClaimGone", permanent=True) from error

    async def release(self, volume_name: str, claim_uid: str) -> None:
        """Undo `give`, unless the two are bound."""

        def change(volume: PersistentVolume) -> Mapping[str, Any] | None:
            annotations, current = volume.metadata.annotations, volume.spec.claim_ref
            if (
                annotations.get(CHOSEN_FOR) != self._pod.uid
                or current is None
                or current.uid != claim_uid
                or volume.status.phase == "Bound"
            ):
                return None
            by_people = _BOUND_BY_CONTROLLER not in annotations
            return {
                "metadata": {"annotations": {CHOSEN_FOR: None, _BOUND_BY_CONTROLLER: None}},
                # A claimRef set by a user stays.
                "spec": {"claimRef": {"uid": None} if by_people else None},
            }

        try:
            await self._client.update(VOLUMES, volume_name, "", change)
        except NotFoundError:
            return

    async def deselect(self, claim_name: str, claim_uid: str, node: str) -> None:
        """Undo `select`, unless the volume exists already."""

        def change(claim: PersistentVolumeClaim) -> Mapping[str, Any] | None:
            annotations = claim.metadata.annotations
            if (
                claim.metadata.uid != claim_uid
                or annotations.get(CHOSEN_FOR) != self._pod.uid
                or claim.spec.volume_name
            ):
                return None
            gone: dict[str, None] = {CHOSEN_FOR: None}
            if annotations.get(SELECTED_NODE) == node:
                gone[SELECTED_NODE] = None
            return {"metadata": {"annotations": gone}}

        try:
            await self._client.update(CLAIMS, claim_name, self._pod.namespace, change)
        except NotFoundError:
            return


def _gone(claim_name: str) -> str:
    return f"claim {claim_name} no longer exists"
