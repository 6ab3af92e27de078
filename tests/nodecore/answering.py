"""The other side of the open calls: plugins and drivers that answer at once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from bindery.nodecore.admission.result import Admission
from bindery.nodecore.checkpoints.claims import PreparedClaim
from bindery.nodecore.claims.calls import PREPARE, ClaimPlan, Prepared
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod
from bindery.nodecore.claims.manager import ClaimManager, GetClaim
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.devices.manager import DeviceManager
from bindery.nodecore.devices.state import Ids
from bindery.nodecore.pods import Pod


def joined(ids: Ids) -> bytes:
    """Return the answer of a plugin: the ids."""
    return ",".join(sorted(ids)).encode()


def answer(devices: DeviceManager, uid: str) -> None:
    """Answer the open calls of a pod."""
    devices.record({call: joined(call.ids) for call in devices.calls(uid)})


def admit(of: ContainerManager, pod: Pod) -> Admission:
    """Admit a pod; its plugins answer."""
    found = of.admit(pod)
    if found.admit:
        answer(of.devices, pod.uid)
    return found


class Driver(Protocol):
    """A DRA driver; its calls raise ClaimError when they fail as a whole."""

    def prepare(self, claims: Iterable[PreparedClaim]) -> Mapping[str, Prepared]:
        """Return an answer for each UID."""

    def unprepare(self, claims: Iterable[PreparedClaim]) -> Mapping[str, str]:
        """Return an error, or "", for each UID."""


FindDriver = Callable[[str], Driver]
"""Name -> driver; raises ClaimError if none of this name is registered."""


def prepare(manager: ClaimManager, pod: ClaimingPod, get: GetClaim, find: FindDriver) -> None:
    """Prepare the claims of a pod; raises ClaimError."""
    carry_out(manager, manager.plan_prepare(pod, get), find)


def unprepare(manager: ClaimManager, pod: ClaimingPod, find: FindDriver) -> None:
    """Unprepare the claims of a pod; raises ClaimError."""
    carry_out(manager, manager.plan_unprepare(pod), find)


def carry_out(manager: ClaimManager, plan: ClaimPlan, find: FindDriver) -> None:
    """Make the calls of a plan; raises ClaimError."""
    try:
        for call in plan.calls:
            driver = find(call.driver)
            try:
                if call.method == PREPARE:
                    answers = driver.prepare(call.claims)
                else:
                    answers = {
                        uid: Prepared(error=error)
                        for uid, error in driver.unprepare(call.claims).items()
                    }
            except ClaimError as error:
                raise call.failed(error) from error
            manager.record(call, answers)
        manager.finish(plan)
    except ClaimError:
        manager.give_up(plan)
        raise
