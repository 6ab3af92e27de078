"""When the binder gives up a pod, or its request goes, nothing that it wrote for the pod is left.

Judged at the write of the outcome and at the deletion, because leftovers often heal later: a
provisioner makes the volume, a controller takes the reservation of a pod that goes.
"""

from collections.abc import Iterator
from typing import Final

from bindery.api import gpushare
from bindery.api.hami import names
from bindery.binder.plugins.volumes.writes import CHOSEN_FOR
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.resources import BIND_REQUESTS, PODS
from bindery.kube.objects.storage import CLAIMS, VOLUMES
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.store import Change, Version
from tests.histories.reading import all_of

_WAS_BOUND: Final = ("Bound", "Released")
"""Phases of volumes that a claim has had. They stay bound when the pod is given up."""


def given_up_by(server: ModelApiServer, change: Change) -> set[str]:
    """Return the UIDs of the pods that this write of a BindRequest gives up."""
    if change.after is None:
        return _left_by(server, change.version)
    return _given_up(change.after) - _given_up(change.before)


def left_of_given_up(server: ModelApiServer, given_up: set[str]) -> Iterator[str]:
    """Yield what is left of pods that are given up now."""
    if not given_up:
        return
    for claim in all_of(server, CLAIMS):
        if not claim.spec.volume_name and claim.metadata.annotations.get(CHOSEN_FOR) in given_up:
            yield f"claim {claim.metadata.name} is still chosen for a pod that was given up"
    for volume in all_of(server, VOLUMES):
        is_chosen = volume.metadata.annotations.get(CHOSEN_FOR) in given_up
        if (
            is_chosen
            and volume.spec.claim_ref is not None
            and volume.status.phase not in _WAS_BOUND
        ):
            yield f"volume {volume.metadata.name} is still chosen for a pod that was given up"
    for device_claim in all_of(server, RESOURCE_CLAIMS):
        for user in device_claim.status.reserved_for:
            if user.uid in given_up:
                name = device_claim.metadata.name
                yield f"claim {name} is still reserved for {user.name}, which was given up"
    yield from _of_pods([pod for pod in all_of(server, PODS) if pod.metadata.uid in given_up])


def _of_pods(given_up: list[Pod]) -> Iterator[str]:
    for pod in given_up:
        if pod.spec.node_name:
            continue
        if gpushare.groups(pod.metadata.labels):
            yield f"{pod.metadata.name} was given up and has the label of a GPU group"
        if names.DEVICES_RECORD in pod.metadata.annotations:
            yield f"{pod.metadata.name} was given up and has {names.DEVICES_RECORD}"


def _left_by(server: ModelApiServer, version: Version) -> set[str]:
    """Return the UIDs of the pods that a deleted BindRequest leaves without a node.

    Another request may carry a pod of it, and have things prepared for it.
    """
    gone = BIND_REQUESTS.decode(version.body)
    pods = {pod.pod_uid for each in gone.each() if not each.is_final for pod in each.spec.pods}
    others = (each for stored in all_of(server, BIND_REQUESTS) for each in stored.each())
    pods -= {pod.pod_uid for each in others for pod in each.spec.pods}
    return pods - {pod.metadata.uid for pod in all_of(server, PODS) if pod.spec.node_name}


def _given_up(version: Version | None) -> set[str]:
    """Return the UIDs of the pods that a version of a BindRequest gives up."""
    if version is None:
        return set()
    request = BIND_REQUESTS.decode(version.body)
    return {
        pod.pod_uid for statement in request.status.statements for pod in statement.unbound_pods
    }
