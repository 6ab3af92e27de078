"""The DRA manager: which claims drivers prepare and unprepare, and which pods use them.

Each change has three parts. `plan_prepare` or `plan_unprepare` checks, and records that the claim
is in use. The caller makes the calls of the plan, in their order and with deadlines, and gives each
answer to `record`. `finish` ends a plan all of whose calls have succeeded, `give_up` another.
Plans of one pod must not overlap.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bindery.nodecore.checkpoints import claims as files
from bindery.nodecore.checkpoints.claims import ClaimDevice, PreparedClaim
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.claims.calls import (
    PREPARE,
    UNPREPARE,
    ClaimPlan,
    DriverCall,
    Key,
    Prepared,
    calls,
)
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod, ResourceClaim
from bindery.nodecore.errors import CheckpointError, CheckpointNotFoundError, RestoreError
from bindery.nodecore.node import Node

RECONCILE_PERIOD_S: Final = 60.0

GetClaim = Callable[[str, str], ResourceClaim]
"""Namespace and name -> the ResourceClaim of the API; raises ClaimError if it cannot be had."""

FindDriver = Callable[[str], object]
"""Name of a driver -> anything; raises ClaimError if none of this name is registered."""


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
        return [name for _, device in self.devices(request) for name in device.cdi_ids or ()]

    def devices(self, request: str) -> list[tuple[str, ClaimDevice]]:
        """Return driver and device of a request, of all requests for ""."""
        return [
            (driver, device)
            for driver, devices in sorted(self.state.drivers.items())
            for device in devices
            if not request or not device.requests or request in device.requests
        ]


class ClaimManager:
    """The claims that pods on the node use."""

    def __init__(
        self,
        checkpoints: CheckpointManager,
        node: Node,
        find_driver: FindDriver,
    ) -> None:
        self._checkpoints = checkpoints
        self._node = node
        self._find_driver = find_driver
        self._claims: dict[Key, ClaimInfo] = {}
        self._leaving: set[Key] = set()

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

    def plan_prepare(self, pod: ClaimingPod, get_claim: GetClaim) -> ClaimPlan:
        """Return the calls that prepare the claims of a pod before its containers start.

        All is checked before anything is recorded, so that a pod that fails here can be deleted
        without its drivers. The checkpoint names the pod before drivers are called.

        Raises:
            ClaimError: a claim may not be used, or it is being unprepared.
        """
        wanted = self._checked(pod, get_claim)
        batches: dict[str, list[PreparedClaim]] = {}
        keys = []
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
                keys.append(info.key)
                for driver in state.drivers:
                    batches.setdefault(driver, []).append(state)
        return ClaimPlan(PREPARE, pod.uid, tuple(keys), calls(PREPARE, batches))

    def plan_unprepare(self, pod: ClaimingPod) -> ClaimPlan:
        """Return the calls that unprepare the claims of a pod that no other pod uses.

        Until the plan has ended, no pod can use these claims.

        Raises:
            ClaimError: a claim is not generated yet.
        """
        return self._plan_unprepare(pod.uid, [(pod.namespace, name) for name in pod.claim_names()])

    def stale(self, busy: Container[str] = ()) -> list[ClaimPlan]:
        """Return the plans to unprepare the claims of pods that are not active.

        `busy`: pods with a plan that has not ended.
        """
        if not self._node.sources_ready():
            return []
        active = {pod.uid for pod in self._node.active_pods()}
        gone: dict[str, list[Key]] = {}
        for key, info in sorted(self._claims.items()):
            for uid in sorted(info.state.pod_uids - active):
                if uid not in busy:
                    gone.setdefault(uid, []).append(key)
        return [self._plan_unprepare(uid, keys) for uid, keys in gone.items()]

    def record(self, call: DriverCall, answers: Mapping[str, Prepared]) -> None:
        """Record a driver's answers; UID of a claim -> answer.

        Raises:
            ClaimError: an answer is missing or an error, or the claim is gone meanwhile.
        """
        for uid, answer in answers.items():
            claim = call.check_one(uid, answer.error)
            if call.method == PREPARE:
                info = self._present(claim.namespace, claim.name)
                drivers = {**info.state.drivers, call.driver: answer.devices}
                self._claims[info.key] = replace(info, state=replace(info.state, drivers=drivers))
        call.check({uid: answer.error for uid, answer in answers.items()})

    def finish(self, plan: ClaimPlan) -> None:
        """Record that all calls of a plan have succeeded, and write the checkpoint.

        Raises:
            ClaimError: a claim that was to be prepared is gone meanwhile.
        """
        if plan.method == PREPARE:
            for key in plan.keys:
                self._claims[key] = replace(self._present(*key), is_prepared=True)
            if not plan.keys:
                return
        for key in plan.keys if plan.method == UNPREPARE else ():
            self._claims.pop(key, None)
        self.give_up(plan)
        self._write()

    def give_up(self, plan: ClaimPlan) -> None:
        """Record that a call of a plan has failed; a later plan repeats what is missing."""
        if plan.method == UNPREPARE:
            self._leaving.difference_update(plan.keys)

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
            info = self._present(pod.namespace, name)
            for request in requests:
                found += info.cdi_devices(request)
        return found

    def devices_by_use(
        self, pod: ClaimingPod, container: str
    ) -> dict[str, list[tuple[str, ClaimDevice]]]:
        """Return the drivers and devices of each claim that a container uses, for its status.

        The keys are `claim:NAME` or `claim:NAME/REQUEST`, with the name in the pod. Claims that are
        not here are left out. Source: `UpdateAllocatedResourcesStatus` of the kubelet's DRA
        manager, Kubernetes 1.36.
        """
        found: dict[str, list[tuple[str, ClaimDevice]]] = {}
        claims = {claim.name: claim for claim in pod.claims}
        for name, request in pod.uses.get(container, ()):
            try:
                actual = pod.claim_name(claims[name]) if name in claims else None
            except ClaimError:
                continue
            info = self._claims.get((pod.namespace, actual or ""))
            if info is not None:
                use = f"claim:{name}/{request}" if request else f"claim:{name}"
                found[use] = info.devices(request.partition("/")[0])
        return {use: devices for use, devices in found.items() if devices}

    def of_container(self, pod: ClaimingPod, container: str) -> list[ClaimInfo]:
        """Return the claims that a container uses; raises ClaimError if one is not here."""
        found = []
        for name in pod.requests(container):
            info = self._claims.get((pod.namespace, name))
            if info is None:
                raise ClaimError(f"unable to get information for ResourceClaim {name}")
            found.append(info)
        return found

    def _present(self, namespace: str, name: str) -> ClaimInfo:
        info = self._claims.get((namespace, name))
        if info is None:
            raise ClaimError(
                f"internal error: unable to get claim info for ResourceClaim {name} in "
                f"namespace {namespace}"
            )
        return info

    def _checked(self, pod: ClaimingPod, get_claim: GetClaim) -> list[ResourceClaim]:
        """Return the claims of the pod from the API; change nothing."""
        names = [(pod.claim_name(claim), claim.is_generated) for claim in pod.claims]
        found = []
        for name, is_generated in (*names, (pod.extended_claim, False)):
            if name is None:
                continue
            try:
                claim = get_claim(pod.namespace, name)
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
            if (claim.namespace, claim.name) in self._leaving:
                raise ClaimError(f"ResourceClaim {claim.name} is being unprepared")
            found.append(claim)
        return found

    def _plan_unprepare(self, pod_uid: str, keys: Iterable[Key]) -> ClaimPlan:
        batches: dict[str, list[PreparedClaim]] = {}
        ending = []
        for key in keys:
            info = self._claims.get(key)
            if info is None or key in self._leaving:
                continue
            if len(info.state.pod_uids) > 1:
                left = replace(info.state, pod_uids=info.state.pod_uids - {pod_uid})
                self._claims[key] = replace(info, state=left)
                continue
            ending.append(key)
            for driver in info.state.drivers:
                batches.setdefault(driver, []).append(info.state)
        self._leaving.update(ending)
        return ClaimPlan(UNPREPARE, pod_uid, tuple(ending), calls(UNPREPARE, batches))

    def _write(self) -> None:
        states = tuple(info.state for _, info in sorted(self._claims.items()))
        self._checkpoints.create(files.FILE, files.encode(states))
