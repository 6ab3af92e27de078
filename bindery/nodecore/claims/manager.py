"""The DRA manager: prepares and unprepares resource claims, and keeps which pods use them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bindery.nodecore.checkpoints import claims as files
from bindery.nodecore.checkpoints.claims import ClaimDevice, PreparedClaim
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod, ResourceClaim
from bindery.nodecore.errors import CheckpointError, CheckpointNotFoundError, RestoreError
from bindery.nodecore.node import Node

RECONCILE_PERIOD_S: Final = 60.0
CALL_TIMEOUT_S: Final = 45.0

_PREPARE: Final = "NodePrepareResources"
_UNPREPARE: Final = "NodeUnprepareResources"

Key = tuple[str, str]
"""Namespace and name of a ResourceClaim."""

GetClaim = Callable[[str, str], ResourceClaim]
"""Namespace and name -> the ResourceClaim of the API; raises ClaimError if it cannot be had."""


@dataclass(frozen=True)
class Prepared:
    """A driver's answer for one claim."""

    devices: tuple[ClaimDevice, ...] = ()
    error: str = ""


class Driver(Protocol):
    """The calls to a DRA driver. They raise ClaimError when the call itself fails."""

    def prepare(self, claims: Iterable[PreparedClaim]) -> Mapping[str, Prepared]:
        """Prepare claims; return an answer for each UID. Claims may be prepared already."""

    def unprepare(self, claims: Iterable[PreparedClaim]) -> Mapping[str, str]:
        """Unprepare claims; return an error, or "", for each UID."""


FindDriver = Callable[[str], Driver]
"""Name -> driver; raises ClaimError if none of this name is registered."""


@dataclass(frozen=True)
class ClaimInfo:
    """A claim on the node.

    Attributes:
        state: the claim as in the checkpoint.
        is_prepared: whether its drivers have prepared it since the node agent started.
    """

    state: PreparedClaim
    is_prepared: bool = False

    @property
    def key(self) -> Key:
        """Its namespace and name."""
        return self.state.namespace, self.state.name

    def cdi_devices(self, request: str) -> list[str]:
        """Return the CDI device ids of a request, of all requests for ""."""
        return [
            name
            for _, devices in sorted(self.state.drivers.items())
            for device in devices
            if not request or not device.requests or request in device.requests
            for name in device.cdi_ids or ()
        ]


