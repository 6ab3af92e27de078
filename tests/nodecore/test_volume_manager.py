"""Operations, and the desired and actual state of volumes and plugins."""

from dataclasses import dataclass, field, replace
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.operations import (
    AlreadyPendingError,
    Backoff,
    BackoffError,
    OperationKey,
    PendingOperations,
)
from bindery.nodecore.plugins import (
    ActualPlugins,
    DesiredPlugins,
    PluginError,
    Registered,
    check_type,
    endpoint_of,
    is_candidate,
)
from bindery.nodecore.plugins import plan as plan_plugins
from bindery.nodecore.volumes.actual import (
    ActualVolumes,
    Failure,
    Found,
    MountState,
    VolumeStateError,
)
from bindery.nodecore.volumes.desired import DesiredVolumes
from bindery.nodecore.volumes.manager import VolumeManager, Waiting
from bindery.nodecore.volumes.populator import (
    PodVolumes,
    Volume,
    VolumeClaim,
    VolumeError,
    WantedVolume,
    volume_spec,
)
from bindery.nodecore.volumes.reconciler import Readiness, Step, StepKind, plan
from bindery.nodecore.volumes.specs import (
    VolumeSpec,
    csi_attachment,
    csi_global_mount,
    pod_volume_path,
    unique_name,
)

DISK = VolumeSpec(
    "pv-1", "kubernetes.io/csi", "driver^handle", is_attachable=True, is_device_mountable=True
)
SECRET = VolumeSpec("token", "kubernetes.io/secret", requires_remount=True)
DISK_NAME = "kubernetes.io/csi/driver^handle"
SECRET_NAME = "kubernetes.io/secret/uid-token"


