"""Patches that write devices to pods and remove them.

Called by the plugin's steps. One merge patch with the pod's UID sets all keys of the assignment and
removes the protocol's other keys. A rollback removes only keys that still have the written values.
Pure, except the last two functions.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bindery.api.bindrequest import BindFailureReason
from bindery.api.hami import assignment as assignments
from bindery.api.hami import names
from bindery.api.hami.assignment import Assignment
from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.hami.objects import HOLDER_PODS, HolderPod
from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client, PatchKind
from bindery.kube.errors import ConflictError, InvalidError, NotFoundError


def prepared(assignment: Assignment, uid: str, node: str, now_s: float) -> dict[str, Any]:
    """Return the merge patch that gives a pod its devices on `node`."""
    written: dict[str, str | None] = dict.fromkeys(sorted(assignments.PROTOCOL_KEYS))
    written.update(assignments.written(assignment, uid, node, now_s))
    metadata: dict[str, Any] = {"uid": uid, "annotations": written}
    if len(node) <= names.LABEL_LENGTH:
        metadata["labels"] = {names.ASSIGNED_NODE: node}
    return {"metadata": metadata}


def undone(
    pod: HolderPod, assignment: Assignment, node: str, now_s: float
) -> list[dict[str, Any]] | None:
    """Return the JSON patch that removes the assignment; None if the pod does not have it.

    Times are not compared, because another process may have written them; they are removed with the
    devices.
    """
    wanted = assignments.annotations(assignment, node, now_s)
    present = pod.metadata.annotations
    steady = {vendor.allocated_key for vendor in assignment.vendors} | {names.ASSIGNED_NODE}
    if any(present.get(key) != wanted[key] for key in steady):
        return None
    patch = [_operation("test", "annotations", key, present[key]) for key in sorted(steady)]
    patch.insert(0, {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid})
    ours = sorted({*wanted, names.DEVICES_RECORD} & present.keys())
    patch += [_operation("remove", "annotations", key) for key in ours]
    if pod.metadata.labels.get(names.ASSIGNED_NODE) == node:
        patch.append(_operation("remove", "labels", names.ASSIGNED_NODE))
    return patch


def _operation(kind: str, where: str, key: str, value: str | None = None) -> dict[str, Any]:
    path = f"/metadata/{where}/{key.replace('~', '~0').replace('/', '~1')}"
    return (
        {"op": kind, "path": path} if value is None else {"op": kind, "path": path, "value": value}
    )


async def write(client: Client, pod: PodView, patch: Mapping[str, Any]) -> None:
    """Write a patch from `prepared`.

    Raises:
        PluginError: the pod does not exist, or cannot be written.
        ConflictError: the pod has changed meanwhile, or another pod has its name; the next attempt
            checks.
    """
    try:
        await client.patch(HOLDER_PODS, pod.name, patch, namespace=pod.namespace)
    except (NotFoundError, InvalidError) as error:
        message = f"the devices cannot be written to the pod: {error}"
        raise PluginError(message, reason=BindFailureReason.POD_GONE, permanent=True) from error


async def take_back(
    client: Client, pod: PodView, make: Callable[[HolderPod], list[dict[str, Any]] | None]
) -> HolderPod | None:
    """Apply the patch from `make` to the pod; return the pod, or None if another pod has its name.

    Raises:
        PluginError: the pod has changed in between; try again.
    """
    try:
        found = await client.get(HOLDER_PODS, pod.name, pod.namespace)
    except NotFoundError:
        return None
    if found.metadata.uid != pod.uid:
        return None
    patch = make(found)
    if patch is not None and not found.spec.node_name:
        try:
            await client.patch(
                HOLDER_PODS, pod.name, patch, namespace=pod.namespace, kind=PatchKind.JSON
            )
        except NotFoundError:
            return None
        except (ConflictError, InvalidError) as error:
            raise PluginError(f"the devices were not removed from the pod: {error}") from error
    return found
