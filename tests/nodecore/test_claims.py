"""The DRA manager: restarts, failures between two drivers, registration of drivers, health."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from bindery.nodecore.checkpoints import claims as files
from bindery.nodecore.checkpoints.claims import ClaimDevice, PreparedClaim
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.claims import health
from bindery.nodecore.claims.calls import Prepared
from bindery.nodecore.claims.drivers import SERVICES, WIPING_DELAY_S, Drivers
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod, PodClaim, ResourceClaim
from bindery.nodecore.claims.health import DeviceHealth, Health, HealthState
from bindery.nodecore.claims.manager import ClaimManager
from bindery.nodecore.errors import RestoreError
from tests.nodecore import answering
from tests.nodecore.nodes import FakeNode, pod


@dataclass
class Driver:
    """A driver that gives each claim one device; it can fail, and `seen` runs in each call."""

    name: str
    prepared: list[str] = field(default_factory=list)
    unprepared: list[str] = field(default_factory=list)
    failure: str = ""
    seen: Callable[[], None] = lambda: None

    def prepare(self, claims: Iterable[PreparedClaim]) -> Mapping[str, Prepared]:
        self.seen()
        uids = [claim.uid for claim in claims]
        self.prepared += uids
        device = ClaimDevice("pool", "gpu-0", None, ("gpu",), (f"{self.name}/gpu=0",))
        return {uid: Prepared((device,), self.failure) for uid in uids}

    def unprepare(self, claims: Iterable[PreparedClaim]) -> Mapping[str, str]:
        uids = [claim.uid for claim in claims]
        self.unprepared += uids
        return dict.fromkeys(uids, self.failure)


class Cluster:
    """Two drivers, a claim of both, and the node."""

    def __init__(self) -> None:
        self.drivers = {"a": Driver("a"), "b": Driver("b")}
        self.claim = ResourceClaim(
            "claim-uid", "claim", "default", None, frozenset({"one", "two"}), ("a", "b")
        )
        self.store = MemoryStore()
        self.node = FakeNode()

    def started(self) -> ClaimManager:
        manager = ClaimManager(CheckpointManager(self.store), self.node, self.drivers.__getitem__)
        manager.start()
        return manager

    def prepare(self, manager: ClaimManager, asking: ClaimingPod) -> None:
        answering.prepare(
            manager, asking, lambda _namespace, _name: self.claim, self.drivers.__getitem__
        )

    def unprepare(self, manager: ClaimManager, asking: ClaimingPod) -> None:
        answering.unprepare(manager, asking, self.drivers.__getitem__)

    def reconcile(self, manager: ClaimManager) -> list[str]:
        """Unprepare the claims of inactive pods; return the pods for which it has failed."""
        failed = []
        for plan in manager.stale():
            try:
                answering.carry_out(manager, plan, self.drivers.__getitem__)
            except ClaimError:
                failed.append(plan.pod_uid)
        return failed


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def using(uid: str) -> ClaimingPod:
    return ClaimingPod(
        uid, uid, "default", (PodClaim("gpu", "claim"),), uses={"app": (("gpu", ""),)}
    )


def test_a_claim_is_prepared_once_for_all_pods(cluster: Cluster) -> None:
    manager = cluster.started()
    cluster.prepare(manager, using("one"))
    cluster.prepare(manager, using("two"))

    assert cluster.drivers["a"].prepared == ["claim-uid"]
    assert manager.cdi_devices(using("two"), "app") == ["a/gpu=0", "b/gpu=0"]


def test_after_a_restart_a_claim_is_prepared_again_with_the_same_devices(cluster: Cluster) -> None:
    cluster.prepare(cluster.started(), using("one"))
    manager = cluster.started()
    before = manager.cdi_devices(using("one"), "app")
    cluster.prepare(manager, using("one"))

    assert cluster.drivers["a"].prepared == ["claim-uid", "claim-uid"]
    assert manager.cdi_devices(using("one"), "app") == before == ["a/gpu=0", "b/gpu=0"]


def test_the_pod_is_in_the_checkpoint_before_drivers_are_called(cluster: Cluster) -> None:
    found = []

    def look() -> None:
        states = files.decode(cluster.store.blobs[files.FILE])
        found.append([one.pod_uids for one in states or ()])

    cluster.drivers["a"].seen = look
    cluster.prepare(cluster.started(), using("one"))

    assert found == [[frozenset({"one"})]]


def test_a_pod_that_died_between_two_drivers_is_unprepared_in_both(cluster: Cluster) -> None:
    cluster.drivers["b"].failure = "out of order"
    with pytest.raises(ClaimError, match="NodePrepareResources failed for ResourceClaim claim"):
        cluster.prepare(cluster.started(), using("one"))
    cluster.drivers["b"].failure = ""

    manager = cluster.started()
    assert manager.might_need_to_unprepare("one")
    assert cluster.reconcile(manager) == []
    assert [one.unprepared for one in cluster.drivers.values()] == [["claim-uid"], ["claim-uid"]]
    assert manager.claims == cluster.started().claims == {}


def test_a_claim_stays_while_another_pod_uses_it(cluster: Cluster) -> None:
    manager = cluster.started()
    cluster.prepare(manager, using("one"))
    cluster.prepare(manager, using("two"))
    cluster.unprepare(manager, using("one"))

    assert cluster.drivers["a"].unprepared == []
    assert not manager.might_need_to_unprepare("one")
    cluster.unprepare(manager, using("two"))
    cluster.unprepare(manager, using("two"))
    assert cluster.drivers["a"].unprepared == ["claim-uid"]


def test_claims_of_active_pods_stay(cluster: Cluster) -> None:
    manager = cluster.started()
    cluster.prepare(manager, using("one"))
    cluster.node.pods = [pod(uid="one")]

    assert cluster.reconcile(manager) == []
    assert [info.key for info in manager.of_container(using("one"), "app")] == [
        ("default", "claim")
    ]


def test_a_failure_to_unprepare_is_reported_and_retried(cluster: Cluster) -> None:
    manager = cluster.started()
    cluster.prepare(manager, using("one"))
    cluster.drivers["a"].failure = "busy"

    assert cluster.reconcile(manager) == ["one"]
    assert manager.might_need_to_unprepare("one")
    cluster.drivers["a"].failure = ""
    assert cluster.reconcile(manager) == []
    assert not manager.might_need_to_unprepare("one")


def test_a_claim_that_is_being_unprepared_cannot_be_used(cluster: Cluster) -> None:
    """Else the driver would have unprepared what the next pod believes to be prepared."""
    manager = cluster.started()
    cluster.prepare(manager, using("one"))
    plan = manager.plan_unprepare(using("one"))

    with pytest.raises(ClaimError, match="ResourceClaim claim is being unprepared"):
        cluster.prepare(manager, using("two"))
    manager.give_up(plan)
    cluster.prepare(manager, using("two"))
    cluster.unprepare(manager, using("two"))
    assert cluster.drivers["a"].unprepared == []
    answering.carry_out(manager, manager.plan_unprepare(using("one")), cluster.drivers.__getitem__)
    assert manager.claims == {}


def test_pods_with_a_plan_that_has_not_ended_are_left_alone(cluster: Cluster) -> None:
    manager = cluster.started()
    plan = manager.plan_prepare(using("one"), lambda _namespace, _name: cluster.claim)

    assert manager.stale(busy={"one"}) == []
    assert [one.pod_uid for one in manager.stale()] == [plan.pod_uid]


def test_an_answer_for_a_claim_that_is_gone_is_refused(cluster: Cluster) -> None:
    manager = cluster.started()
    plan = manager.plan_prepare(using("one"), lambda _namespace, _name: cluster.claim)
    cluster.unprepare(manager, using("one"))

    with pytest.raises(ClaimError, match="unable to get claim info for ResourceClaim claim"):
        manager.record(plan.calls[0], {"claim-uid": Prepared()})


def test_a_claim_of_another_owner_is_refused(cluster: Cluster) -> None:
    generated = ClaimingPod(
        "one", "one", "default", (PodClaim("gpu", is_generated=True),), {"gpu": "claim"}
    )

    with pytest.raises(ClaimError, match="was not created for pod default/one"):
        cluster.prepare(cluster.started(), generated)
    missing = ClaimingPod("one", "one", "default", (PodClaim("gpu", is_generated=True),))
    with pytest.raises(ClaimError, match="ResourceClaim not created yet"):
        cluster.prepare(cluster.started(), missing)


def test_an_invalid_checkpoint_prevents_the_start(cluster: Cluster) -> None:
    cluster.store.write(files.FILE, b'{"Data":"{}","Checksum":1}')

    with pytest.raises(RestoreError, match="checkpoint is corrupted"):
        cluster.started()


def test_the_newest_connected_instance_of_a_driver_is_called() -> None:
    drivers = Drivers(lambda: 0.0)
    drivers.add("gpu", "/old.sock", SERVICES)
    drivers.add("gpu", "/new.sock", ["v2.DRAPlugin", "v1beta1.DRAPlugin"])

    assert drivers.find("gpu").endpoint == "/new.sock"
    drivers.set_connected("gpu", "/old.sock", is_connected=True)
    assert drivers.find("gpu").endpoint == "/old.sock"
    drivers.set_connected("gpu", "/new.sock", is_connected=True)
    assert drivers.find("gpu").service == "v1beta1.DRAPlugin"


def test_drivers_that_cannot_be_called_are_refused() -> None:
    drivers = Drivers(lambda: 0.0)
    with pytest.raises(ClaimError, match="empty list of supported gRPC services"):
        drivers.add("gpu", "/a.sock", [])
    with pytest.raises(ClaimError, match="none of services supported by the plugin"):
        drivers.add("gpu", "/a.sock", ["1.0.0"])
    drivers.add("gpu", "/a.sock", SERVICES)
    with pytest.raises(ClaimError, match=r"endpoint /a\.sock already registered"):
        drivers.add("gpu", "/a.sock", SERVICES)
    with pytest.raises(ClaimError, match="DRA driver other is not registered"):
        drivers.find("other")


def test_slices_are_deleted_after_a_driver_was_absent_for_long() -> None:
    now = 0.0
    drivers = Drivers(lambda: now)
    drivers.add("gpu", "/a.sock", SERVICES)
    drivers.set_connected("gpu", "/a.sock", is_connected=True)
    assert drivers.to_wipe() == []

    drivers.remove("gpu", "/a.sock")
    now = WIPING_DELAY_S - 1
    assert drivers.to_wipe() == []
    now = WIPING_DELAY_S
    assert drivers.to_wipe() == ["gpu"]
    assert drivers.to_wipe() == []


@pytest.mark.parametrize(
    ("request_name", "shown"),
    [("", True), ("gpu", True), ("gpu/large", True), ("other", False)],
)
def test_a_status_has_the_health_of_the_devices_of_the_request_that_a_container_uses(
    cluster: Cluster, request_name: str, shown: bool
) -> None:
    manager = cluster.started()
    pod = replace(using("one"), uses={"app": (("gpu", request_name), ("absent", ""))})
    cluster.prepare(manager, using("one"))
    state, _ = health.reported(
        HealthState(), "a", [DeviceHealth("pool", "gpu-0", Health.UNHEALTHY)], 0
    )

    found = manager.devices_by_use(pod, "app")

    use = f"claim:gpu/{request_name}" if request_name else "claim:gpu"
    assert [*found] == ([use] if shown else [])
    healths = health.shown(state, found.get(use, ()), 0)
    assert healths == ({"a/gpu=0": "Unhealthy", "b/gpu=0": "Unknown"} if shown else {})
    assert manager.devices_by_use(pod, "another") == {}


def test_a_claim_that_is_not_generated_yet_has_no_health(cluster: Cluster) -> None:
    manager = cluster.started()
    pod = replace(using("one"), claims=(PodClaim("gpu", None, is_generated=True),))

    assert manager.devices_by_use(pod, "app") == {}


def test_devices_without_a_cdi_id_are_shown_by_their_names() -> None:
    devices = [("driver", ClaimDevice("pool", "gpu-0")), ("driver", ClaimDevice("pool", "gpu-1"))]

    assert health.shown(HealthState(), devices, 0) == {
        "driver/pool/gpu-0": "Unknown",
        "driver/pool/gpu-1": "Unknown",
    }


def test_a_health_report_is_valid_until_it_expires() -> None:
    healthy = DeviceHealth("pool", "gpu-0", Health.HEALTHY, "fine")
    slow = DeviceHealth("pool", "gpu-1", Health.UNHEALTHY, timeout_s=100)
    state, changed = health.reported(HealthState(), "driver", [healthy, slow], 0)
    assert len(changed) == 2
    assert health.reported(state, "driver", [healthy, slow], 10)[1] == []

    assert state.of("driver", "pool", "gpu-0", 30).health == Health.HEALTHY
    assert state.of("driver", "pool", "gpu-0", 31).health == Health.UNKNOWN
    assert state.of("driver", "pool", "gpu-1", 31).health == Health.UNHEALTHY
    state, changed = health.reported(state, "driver", [], 31)
    assert [(one.device, one.health, one.message) for one in changed] == [
        ("gpu-0", Health.UNKNOWN, "")
    ]
    assert state.without("driver") == HealthState()


def test_messages_of_drivers_are_truncated() -> None:
    assert health.truncated("a" * 1024) == "a" * 1024
    assert health.truncated("a" * 1025) == "a" * 1021 + "..."