class Clock:
    """A clock that is set."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class FakeCluster:
    """Claims and volumes in memory."""

    claims: dict[str, VolumeClaim] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)

    def claim(self, namespace: str, name: str) -> VolumeClaim:  # noqa: ARG002
        if name not in self.claims:
            raise VolumeError("failed to fetch PVC from API server: not found")
        return self.claims[name]

    def volume(self, name: str) -> Volume:
        return self.volumes[name]


CLUSTER = FakeCluster(
    {"data": VolumeClaim("claim-uid", "pv-1", size_bytes=10)}, {"pv-1": Volume(DISK, "claim-uid")}
)
POD = PodVolumes("uid", "pod", "default", [WantedVolume("disk", claim="data")])


def test_operations_on_one_key_run_one_after_the_other() -> None:
    pending = PendingOperations(Clock())
    whole, first, second = (OperationKey("volume", pod) for pod in ("", "a", "b"))
    pending.start(first, "mount")
    pending.start(second, "mount")

    for key in (first, whole):
        with pytest.raises(AlreadyPendingError, match="is already executing"):
            pending.start(key, "unmount")
    assert pending.is_pending(whole)
    pending.finish(first)
    pending.finish(second)
    assert not pending.is_pending(whole)
    pending.start(whole, "unmount device")
    assert not pending.may_start(first, "mount")
    pending.start(OperationKey("other"), "mount")
    pending.start(OperationKey(""), "attach")
    pending.start(OperationKey(""), "attach")


def test_a_failed_operation_waits_twice_as_long_each_time() -> None:
    clock = Clock()
    pending = PendingOperations(clock)
    key = OperationKey("volume")
    waits = []
    for _ in range(10):
        pending.start(key, "mount")
        pending.finish(key, "broken")
        with pytest.raises(BackoffError, match='Last error: "broken"'):
            pending.start(key, "mount")
        before = clock.now_s
        while not pending.may_start(key, "mount"):
            clock.now_s += 0.25
        waits.append(clock.now_s - before - 0.25)

    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]


def test_another_operation_does_not_wait_for_the_failed_one() -> None:
    pending = PendingOperations(Clock())
    key = OperationKey("volume", "pod")
    pending.start(key, "mount")
    pending.finish(key, "broken")

    pending.start(key, "unmount")
    pending.finish(key, "broken")
    with pytest.raises(BackoffError):
        pending.start(key, "unmount")
    assert Backoff().after("x", 1.0) == Backoff(1.0, 0.5, "x")


def test_a_volume_has_one_name_for_all_pods_if_the_node_has_it_once() -> None:
    assert unique_name(DISK, "uid") == DISK_NAME
    assert unique_name(SECRET, "uid") == SECRET_NAME
    assert pod_volume_path("uid", "kubernetes.io/csi", "pv-1") == (
        "pods/uid/volumes/kubernetes.io~csi/pv-1"
    )
    assert csi_global_mount("driver", "handle").startswith("plugins/kubernetes.io/csi/driver/")
    assert csi_attachment("driver", "handle", "node").startswith("csi-")


def kinds(steps: list[Step]) -> list[str]:
    return [step.kind.name for step in steps]


def manager(cluster: FakeCluster = CLUSTER, *, by_controller: bool = True) -> VolumeManager:
    return VolumeManager(cluster, Clock(), is_attached_by_controller=by_controller)


def test_a_volume_is_attached_mounted_and_unmounted() -> None:
    of = manager()

    assert of.run_once([POD], sources_ready=True) == []  # the node's status names it first
    assert of.volumes_in_use() == [DISK_NAME]
    of.mark_volumes_as_reported_in_use([DISK_NAME])
    assert kinds(of.run_once([POD], sources_ready=True)) == ["VERIFY_ATTACHED"]
    assert of.waiting(POD) == Waiting(("disk",), ("disk",))
    of.actual.mark_volume_as_attached(DISK_NAME, DISK, "/dev/x")
    (mount,) = of.run_once([POD], sources_ready=True)
    assert (mount.kind, mount.key) == (StepKind.MOUNT, OperationKey(DISK_NAME))
    of.pending.start(mount.key, mount.kind)
    assert of.run_once([POD], sources_ready=True) == []
    of.actual.mark_device_as_mounted(DISK_NAME)
    of.actual.mark_volume_as_mounted(DISK_NAME, "uid", DISK)
    of.pending.finish(mount.key)
    assert of.run_once([POD], sources_ready=True) == []
    assert of.waiting(POD) is None
    assert of.mounted_volumes_for_pod("uid") == {"disk": DISK_NAME}
    assert of.reconciler_states_has_been_synced()

    over = replace(POD, is_over=True)
    assert kinds(of.run_once([over], sources_ready=True)) == ["UNMOUNT"]
    of.actual.mark_volume_as_unmounted(DISK_NAME, "uid")
    assert kinds(of.run_once([], sources_ready=True)) == ["UNMOUNT_DEVICE"]
    of.actual.mark_device_as_unmounted(DISK_NAME)
    assert of.run_once([], sources_ready=True) == []
    assert not of.volume_is_attached(DISK_NAME)


def test_the_node_attaches_itself_without_a_controller() -> None:
    of = manager(by_controller=False)

    assert kinds(of.run_once([POD], sources_ready=True)) == ["ATTACH"]
    of.actual.mark_volume_as_attached(DISK_NAME, DISK)
    of.desired.delete_pod_from_volume("uid", DISK_NAME)
    assert kinds(of.run_once([], sources_ready=True)) == ["DETACH"]


def test_nothing_is_unmounted_before_all_pods_are_known() -> None:
    of = manager()
    of.actual.mark_volume_as_reconstructed(DISK_NAME, "gone", DISK)

    of.waits_for_node_status = frozenset([DISK_NAME])
    assert of.run_once([], sources_ready=False) == []
    assert of.run_once([], sources_ready=True) == []
    assert not of.reconciler_states_has_been_synced()
    of.waits_for_node_status = frozenset()
    assert kinds(of.run_once([], sources_ready=True)) == ["UNMOUNT"]
    assert of.has_possibly_mounted_volumes("gone")
    assert of.mounted_volumes_for_pod("gone") == {}


def test_a_reconstructed_volume_of_a_pod_is_remounted() -> None:
    of = manager()
    of.actual.mark_volume_as_reconstructed(DISK_NAME, "uid", DISK)

    assert kinds(of.run_once([POD], sources_ready=True)) == ["MOUNT"]


def test_a_changed_pod_gets_its_secrets_remounted() -> None:
    of = manager()
    pod = replace(POD, volumes=[WantedVolume("token", spec=SECRET)])
    of.run_once([pod], sources_ready=True)
    of.actual.mark_volume_as_attached(SECRET_NAME, SECRET)
    of.actual.mark_volume_as_mounted(SECRET_NAME, "uid", SECRET)
    assert of.run_once([pod], sources_ready=True) == []

    of.populator.reprocess_pod("uid")
    (step,) = of.run_once([pod], sources_ready=True)

    assert (step.kind, step.key) == (StepKind.REMOUNT, OperationKey(SECRET_NAME, "uid"))


def test_a_resized_volume_is_expanded() -> None:
    growing = replace(DISK, is_expandable=True, size_bytes=20)
    of = manager(FakeCluster(CLUSTER.claims, {"pv-1": Volume(growing, "claim-uid")}))
    of.actual.mark_volume_as_attached(DISK_NAME, growing)
    of.actual.mark_volume_as_mounted(DISK_NAME, "uid", growing)

    assert kinds(of.run_once([POD], sources_ready=True)) == ["EXPAND"]
    of.actual.mark_expansion_failed(DISK_NAME)
    assert of.run_once([POD], sources_ready=True) == []


def test_a_conflicting_selinux_label_is_an_error_of_the_pod() -> None:
    labelled = replace(DISK, selinux_label="b")
    of = manager(FakeCluster(CLUSTER.claims, {"pv-1": Volume(labelled, "claim-uid")}))
    of.actual.mark_volume_as_attached(DISK_NAME, DISK)
    of.actual.mark_volume_as_mounted(DISK_NAME, "other", replace(DISK, selinux_label="a"))

    assert kinds(of.run_once([POD], sources_ready=False)) == []
    waiting = of.waiting(POD)
    assert waiting is not None
    assert "waiting for unmount of volume" in waiting.message


class Wanted(TypedDict, total=False):
    """How a pod uses a volume: fields of a `WantedVolume`."""

    is_mounted: bool
    is_device: bool


@pytest.mark.parametrize(
    ("claim", "volume", "wanted", "message"),
    [
        (None, None, {}, "error processing PVC default/data: failed to fetch PVC"),
        (VolumeClaim("c", "pv", is_deleted=True), None, {}, "PVC is being deleted"),
        (VolumeClaim("c", "pv", is_bound=False), None, {}, "PVC is not bound"),
        (VolumeClaim("c"), None, {}, "PVC has empty pvc.Spec.VolumeName"),
        (VolumeClaim("c", "pv"), Volume(DISK), {}, "found PV object pv but it has a nil"),
        (
            VolumeClaim("c", "pv"),
            Volume(DISK, "d"),
            {},
            "ClaimRef.UID d does not point to claim.UID c",
        ),
        (
            VolumeClaim("c", "pv"),
            Volume(replace(DISK, is_block=True), "c"),
            {},
            "volume disk has volumeMode Block, but is specified in volumeMounts",
        ),
        (
            VolumeClaim("c", "pv"),
            Volume(DISK, "c"),
            {"is_mounted": False, "is_device": True},
            "volume disk has volumeMode Filesystem, but is specified in volumeDevices",
        ),
    ],
)
def test_claims_that_cannot_be_used_are_errors_of_the_pod(
    claim: VolumeClaim | None, volume: Volume | None, wanted: Wanted, message: str
) -> None:
    cluster = FakeCluster(
        {"data": claim} if claim else {}, {"pv": volume} if volume is not None else {}
    )
    pod = replace(POD, volumes=[replace(POD.volumes[0], **wanted)])
    of = manager(cluster)

    of.run_once([pod], sources_ready=True)

    waiting = of.waiting(pod)
    assert waiting is not None
    assert message in waiting.errors[0]
    assert of.run_once([pod], sources_ready=True) == []


def test_an_ephemeral_claim_belongs_to_its_pod() -> None:
    wanted = WantedVolume("scratch", is_ephemeral=True)
    cluster = FakeCluster(
        {"pod-scratch": VolumeClaim("c", "pv", owner_uid="uid")}, {"pv": Volume(DISK, "c")}
    )

    assert volume_spec(POD, wanted, cluster)[0] == DISK
    with pytest.raises(VolumeError, match="was not created for pod default/pod"):
        volume_spec(replace(POD, uid="other"), wanted, cluster)


def test_volumes_that_no_container_uses_are_not_mounted() -> None:
    of = manager()

    of.run_once(
        [replace(POD, volumes=[replace(POD.volumes[0], is_mounted=False)])], sources_ready=True
    )

    assert of.desired.volumes_to_mount() == []


def test_terminating_pods_are_processed_only_after_a_restart() -> None:
    of = manager()
    ending = replace(POD, is_terminating=True)
    of.run_once([ending], sources_ready=False)
    assert len(of.desired.volumes_to_mount()) == 1

    later = manager()
    later.run_once([], sources_ready=True)
    later.run_once([ending], sources_ready=True)
    assert later.desired.volumes_to_mount() == []


def test_gids_of_volumes_are_supplemental_groups_of_their_pods() -> None:
    of = manager()
    of.actual.mark_volume_as_attached(DISK_NAME, DISK)
    for uid, gid in (("uid", "2000"), ("other", "3000")):
        of.actual.mark_volume_as_mounted(DISK_NAME, uid, replace(DISK, gid=gid))

    assert of.extra_supplemental_groups("uid") == [2000]


@pytest.mark.parametrize(
    ("gid", "groups"), [("777", [777]), ("555", []), ("a", []), ("", []), ("+7", [7]), ("1_0", [])]
)
def test_malformed_gids_and_gids_of_the_pod_are_left_out(gid: str, groups: list[int]) -> None:
    of = manager()
    of.actual.mark_volume_as_attached(DISK_NAME, DISK)
    of.actual.mark_volume_as_mounted(DISK_NAME, "uid", replace(DISK, gid=gid))

    assert of.extra_supplemental_groups("uid", [555]) == groups


def test_a_pod_waits_for_unknown_volumes() -> None:
    local = VolumeSpec("vol2", "rbd", "image")
    volumes = [WantedVolume(name, spec=local) for name in ("vol2", "vol02")]
    volumes += [WantedVolume("vol3"), WantedVolume("vol03"), WantedVolume("idle", is_mounted=False)]
    pod = replace(POD, volumes=volumes)
    of = manager()
    for name in ("vol2", "vol02"):
        spec = replace(local, name=name, plugin_volume=name, is_attachable=True)
        of.desired.add_pod_to_volume(pod.uid, spec, name)

    waiting = of.waiting(pod)

    assert waiting is not None
    assert waiting.message == (
        "unmounted volumes=[vol02 vol03 vol2 vol3], unattached volumes=[vol02 vol2], "
        "failed to process volumes=[vol03 vol3]: context deadline exceeded"
    )


def test_errors_of_a_pod_with_all_volumes_mounted_are_cleared() -> None:
    of = manager()
    of.run_once([POD], sources_ready=True)
    of.actual.mark_volume_as_attached(DISK_NAME, DISK)
    of.actual.mark_volume_as_mounted(DISK_NAME, "uid", DISK)
    of.desired.add_error_to_pod("uid", "broken")

    assert of.waiting(POD) is None
    assert of.desired.pods_with_errors() == []


def test_an_attached_volume_is_in_use_until_it_is_detached() -> None:
    of = manager()
    of.actual.mark_volume_as_attached(DISK_NAME, DISK)
    of.actual.mark_volume_as_attached(SECRET_NAME, SECRET)

    assert of.volumes_in_use() == [DISK_NAME]
    of.actual.mark_volume_as_detached(DISK_NAME)
    assert of.volumes_in_use() == []


def test_pods_with_mounted_volumes_are_listed() -> None:
    of = manager()
    of.actual.mark_volume_as_attached(DISK_NAME, DISK)
    of.actual.mark_volume_as_mounted(DISK_NAME, "uid", DISK)
    of.actual.mark_volume_as_mounted(DISK_NAME, "unsure", DISK, MountState.UNCERTAIN)

    assert of.still_mounted("uid", "unsure", "other") == {"uid": [DISK_NAME]}


def test_pods_with_conflicting_labels_get_an_error() -> None:
    cluster = FakeCluster(CLUSTER.claims, {"pv-1": Volume(DISK, "claim-uid")})
    of = manager(cluster)
    of.run_once([POD], sources_ready=True)
    cluster.volumes["pv-1"] = Volume(replace(DISK, selinux_label="b"), "claim-uid")

    of.run_once([POD, replace(POD, uid="other")], sources_ready=True)

    assert of.desired.pop_pod_errors("other") == [
        'conflicting SELinux labels of volume pv-1: "" and "b"'
    ]


def test_a_volume_in_use_is_not_detached() -> None:
    actual = ActualVolumes()
    with pytest.raises(VolumeStateError, match="exists in the list of attached volumes"):
        actual.mark_volume_as_mounted(DISK_NAME, "uid", DISK)
    actual.mark_volume_as_attached(DISK_NAME, DISK)
    actual.mark_volume_as_mounted(DISK_NAME, "uid", DISK)
    with pytest.raises(VolumeStateError, match="still has 1 mountedPods"):
        actual.mark_volume_as_detached(DISK_NAME)


def test_a_failed_mount_is_removed_unless_it_was_reconstructed() -> None:
    actual = ActualVolumes()
    actual.mark_volume_as_attached(DISK_NAME, DISK)
    actual.mark_volume_as_mounted(DISK_NAME, "uid", DISK, MountState.UNCERTAIN)
    actual.mark_mount_failed(DISK_NAME, "uid", DISK)
    assert actual.is_removed("uid", DISK_NAME)

    actual.mark_volume_as_reconstructed(DISK_NAME, "uid", DISK)
    actual.mark_mount_failed(DISK_NAME, "uid", DISK)
    assert not actual.is_removed("uid", DISK_NAME)
    assert actual.pod_in_volume("uid", DISK_NAME) == Found.NOT_MOUNTED


def test_at_most_ten_errors_of_a_pod_are_kept() -> None:
    desired = DesiredVolumes()
    for number in range(20):
        desired.add_error_to_pod("uid", f"error {number % 15:02}")

    assert len(desired.pop_pod_errors("uid")) == 10
    assert desired.pods_with_errors() == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12))
def test_desired_volumes_are_the_volumes_of_the_remaining_pods(
    changes: list[tuple[str, bool]],
) -> None:
    desired, left = DesiredVolumes(), set()
    for uid, is_added in changes:
        if is_added:
            desired.add_pod_to_volume(uid, DISK, "disk")
            left.add(uid)
        else:
            desired.delete_pod_from_volume(uid, DISK_NAME)
            left.discard(uid)

    assert {one.pod_uid for one in desired.volumes_to_mount()} == left
    assert desired.volume_exists(DISK_NAME) == bool(left)


def test_plugins_are_registered_replaced_and_unregistered() -> None:
    uuids = iter("abc")
    clock = Clock()
    desired, actual, pending = (
        DesiredPlugins(clock, lambda: next(uuids)),
        ActualPlugins(),
        PendingOperations(clock),
    )
    desired.add_or_update("/p.sock")
    (register,) = plan_plugins(desired, actual, pending)
    assert (register.is_register, register.socket.uuid) == (True, "a")
    pending.start(register.key, register.name)
    assert plan_plugins(desired, actual, pending) == []
    actual.add(Registered(register.socket, "CSIPlugin", "driver", "/p.sock"))
    pending.finish(register.key)
    assert plan_plugins(desired, actual, pending) == []

    desired.add_or_update("/p.sock")  # the plugin has made its socket once more
    (leave,) = plan_plugins(desired, actual, pending)
    assert not leave.is_register
    actual.remove("/p.sock")
    assert [step.is_register for step in plan_plugins(desired, actual, pending)] == [True]
    desired.remove("/p.sock")
    assert plan_plugins(desired, actual, pending) == []
    assert not desired.exists("/p.sock")


def test_invalid_plugins_are_refused() -> None:
    check_type("DRAPlugin", {"DRAPlugin": None}, "/p.sock")
    with pytest.raises(PluginError, match="no handler registered for plugin type: Other"):
        check_type("Other", {"DRAPlugin": None}, "/p.sock")
    with pytest.raises(PluginError, match="socket path is empty"):
        DesiredPlugins(Clock(), str).add_or_update("")
    assert [is_candidate(name, is_socket=True) for name in (".p.sock", "p.sock")] == [False, True]
    assert (endpoint_of("/p.sock", ""), endpoint_of("/p.sock", "/e")) == ("/p.sock", "/e")


ACTIONS = st.tuples(
    st.sampled_from(["pod", "no pod", "begin", "end", "fail", "look", "attached", "size"]),
    st.sampled_from(["a", "b", "c"]),
)


@given(st.lists(ACTIONS, max_size=40))
def test_a_round_that_looks_at_changes_only_has_the_steps_of_a_whole_round(
    actions: list[tuple[str, str]],
) -> None:
    clock = Clock()
    manager = VolumeManager(CLUSTER, clock)
    pods: dict[str, PodVolumes] = {}
    begun: dict[str, Step] = {}
    for action, uid in actions:
        clock.now_s += 1
        if action == "pod":
            wanted = [WantedVolume("disk", claim="data"), WantedVolume("token", spec=SECRET)]
            pods[uid] = PodVolumes(uid, uid, "default", wanted)
        elif action == "no pod":
            pods.pop(uid, None)
        elif action == "look":
            manager.populator.reprocess_pod(uid)
        elif action == "attached":
            manager.mark_volumes_as_reported_in_use([DISK_NAME])
        elif action == "size":
            manager.desired.update_size(DISK_NAME, int(clock.now_s))
        elif uid in begun and action in ("end", "fail"):
            carry_out(manager, begun.pop(uid), has_failed=action == "fail")
        manager.populator.run_once(list(pods.values()), sources_ready=True)
        readiness = Readiness(manager.populator.has_added_pods)
        whole = plan(manager.desired, manager.actual, manager.pending, readiness)

        steps = manager.run_once(list(pods.values()), sources_ready=True)
        assert steps == [step for step in whole if step.kind != StepKind.MARK_DETACHED]
        may_start = manager.pending.may_start
        startable = [step for step in steps if may_start(step.key, step.kind)]
        if action == "begin" and uid not in begun and startable:
            begun[uid] = startable[0]
            manager.pending.start(startable[0].key, startable[0].kind)


def carry_out(manager: VolumeManager, step: Step, *, has_failed: bool) -> None:
    """Record the end of a step as its operation does."""
    actual, key = manager.actual, step.key
    if has_failed:
        if step.kind in (StepKind.MOUNT, StepKind.REMOUNT):
            actual.mark_mount_failed(step.volume, step.pod_uid, step.spec, Failure.UNCERTAIN)
        manager.pending.finish(key, "broken")
        return
    if step.kind == StepKind.VERIFY_ATTACHED:
        actual.mark_volume_as_attached(step.volume, step.spec)
    elif step.kind in (StepKind.MOUNT, StepKind.REMOUNT):
        actual.mark_volume_as_mounted(step.volume, step.pod_uid, step.spec)
    elif step.kind == StepKind.UNMOUNT:
        actual.mark_volume_as_unmounted(step.volume, step.pod_uid)
    elif step.kind == StepKind.UNMOUNT_DEVICE:
        actual.mark_device_as_unmounted(step.volume)
    manager.pending.finish(key)
