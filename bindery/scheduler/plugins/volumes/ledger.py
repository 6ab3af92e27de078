"""The ledger of volumes: the volumes chosen by the plan and by requests at the binder.

A claim that waits for its consumer gets a volume with the first placed pod: an existing volume,
which is then taken, or a new one for the pod's node. A choice is undone with the last placement
that uses it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bindery.kube.objects.disks import CsiVolume, Disk
from bindery.kube.objects.storage import PersistentVolume, PersistentVolumeClaim
from bindery.kube.watches.store import Key, key_of
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation, OperationKind
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import NO_ROW, Uid
from bindery.scheduler.model.nodes import NodeTable
from bindery.scheduler.model.shapes import Need
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.plugins.volumes.attachments import Attachments
from bindery.scheduler.plugins.volumes.catalog import SELECTED_NODE, Catalog, PodVolumes, is_bound
from bindery.scheduler.plugins.volumes.matching import CandidateVolume, Matching, requested_bytes
from bindery.scheduler.plugins.volumes.nodeindex import NodeIndex


class _User(NamedTuple):
    uid: Uid
    row: int
    is_read_only: bool


class DiskUsers:
    """The in-tree disks of pods on nodes, of the plan and at the binder, that exclude others."""

    def __init__(self, catalog: Catalog, nodes: NodeTable) -> None:
        self._users: defaultdict[str, Counter[_User]] = defaultdict(Counter)
        """Name of a disk -> how often a pod has it on a node: a plan may move it there again."""
        for uid, pod in catalog.disk_users.items():
            self.add(uid, nodes.rows.get(pod.node_name, NO_ROW), pod.disks)

    def add(self, uid: Uid, row: int, disks: tuple[Disk, ...]) -> None:
        """Enter `disks` of the pod `uid` on the node at `row`; `NO_ROW` enters nothing."""
        for disk in disks if row != NO_ROW else ():
            for name in disk.names:
                self._users[name][_User(uid, row, disk.is_read_only)] += 1

    def remove(self, uid: Uid, row: int, disks: tuple[Disk, ...]) -> None:
        """Undo `add`."""
        for disk in disks:
            for name in disk.names:
                self._users[name] -= Counter((_User(uid, row, disk.is_read_only),))

    def closed_rows(self, uid: Uid, disks: tuple[Disk, ...]) -> set[int]:
        """Return the rows where another pod has one of `disks` and one of both may write to it."""
        return {
            user.row
            for disk in disks
            for name in disk.names
            for user in self._users.get(name, ())
            if user.uid != uid and not (disk.is_read_only and user.is_read_only)
        }


SINGLE_USER: Final = "ReadWriteOncePod"
_DISK_IN_USE: Final = "had no available disk"
NOT_READ_YET: Final = "the scheduler has not read its volumes yet"


@dataclass(frozen=True, slots=True)
class VolumeChoice:
    """The choice for a claim without a volume."""

    row: int
    """The node row of the first pod; `NO_ROW` if the node does not exist."""
    volume: str = ""
    """The name of an existing volume; empty for a new volume on that node."""


@dataclass(slots=True)
class _Chosen:
    choice: VolumeChoice
    reliant: set[Uid] = field(default_factory=set)


class VolumeLedger:
    """The choices and attachments of one session."""

    name = "volumes"

    def __init__(self, catalog: Catalog, nodes: NodeTable, index: NodeIndex) -> None:
        self._catalog, self._nodes, self._index = catalog, nodes, index
        self.matching = Matching(catalog, index)
        self._chosen: dict[Key, _Chosen] = {}
        self._taken: set[str] = set()
        """Names of chosen volumes."""
        self._to_be_made: Counter[Key] = Counter()
        """Segment of storage -> bytes of new volumes in it."""
        self._placed: dict[Uid, int] = {}
        """Pod of this plan, or at the binder -> row."""
        self.attachments = Attachments(catalog, nodes)
        self._disk_users = DiskUsers(catalog, nodes)

    # -- requests at the binder ------------------------------------------------------------------

    def expect(self, uid: Uid, row: int, volumes: Mapping[Key, tuple[str, str]]) -> None:
        """Enter the choices of a request at the binder, for a pod on the node at `row`.

        `volumes` is claim -> its UID, and the volume or "" for a new one. Choices for claims that
        are bound, gone or replaced are left out.
        """
        self._placed[uid] = row
        for key, (claim_uid, volume) in volumes.items():
            claim = self._catalog.claims.get(key)
            if claim is not None and claim.metadata.uid == claim_uid and not is_bound(claim):
                self._choose(uid, claim, VolumeChoice(row, volume))
        pod = self._catalog.pods.get(uid)
        # `Attachments` has counted the volumes of pods with a node already.
        if pod is not None and not pod.node_name:
            self.attachments.attach(uid, row, self._attached(pod))
            self._disk_users.add(uid, row, pod.disks)

    # -- the ledger ------------------------------------------------------------------------------

    def apply(self, operation: Operation) -> None:
        """Choose volumes for a placed pod, or refuse the node.

        Evictions change nothing: volumes stay attached until the pod has gone.
        """
        task = operation.task
        if Need.VOLUMES not in task.shape.needs or operation.kind is OperationKind.EVICT:
            return
        pod, row = self._catalog.pods.get(task.uid), operation.row
        if pod is None or any(key not in self._catalog.claims for key in pod.claims):
            raise LedgerRefusalError(NOT_READ_YET)
        chosen = self._find_all(pod, row)
        for key, choice in chosen.items():
            self._choose(task.uid, self._catalog.claims[key], choice)
        attached = self._attached(pod)
        # What must be attached is known only after the choice.
        full = self.attachments.exceeds(row, attached)
        if full is not None:
            self._let_go(task.uid, pod)
            raise LedgerRefusalError(full)
        self.attachments.attach(task.uid, row, attached)
        self._disk_users.add(task.uid, row, pod.disks)
        self._placed[task.uid] = row

    def revert(self, operation: Operation) -> None:
        """Undo the placement of a pod, and its choices without another user."""
        task = operation.task
        if Need.VOLUMES not in task.shape.needs or operation.kind is OperationKind.EVICT:
            return
        pod = self._catalog.pods[task.uid]
        self.attachments.detach(task.uid, operation.row)
        self._disk_users.remove(task.uid, operation.row, pod.disks)
        del self._placed[task.uid]
        self._let_go(task.uid, pod)

    # -- queries ---------------------------------------------------------------------------------

    def against(self, pod: PodVolumes) -> Iterator[NodeFailure]:
        """Yield the reasons against nodes for the volumes of `pod`, at this point of the plan."""
        user = self.single_user(pod)
        if user is not None:
            yield NodeFailure(user, self._index.all())
            return
        for key in pod.claims:
            claim = self._catalog.claims[key]
            volume = self._volume_of(claim)
            if volume is not None:
                yield from self._against_volume(volume)
        for claim in self._open_claims(pod):
            yield from self._against_claim(claim)
        if pod.disks:
            yield NodeFailure(_DISK_IN_USE, self._disk_closed(pod))
        yield from self.attachments.against(self._attached(pod))

    def single_user(self, pod: PodVolumes) -> str | None:
        """Return why a ReadWriteOncePod claim of `pod` is in use by another pod; None if not."""
        for key in pod.claims:
            claim = self._catalog.claims.get(key)
            if claim is None or SINGLE_USER not in claim.spec.access_modes:
                continue
            for uid in self._catalog.users[key] - {pod.uid}:
                user = self._catalog.pods[uid]
                if user.node_name or uid in self._placed:
                    return (
                        f'cannot take it: persistentvolumeclaim "{key[1]}" is {SINGLE_USER} and '
                        f"pod {user.name} uses it"
                    )
        return None

    def choice(self, key: Key) -> VolumeChoice | None:
        """Return the choice for a claim, if there is one."""
        chosen = self._chosen.get(key)
        return chosen.choice if chosen is not None else None

    # -- inside ----------------------------------------------------------------------------------

    def _find_all(self, pod: PodVolumes, row: int) -> dict[Key, VolumeChoice]:
        """Return choices for the claims of `pod` without a volume, on the node at `row`.

        Raises:
            LedgerRefusalError: the node cannot have the volumes.
        """
        user = self.single_user(pod)
        if user is not None:
            raise LedgerRefusalError(user)
        if row in self._disk_users.closed_rows(pod.uid, pod.disks):
            raise LedgerRefusalError(_DISK_IN_USE)
        for key in pod.claims:
            volume = self._volume_of(self._catalog.claims[key])
            if volume is not None:
                for failure in self._against_volume(volume):
                    if failure.nodes[row]:
                        raise LedgerRefusalError(failure.reason)
        chosen: dict[Key, VolumeChoice] = {}
        for claim in self._open_claims(pod):
            choice = self._find(claim, row, {each.volume for each in chosen.values()})
            if choice is None:
                raise LedgerRefusalError("didn't find available persistent volumes to bind")
            chosen[key_of(claim.metadata)] = choice
        return chosen

    def _open_claims(self, pod: PodVolumes) -> list[PersistentVolumeClaim]:
        """Return the claims of `pod` without a volume, the smallest first."""
        # Small claims take small volumes, so that large ones are left for large claims.
        claims = [self._catalog.claims[key] for key in pod.claims]
        without = [claim for claim in claims if self._volume_of(claim) is None]
        return sorted(without, key=lambda claim: (requested_bytes(claim), claim.metadata.name))

    def _volume_of(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the bound or chosen volume of `claim`; None without one."""
        name = claim.spec.volume_name
        chosen = self._chosen.get(key_of(claim.metadata))
        if not name and chosen is not None:
            name = chosen.choice.volume
        return self._catalog.volumes.get(name)

    def _find(
        self, claim: PersistentVolumeClaim, row: int, also_taken: set[str]
    ) -> VolumeChoice | None:
        """Return a choice for `claim` on the node at `row`; None if there is none."""
        made_for = self._made_for(claim)
        if made_for is not None:
            return VolumeChoice(row) if made_for == row else None
        for candidate in self.matching.candidates(claim):
            if candidate.name in self._taken or candidate.name in also_taken:
                continue
            if candidate.rows is None or row in candidate.rows:
                return VolumeChoice(row, candidate.name)
            if candidate.is_promised:  # a volume with a reference to the claim excludes all others
                return None
        can_be_made = self.matching.makers(claim)[row] and self._has_storage(claim)[row]
        return VolumeChoice(row) if can_be_made else None

    def _made_for(self, claim: PersistentVolumeClaim) -> int | None:
        """Return the node row of the volume in preparation for `claim`; None without one.

        `NO_ROW` if the node does not exist.
        """
        chosen = self._chosen.get(key_of(claim.metadata))
        if chosen is not None:
            return chosen.choice.row
        # Somebody has selected a node for this claim; its provisioner works for that node only.
        node_name = claim.metadata.annotations.get(SELECTED_NODE)
        return None if node_name is None else self._nodes.rows.get(node_name, NO_ROW)

    def _against_volume(self, volume: PersistentVolume) -> Iterator[NodeFailure]:
        rows, zones = self._index.reach(volume), self._index.zones(volume)
        if rows is not None:
            outside = self._index.all()
            outside[rows] = False
            yield NodeFailure("had volume node affinity conflict", outside)
        if zones is not None:
            yield NodeFailure("had no available volume zone", ~zones)

    def _against_claim(self, claim: PersistentVolumeClaim) -> Iterator[NodeFailure]:
        made_for = self._made_for(claim)
        if made_for is not None:
            outside = self._index.all()
            if made_for != NO_ROW:
                outside[made_for] = False
            name = claim.metadata.name
            text = f'are not the node for which persistentvolumeclaim "{name}" is being provisioned'
            yield NodeFailure(text, outside)
            return
        free = [c for c in self.matching.candidates(claim) if c.name not in self._taken]
        reached = self._reached(free)
        if free and free[0].is_promised:
            yield NodeFailure("had volume node affinity conflict", ~reached)
            return
        makers = self.matching.makers(claim)
        yield NodeFailure("didn't find available persistent volumes to bind", ~(reached | makers))
        without = makers & ~reached & ~self._has_storage(claim)
        yield NodeFailure("did not have enough free storage", without)

    def _reached(self, candidates: list[CandidateVolume]) -> BoolColumn:
        """Return a mask of the rows with access to one of `candidates`."""
        mask = self._index.none()
        for candidate in candidates:
            if candidate.rows is None:
                return self._index.all()
            mask[candidate.rows] = True
            if candidate.is_promised:
                break  # a volume with a reference to the claim excludes all others
        return mask

    def _has_storage(self, claim: PersistentVolumeClaim) -> BoolColumn:
        """Return a mask of the rows with enough storage for a new volume of `claim`."""
        segments = self.matching.segments(claim)
        if segments is None:  # the driver does not publish its capacity
            return self._index.all()
        mask, size = self._index.none(), requested_bytes(claim)
        for segment in segments:
            left = segment.capacity - self._to_be_made[segment.key]
            if size <= min(left, segment.largest):
                mask |= segment.nodes
        return mask

    def _choose(self, uid: Uid, claim: PersistentVolumeClaim, choice: VolumeChoice) -> None:
        key = key_of(claim.metadata)
        chosen = self._chosen.get(key)
        # Further pods with the claim use the choice of the first.
        if chosen is None:
            chosen = self._chosen[key] = _Chosen(choice)
            self._count(claim, choice, 1)
        chosen.reliant.add(uid)

    def _let_go(self, uid: Uid, pod: PodVolumes) -> None:
        for key in pod.claims:
            chosen = self._chosen.get(key)
            if chosen is None or uid not in chosen.reliant:
                continue
            chosen.reliant.discard(uid)
            if not chosen.reliant:
                del self._chosen[key]
                self._count(self._catalog.claims[key], chosen.choice, -1)

    def _count(self, claim: PersistentVolumeClaim, choice: VolumeChoice, sign: int) -> None:
        if choice.volume:
            (self._taken.add if sign > 0 else self._taken.discard)(choice.volume)
            return
        for segment in self.matching.segments(claim) or ():
            if choice.row != NO_ROW and segment.nodes[choice.row]:
                self._to_be_made[segment.key] += sign * requested_bytes(claim)

    def _disk_closed(self, pod: PodVolumes) -> BoolColumn:
        mask = self._index.none()
        mask[list(self._disk_users.closed_rows(pod.uid, pod.disks))] = True
        return mask

    def _attached(self, pod: PodVolumes) -> frozenset[CsiVolume]:
        """Return the known attachments of `pod`."""
        found = set(self.attachments.own(pod))
        for key in pod.claims:
            claim = self._catalog.claims.get(key)
            if claim is None:
                continue
            attachment = self.attachments.of(claim, self._volume_of(claim))
            if attachment is not None:
                found.add(attachment)
        return frozenset(found)