class ClaimManager:
    """The claims that pods on the node use."""

    def __init__(
        self,
        checkpoints: CheckpointManager,
        node: Node,
        get_claim: GetClaim,
        find_driver: FindDriver,
    ) -> None:
        self._checkpoints = checkpoints
        self._node = node
        self._get_claim = get_claim
        self._find_driver = find_driver
        self._claims: dict[Key, ClaimInfo] = {}

    @property
    def claims(self) -> Mapping[Key, ClaimInfo]:
        """The claims by namespace and name."""
        return self._claims

    def start(self) -> None:
        """Restore the claims from the checkpoint. None counts as prepared until a pod asks again.

        Raises:
            RestoreError: the checkpoint cannot be used.
        """
        try:
            states = files.decode(self._checkpoints.get(files.FILE))
        except CheckpointNotFoundError:
            self._write()
            return
        except CheckpointError as error:
            raise RestoreError(
                "could not restore ResourceClaims from checkpoint, please drain node and remove "
                f"DRA state file, err: {error}"
            ) from error
        self._claims = {(one.namespace, one.name): ClaimInfo(one) for one in states or ()}

    def prepare(self, pod: ClaimingPod) -> None:
        """Prepare the claims of a pod before its containers start.

        All is checked before anything is recorded, so that a pod that fails here can be deleted
        without its drivers. The checkpoint names the pod before drivers are called.

        Raises:
            ClaimError: a claim may not be used, or a driver fails.
        """
        wanted = self._checked(pod)
        batches: dict[str, list[PreparedClaim]] = {}
        for claim in wanted:
            info = self._claims.get((claim.namespace, claim.name))
            if info is None:
                drivers = dict.fromkeys(claim.drivers or (), ())
                state = PreparedClaim(claim.uid, claim.name, claim.namespace, frozenset(), drivers)
                info = ClaimInfo(state)
            elif info.state.uid != claim.uid:
                raise ClaimError(
                    f"old ResourceClaim with same name {claim.name} and different UID "
                    f"{info.state.uid} still exists (previous pod force-deleted?!)"
                )
            state = replace(info.state, pod_uids=info.state.pod_uids | {pod.uid})
            self._claims[info.key] = replace(info, state=state)
            self._write()
            if not info.is_prepared:
                for driver in state.drivers:
                    batches.setdefault(driver, []).append(state)
        for driver, claims in sorted(batches.items()):
            self._prepare_with(driver, claims)
        for state in {one.uid: one for batch in batches.values() for one in batch}.values():
            key = state.namespace, state.name
            self._claims[key] = replace(self._claims[key], is_prepared=True)
        if batches:
            self._write()

    def unprepare(self, pod: ClaimingPod) -> None:
        """Unprepare the claims of a pod that no other pod uses; may be called again.

        Raises:
            ClaimError: a driver fails.
        """
        self._unprepare(pod.uid, [(pod.namespace, name) for name in pod.claim_names()])

    def reconcile(self) -> list[tuple[str, ClaimError]]:
        """Unprepare the claims of pods that are not active; return pods that failed, and why."""
        if not self._node.sources_ready():
            return []
        active = {pod.uid for pod in self._node.active_pods()}
        gone: dict[str, list[Key]] = {}
        for key, info in sorted(self._claims.items()):
            for uid in sorted(info.state.pod_uids - active):
                gone.setdefault(uid, []).append(key)
        failed = []
        for uid, keys in gone.items():
            try:
                self._unprepare(uid, keys)
            except ClaimError as error:
                failed.append((uid, error))
        return failed

    def might_need_to_unprepare(self, pod_uid: str) -> bool:
        """Return whether a claim names the pod; it must not end before that is over."""
        return any(pod_uid in info.state.pod_uids for info in self._claims.values())

    def cdi_devices(self, pod: ClaimingPod, container: str) -> list[str]:
        """Return the CDI device ids that a container is created with.

        Raises:
            ClaimError: a claim of the container is not prepared.
        """
        found: list[str] = []
        for name, requests in pod.requests(container).items():
            info = self._claims.get((pod.namespace, name))
            if info is None:
                raise ClaimError(
                    f"internal error: unable to get claim info for ResourceClaim {name} in "
                    f"namespace {pod.namespace}"
                )
            for request in requests:
                found += info.cdi_devices(request)
        return found

    def of_container(self, pod: ClaimingPod, container: str) -> list[ClaimInfo]:
        """Return the claims that a container uses; raises ClaimError if one is not here."""
        found = []
        for name in pod.requests(container):
            info = self._claims.get((pod.namespace, name))
            if info is None:
                raise ClaimError(f"unable to get information for ResourceClaim {name}")
            found.append(info)
        return found

    def _checked(self, pod: ClaimingPod) -> list[ResourceClaim]:
        """Return the claims of the pod from the API; change nothing."""
        names = [(pod.claim_name(claim), claim.is_generated) for claim in pod.claims]
        found = []
        for name, is_generated in (*names, (pod.extended_claim, False)):
            if name is None:
                continue
            try:
                claim = self._get_claim(pod.namespace, name)
            except ClaimError as error:
                raise ClaimError(f"fetch ResourceClaim {name}: {error}") from error
            if is_generated and claim.owner_uid != pod.uid:
                raise ClaimError(
                    f"ResourceClaim {claim.namespace}/{claim.name} was not created for pod "
                    f"{pod.namespace}/{pod.name} (pod is not owner)"
                )
            if pod.uid not in claim.reserved_for:
                raise ClaimError(
                    f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {name} "
                    f"({claim.uid})"
                )
            if claim.drivers is None:
                raise ClaimError(f"ResourceClaim {claim.name}: not allocated")
            for driver in claim.drivers:
                self._find_driver(driver)
            found.append(claim)
        return found

    def _prepare_with(self, driver: str, claims: list[PreparedClaim]) -> None:
        by_uid = {claim.uid: claim for claim in claims}
        found = self._find_driver(driver)
        with _named(_PREPARE):
            answers = found.prepare(claims)
        for uid, answer in answers.items():
            _check_answer(_PREPARE, by_uid, uid, answer.error)
            claim = by_uid[uid]
            info = self._claims[claim.namespace, claim.name]
            drivers = {**info.state.drivers, driver: answer.devices}
            self._claims[info.key] = replace(info, state=replace(info.state, drivers=drivers))
        _check_all_answered(_PREPARE, by_uid, answers)

    def _unprepare(self, pod_uid: str, keys: Iterable[Key]) -> None:
        batches: dict[str, list[PreparedClaim]] = {}
        ending = []
        for key in keys:
            info = self._claims.get(key)
            if info is None:
                continue
            if len(info.state.pod_uids) > 1:
                left = replace(info.state, pod_uids=info.state.pod_uids - {pod_uid})
                self._claims[key] = replace(info, state=left)
                continue
            ending.append(key)
            for driver in info.state.drivers:
                batches.setdefault(driver, []).append(info.state)
        for driver, claims in sorted(batches.items()):
            by_uid = {claim.uid: claim for claim in claims}
            found = self._find_driver(driver)
            with _named(_UNPREPARE):
                answers = found.unprepare(claims)
            for uid, error in answers.items():
                _check_answer(_UNPREPARE, by_uid, uid, error)
            _check_all_answered(_UNPREPARE, by_uid, answers)
        for key in ending:
            del self._claims[key]
        self._write()

    def _write(self) -> None:
        states = tuple(info.state for _, info in sorted(self._claims.items()))
        self._checkpoints.create(files.FILE, files.encode(states))


@contextmanager
def _named(call: str) -> Iterator[None]:
    """Put the name of the call before the error of a driver."""
    try:
        yield
    except ClaimError as error:
        raise ClaimError(f"{call}: {error}") from error


def _check_answer(call: str, asked: Mapping[str, PreparedClaim], uid: str, error: str) -> None:
    if uid not in asked:
        raise ClaimError(f"{call} returned result for unknown claim UID {uid}")
    if error:
        raise ClaimError(f"{call} failed for ResourceClaim {asked[uid].name}: {error}")


def _check_all_answered(
    call: str, asked: Mapping[str, PreparedClaim], answers: Mapping[str, object]
) -> None:
    if len(asked) != len(answers):
        raise ClaimError(f"{call} skipped {len(asked) - len(answers)} ResourceClaims")
