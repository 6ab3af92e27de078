"""Kubernetes' controllers for volumes, and people who lose volumes; the provisioner is a fake.

The volume controller binds a claim to the volume that refers to it, and records a loss of either.
Claims that a pod on a node uses, and volumes that are bound, stay until they are free.
"""

import asyncio
from random import Random
from typing import ClassVar, Final

from bindery.api.names import HOSTNAME_LABEL
from bindery.kube.client import Client
from bindery.kube.objects.podspec import Volume
from bindery.kube.objects.storage import (
    CLAIMS,
    STORAGE_CLASSES,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
)
from bindery.kube.objects.watched import Pod
from fakes.provisioner import PROVISIONER as PROVISIONER_ANNOTATION
from fakes.provisioner import SELECTED_NODE, ProvisionerStandIn
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.needs import bodies
from tests.histories.needs.controller import NAMESPACE, Controller, is_alive, nth
from tests.histories.needs.plans import Trouble, TroubleKind
from tests.histories.plan import QUIET_AFTER_S

_REFUSED: Final = 0.2
"""Of the volumes to be made: they are asked for again, often of another node."""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


class VolumeControllers(Controller):
    """The controllers of volumes, claims and ephemeral claims."""

    watches: ClassVar[frozenset[str]] = frozenset(
        ("pods", "persistentvolumes", "persistentvolumeclaims")
    )

    def __init__(
        self,
        server: ModelApiServer,
        client: Client,
        chance: Random,
        nodes: list[str],
        local_volumes: tuple[int, ...],
    ) -> None:
        super().__init__(server, client, chance)
        self._nodes, self._local_volumes = nodes, local_volumes
        self._provisioner = ProvisionerStandIn(
            client,
            NAMESPACE,
            bodies.PROVISIONER,
            draw_delay_s=lambda: _delay_s(chance),
            refuses=lambda: chance.random() < _REFUSED and not _is_quiet(),
        )
        self._may_serve = asyncio.Event()
        self._may_serve.set()
        self._stopped = asyncio.Event()

    async def prepare(self) -> None:
        """Create the classes and the local volumes."""
        for name, provisioner in bodies.classes().items():
            mode = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            await self.create(STORAGE_CLASSES, name, mode)
        for number, node in enumerate(self._local_volumes):
            here = {
                "key": HOSTNAME_LABEL, "operator": "In",
                "values": [self._nodes[node % len(self._nodes)]],
            }  # fmt: skip
            spec = {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local", "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            }  # fmt: skip
            await self.create(VOLUMES, f"local{number}", {"spec": spec})

    async def run(self) -> None:
        """Look, and provision, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            group.create_task(self._provision())

    async def _provision(self) -> None:
        while True:
            await self._may_serve.wait()
            async with self._provisioner.serving():
                await self._stopped.wait()

    async def look(self) -> None:
        """Take one step for everything."""
        pods = self.pods()
        for pod in pods:
            for mounted in pod.spec.volumes or ():
                if mounted.ephemeral is not None and is_alive(pod):
                    await self._make_claim(pod, mounted)
        claims = {claim.metadata.name: claim for claim in self.all_of(CLAIMS)}
        volumes = {volume.metadata.name: volume for volume in self.all_of(VOLUMES)}
        for volume in volumes.values():
            await self._volume(volume, claims)
        used = {name for pod in pods if _holds_claims(pod) for name in claim_names(pod)}
        for claim in claims.values():
            await self._claim(claim, volumes, is_used=claim.metadata.name in used)

    async def _make_claim(self, pod: Pod, volume: Volume) -> None:
        name = f"{pod.metadata.name}-{volume.name}"
        if any(claim.metadata.name == name for claim in self.all_of(CLAIMS)):
            return
        assert volume.ephemeral is not None, "the caller has looked"
        owner = {
            "apiVersion": "v1", "kind": "Pod", "controller": True,
            "name": pod.metadata.name, "uid": pod.metadata.uid,
        }  # fmt: skip
        spec = volume.ephemeral["volumeClaimTemplate"]["spec"]
        await self.create(CLAIMS, name, {"spec": spec}, ownerReferences=[owner])

    # -- one volume, one claim -------------------------------------------------------------------

    async def _volume(
        self, volume: PersistentVolume, claims: dict[str, PersistentVolumeClaim]
    ) -> None:
        phase, reference = volume.status.phase, volume.spec.claim_ref
        if volume.metadata.deletion_timestamp is not None and phase != "Bound":
            await self.patch(VOLUMES, volume, {"metadata": {"finalizers": None}})
            return
        if reference is None:
            await self._set_phase(volume, "Available")
            return
        claim = claims.get(reference.name)
        if claim is None or claim.metadata.uid != reference.uid:
            await self._set_phase(volume, "Released")
        elif not claim.spec.volume_name:
            await self._bind(volume, claim)
        elif claim.spec.volume_name == volume.metadata.name:
            await self._set_phase(volume, "Bound")
        elif BOUND_BY_CONTROLLER in volume.metadata.annotations:
            free = {
                "metadata": {"annotations": {BOUND_BY_CONTROLLER: None}},
                "spec": {"claimRef": None},
            }
            await self.patch(VOLUMES, volume, free)

    async def _set_phase(self, volume: PersistentVolume, phase: str) -> None:
        if volume.status.phase != phase:
            await self.patch(VOLUMES, volume, {"status": {"phase": phase}}, "status")

    async def _bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Bind a claim to the volume that refers to it: volume first, as the controller does."""
        if claim.metadata.deletion_timestamp is not None:
            return
        if volume.status.phase != "Bound":
            await self._set_phase(volume, "Bound")
            return  # the claim comes with the next look
        annotations = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        bound = {
            "metadata": {"annotations": annotations},
            "spec": {"volumeName": volume.metadata.name},
        }
        await self.patch(CLAIMS, claim, bound)

    async def _claim(
        self,
        claim: PersistentVolumeClaim,
        volumes: dict[str, PersistentVolume],
        *,
        is_used: bool,
    ) -> None:
        meta = claim.metadata
        if meta.deletion_timestamp is not None:
            if not is_used:
                await self.patch(CLAIMS, claim, {"metadata": {"finalizers": None}})
            return
        if not claim.spec.volume_name:
            is_late = claim.spec.storage_class_name == "late"
            if is_late and SELECTED_NODE in meta.annotations:
                named = {PROVISIONER_ANNOTATION: bodies.PROVISIONER}
                if not named.items() <= meta.annotations.items():
                    await self.patch(CLAIMS, claim, {"metadata": {"annotations": named}})
            return
        volume = volumes.get(claim.spec.volume_name)
        reference = volume.spec.claim_ref if volume is not None else None
        is_mine = reference is not None and reference.uid == meta.uid
        phase = "Bound" if is_mine else "Lost"
        if claim.status.phase not in (phase, "Lost"):
            await self.patch(CLAIMS, claim, {"status": {"phase": phase}}, "status")

    # -- troubles --------------------------------------------------------------------------------

    async def suffer(self, trouble: Trouble) -> None:
        """Lose a volume, delete a claim, or end and begin the provisioner's work."""
        match trouble.kind:
            case TroubleKind.LOSE_VOLUME:
                await self._lose(trouble.target)
            case TroubleKind.DELETE_CLAIM:
                claims = self.all_of(CLAIMS)
                if claims:
                    name = nth(claims, trouble.target).metadata.name
                    await self.attempt(self.client.delete(CLAIMS, name, NAMESPACE))
            case TroubleKind.REFUSE_VOLUMES:
                node = self._nodes[trouble.target % len(self._nodes)]
                self._provisioner.full_nodes.add(node)
                await asyncio.sleep(trouble.seconds)
                self._provisioner.full_nodes.discard(node)
            case TroubleKind.STOP_PROVISIONER:
                self._may_serve.clear()
                self._stopped.set()
                await asyncio.sleep(trouble.seconds)
                self._stopped.clear()
                self._may_serve.set()
            case _:
                pass

    async def _lose(self, target: int) -> None:
        volumes = self.all_of(VOLUMES)
        if volumes:
            name = nth(volumes, target).metadata.name
            await self.attempt(self.client.delete(VOLUMES, name))
            patch = {"metadata": {"finalizers": None}}
            await self.attempt(self.client.patch(VOLUMES, name, patch))


def claim_names(pod: Pod) -> list[str]:
    """Return the names of the claims for volumes of a pod."""
    return [
        volume.persistent_volume_claim.claim_name
        if volume.persistent_volume_claim is not None
        else f"{pod.metadata.name}-{volume.name}"
        for volume in pod.spec.volumes or ()
    ]


def _is_quiet() -> bool:
    """Whether the faults are over: with more refusals, gangs would not come to rest in time."""
    return asyncio.get_running_loop().time() > QUIET_AFTER_S


def _delay_s(chance: Random) -> float:
    return chance.choice((chance.uniform(0.0, 0.5), chance.uniform(0.0, 12.0)))


def _holds_claims(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and is_alive(pod)
