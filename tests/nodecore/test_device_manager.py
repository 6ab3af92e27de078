"""The device manager: hints, near and preferred devices, reuse, restarts, capacity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.checkpoints import devices as files
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.devices import hints
from bindery.nodecore.devices.allocation import (
    ByAffinity,
    PluginDeviceRequest,
    choose,
    devices_to_allocate,
    filter_by_affinity,
)
from bindery.nodecore.devices.calls import NO_OPTIONS, PluginOptions
from bindery.nodecore.devices.manager import DeviceManager
from bindery.nodecore.devices.options import DeviceNode, Mount, RunOptions, merged
from bindery.nodecore.devices.state import Device, DeviceState, Held, Ids, by_node
from bindery.nodecore.errors import AllocationError, CorruptCheckpointError
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.topology.hints import Hint
from tests.nodecore.answering import answer, joined
from tests.nodecore.nodes import CountingStore, FakeNode, container, pod

GPU = "vendor.com/gpu"
ANY = Hint(None, preferred=False)


def gpus(*places: tuple[int, ...] | None) -> dict[str, Device]:
    """Return devices gpu-0, gpu-1, ... on the NUMA nodes."""
    return {f"gpu-{number}": Device(f"gpu-{number}", place) for number, place in enumerate(places)}


def ids(*numbers: int) -> Ids:
    return frozenset(f"gpu-{number}" for number in numbers)


def state_of(*places: tuple[int, ...] | None) -> DeviceState:
    return DeviceState().with_plugin(GPU, gpus(*places).values())


def asking(count: int) -> Pod:
    return pod(Container("app", {GPU: count}, {GPU: count}))


FOUR = ((0,), (0,), (1,), (1,))


@pytest.mark.parametrize(
    ("places", "held", "count", "expected"),
    [
        (FOUR, (), 1, [(0b01, True), (0b10, True), (0b11, False)]),
        (FOUR, (0,), 2, [(0b10, True), (0b11, False)]),
        (FOUR, (), 3, [(0b11, True)]),
        (FOUR, (0, 2), 3, []),
        (((0, 1), (0, 1)), (), 2, [(0b01, True), (0b10, True), (0b11, False)]),
        (((0,), None), (), 1, [(0b01, True)]),
        (((0,), (7,)), (), 1, [(0b01, True)]),  # the machine has no NUMA node 7
        ((None, None), (), 1, None),
    ],
)
def test_hints_list_the_numa_nodes_with_devices(
    places: tuple[tuple[int, ...] | None, ...],
    held: tuple[int, ...],
    count: int,
    expected: list[tuple[int, bool]] | None,
) -> None:
    state = state_of(*places)
    if held:
        state = state.with_held("other", "app", GPU, Held(by_node(gpus(*places), ids(*held)), b""))
    wanted = asking(count)

    found = hints.container_hints(state, {}, (0, 1), wanted, wanted.containers[0])[GPU]

    pairs = None if found is None else [(hint.mask, hint.preferred) for hint in found]
    assert pairs == expected
    assert hints.pod_hints(state, (0, 1), wanted)[GPU] == found


def test_hints_of_an_allocated_container_point_to_its_devices() -> None:
    state = state_of(*FOUR).with_held("pod", "app", GPU, Held({1: ("gpu-2",)}, b""))

    assert hints.pod_hints(state, (0, 1), asking(1)) == {
        GPU: [Hint(0b10, preferred=True), Hint(0b11, preferred=False)]
    }
    assert hints.pod_hints(state, (0, 1), asking(2)) == {GPU: []}


def test_resources_that_no_plugin_offers_have_no_hints() -> None:
    assert hints.pod_hints(DeviceState(), (0, 1), asking(1)) == {}


def test_devices_are_grouped_by_their_numa_node() -> None:
    devices = gpus((0,), (0, 1), (1,), None, (1,))

    assert filter_by_affinity(devices, frozenset(devices), 0b01) == ByAffinity(
        ids(0, 1), ids(2, 4), ids(3)
    )
    assert filter_by_affinity(devices, frozenset(devices), None) == ByAffinity(
        without=frozenset(devices)
    )


def test_a_device_that_the_plugin_no_longer_lists_has_no_affinity() -> None:
    found = filter_by_affinity({"a": Device("a", (0,))}, frozenset("ab"), mask=1)

    assert found == ByAffinity(aligned=frozenset("a"), without=frozenset("b"))


@pytest.mark.parametrize(
    ("count", "mask", "reusable", "preferred", "expected"),
    [
        (2, None, (), None, (0, 1)),
        (2, 0b10, (), None, (2, 3)),
        (3, 0b10, (), None, (0, 2, 3)),
        (1, 0b10, (), (0, 3), (3,)),  # of what the plugin prefers, only what is near
        (3, 0b10, (), (1, 2, 3), (1, 2, 3)),
        (1, 0b10, (0,), None, (0,)),  # an init container's device comes first
        (2, 0b10, (0,), None, (0, 2)),
    ],
)
def test_aligned_and_preferred_devices_are_chosen(
    count: int,
    mask: int | None,
    reusable: tuple[int, ...],
    preferred: tuple[int, ...] | None,
    expected: tuple[int, ...],
) -> None:
    request = PluginDeviceRequest("pod", "app", GPU, count, mask, ids(*reusable))
    available = ids(0, 1, 2, 3) - ids(*reusable)

    found = choose(
        gpus(*FOUR),
        available,
        request,
        None if preferred is None else lambda *_: ids(*preferred),
    )

    assert found == ids(*expected)


@pytest.mark.parametrize(
    ("state", "count", "message"),
    [
        (DeviceState(), 1, f"cannot allocate unregistered device {GPU}"),
        (DeviceState(healthy={GPU: frozenset()}), 1, "no healthy devices present"),
        (state_of(*FOUR), 5, f"unavailable for {GPU}. Requested: 5, Available: 4"),
        (
            state_of(*FOUR).with_held("pod", "app", GPU, Held({0: ("gpu-0",)}, b"")),
            2,
            f'pod "pod" container "app" changed request for resource "{GPU}" from 1 to 2',
        ),
        (
            state_of(*FOUR).with_held("pod", "app", GPU, Held({0: ("gone",)}, b"")),
            1,
            "previously allocated devices are no longer healthy",
        ),
    ],
)
def test_devices_that_cannot_be_allocated_are_refused(
    state: DeviceState, count: int, message: str
) -> None:
    with pytest.raises(AllocationError) as error:
        devices_to_allocate(state, PluginDeviceRequest("pod", "app", GPU, count))

    assert message in str(error.value)


def test_a_container_that_ran_before_a_restart_needs_nothing() -> None:
    request = PluginDeviceRequest("pod", "app", GPU, 1)

    assert devices_to_allocate(DeviceState(), request, is_running=True) == frozenset()


class Clock:
    """A clock that is set."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def manager(node: FakeNode, store: CountingStore, clock: Clock | None = None) -> DeviceManager:
    made = DeviceManager((0, 1), node, node, CheckpointManager(store), clock or Clock())
    made.start()
    return made


def test_allocated_devices_survive_a_restart() -> None:
    node, store = FakeNode([asking(2)]), CountingStore()
    first = manager(node, store)
    first.register(GPU)
    first.update(GPU, gpus(*FOUR).values())
    first.allocate(node.pods[0], node.pods[0].containers[0])
    assert [call.ids for call in first.calls("pod")] == [ids(0, 1)]
    answer(first, "pod")
    first.allocate(node.pods[0], node.pods[0].containers[0])

    again = manager(node, store)

    assert first.calls("pod") == []
    assert again.state.held == first.state.held
    assert (again.capacity().capacity, again.capacity().allocatable) == ({GPU: 0}, {GPU: 0})
    assert again.sanitized("pod", {}) == {GPU: 2}
    assert again.sanitized("other", {"cpu": 1}) == {"cpu": 1}
    with pytest.raises(AllocationError, match="no healthy devices present"):
        again.allocate(asking(2), Container("other", limits={GPU: 1}))


def test_a_checkpoint_without_devices_is_written_as_in_go() -> None:
    """A slice to which nothing was appended is null, not an empty list."""
    store = CountingStore()
    manager(FakeNode(), store).update(GPU, gpus(*FOUR).values())

    assert b'"PodDeviceEntries":null' in store.blobs[files.FILE]


def test_an_invalid_checkpoint_is_reported_and_the_state_is_empty() -> None:
    store = CountingStore()
    store.blobs[files.FILE] = b'{"Data":{"RegisteredDevices":{"a":["1"]}},"Checksum":1}'
    made = DeviceManager((0,), FakeNode(), FakeNode(), CheckpointManager(store), Clock())

    assert isinstance(made.start(), CorruptCheckpointError)
    assert made.state == DeviceState()


def test_a_resource_leaves_the_capacity_five_minutes_after_its_plugin() -> None:
    clock = Clock()
    of = manager(FakeNode(), CountingStore(), clock)
    assert of.should_reset_capacity()
    of.register(GPU)
    of.update(GPU, gpus(*FOUR).values())
    assert not of.should_reset_capacity()
    assert of.capacity().allocatable == {GPU: 4}

    of.stop(GPU)
    assert (of.capacity().capacity, of.capacity().allocatable) == ({GPU: 4}, {GPU: 0})
    clock.now_s += 300
    assert of.capacity().deleted == ()
    clock.now_s += 1
    assert of.capacity().deleted == (GPU,)
    assert of.capacity().capacity == {}


def test_init_containers_leave_their_devices_to_later_containers() -> None:
    init = Container("init", {GPU: 2}, {GPU: 2})
    side = Container("side", {GPU: 1}, {GPU: 1}, is_sidecar=True)
    wanted = pod(Container("app", {GPU: 1}, {GPU: 1}), init=[init, side])
    node = FakeNode([wanted])
    of = manager(node, CountingStore())
    of.register(GPU)
    of.update(GPU, gpus((0,), (0,)).values())

    for one in wanted.all_containers:
        of.allocate(wanted, one)

    held = {name: inner[GPU].ids for name, inner in of.state.held["pod"].items()}
    assert held == {"init": ids(0, 1), "side": ids(0), "app": ids(1)}


def test_a_plugin_that_answers_without_a_container_refuses_it() -> None:
    node = FakeNode([asking(1)])
    of = manager(node, CountingStore())
    of.register(GPU)
    of.update(GPU, gpus(*FOUR).values())
    of.allocate(node.pods[0], node.pods[0].containers[0])

    with pytest.raises(AllocationError, match="no containers return in allocation response"):
        of.record(dict.fromkeys(of.calls("pod")))
    of.give_back("pod")
    assert of.state.available(GPU) == ids(0, 1, 2, 3)


def offering(*pods_: Pod, options: PluginOptions = NO_OPTIONS) -> DeviceManager:
    """Return a manager with four devices on a node with these pods."""
    of = manager(FakeNode(list(pods_)), CountingStore())
    of.register(GPU, options)
    of.update(GPU, gpus(*FOUR).values())
    return of


def wanting(uid: str, count: int) -> Pod:
    return pod(Container("app", {GPU: count}, {GPU: count}), uid=uid)


def test_devices_that_are_reserved_are_given_to_no_other_pod() -> None:
    first, second, third = wanting("first", 2), wanting("second", 2), wanting("third", 1)
    of = offering(first, second, third)

    for one in (first, second):
        of.allocate(one, one.containers[0])
    with pytest.raises(AllocationError, match="Requested: 1, Available: 0"):
        of.allocate(third, third.containers[0])
    of.give_back("first")
    of.allocate(third, third.containers[0])

    assert [call.ids for call in of.calls("second")] == [ids(2, 3)]
    assert [call.ids for call in of.calls("third")] == [ids(0)]
    assert of.devices_of("third", "app") == {}
    assert not of.state.held["third"]["app"][GPU].response
    answer(of, "third")
    assert of.devices_of("third", "app")[GPU].response == joined(ids(0))


def test_an_answer_for_a_pod_that_is_gone_changes_nothing() -> None:
    first, second = wanting("first", 2), wanting("second", 4)
    node = FakeNode([first])
    of = manager(node, CountingStore())
    of.register(GPU)
    of.update(GPU, gpus(*FOUR).values())
    of.allocate(first, first.containers[0])
    late = dict.fromkeys(of.calls("first"), b"late")
    node.pods = [second]
    of.allocate(second, second.containers[0])

    of.record(late)

    assert "first" not in of.state.held
    assert [call.ids for call in of.calls("second")] == [ids(0, 1, 2, 3)]


def test_what_has_been_answered_outlives_a_failed_call_and_a_restart() -> None:
    other = "vendor.com/nic"
    wanted = pod(Container("app", {GPU: 1, other: 1}, {GPU: 1, other: 1}))
    node, store = FakeNode([wanted]), CountingStore()
    of = manager(node, store)
    for resource in (GPU, other):
        of.register(resource)
        of.update(resource, gpus((0,)).values())
    of.allocate(wanted, wanted.containers[0])
    first, second = of.calls("pod")
    of.record({first: b"answer"})
    of.give_back("pod")

    assert (first.resource, second.resource) == (GPU, other)
    assert of.lacks(wanted, wanted.containers[0])
    assert set(of.devices_of("pod", "app")) == {GPU}
    assert set(manager(node, store).state.held["pod"]["app"]) == {GPU}
    of.allocate(wanted, wanted.containers[0])
    assert of.calls("pod") == [second]


def test_a_plugin_is_asked_for_its_preference_once() -> None:
    wanted = wanting("pod", 2)
    of = offering(wanted, options=PluginOptions(prefers=True))

    of.allocate(wanted, wanted.containers[0])
    question = of.question("pod")
    assert question is not None
    assert (question.available, question.included, question.size) == (ids(0, 1, 2, 3), ids(), 2)
    of.prefer(question, ids(1, 3))
    of.give_back("pod")
    of.allocate(wanted, wanted.containers[0])

    assert of.question("pod") is None
    assert [call.ids for call in of.calls("pod")] == [ids(1, 3)]


def test_a_plugin_is_called_before_a_start_if_it_wants_that() -> None:
    wanted = wanting("pod", 2)
    of = offering(wanted, options=PluginOptions(pre_start=True))
    app = wanted.containers[0]

    with pytest.raises(AllocationError, match="no devices found allocated in local cache"):
        of.pre_start_calls(wanted, app)
    of.allocate(wanted, app)
    answer(of, "pod")
    assert [call.ids for call in of.pre_start_calls(wanted, app)] == [ids(0, 1)]
    of.register(GPU)
    assert of.pre_start_calls(wanted, app) == []


def test_devices_of_deleted_pods_are_released() -> None:
    node = FakeNode([asking(4)])
    of = manager(node, CountingStore())
    of.register(GPU)
    of.update(GPU, gpus(*FOUR).values())
    of.allocate(node.pods[0], node.pods[0].containers[0])
    node.pods = [pod(container(), uid="next")]

    of.remove_stale_state()

    assert of.state.available(GPU) == ids(0, 1, 2, 3)
    assert [device.id for device in of.allocatable_devices()[GPU]] == sorted(ids(0, 1, 2, 3))


def test_the_first_of_two_conflicting_plugin_answers_is_used() -> None:
    first = RunOptions({"A": "1"}, (DeviceNode("/dev/0", "/dev/x", "rw"),), cdi_devices=("c", "d"))
    second = RunOptions(
        {"A": "2", "B": "3"},
        (DeviceNode("/dev/1", "/dev/x", "rw"),),
        (Mount("/a", "/b"),),
        {"k": "v"},
        ("c",),
    )

    assert merged([first, second]) == RunOptions(
        {"A": "1", "B": "3"}, first.devices, second.mounts, {"k": "v"}, ("c", "d")
    )


places = st.one_of(st.none(), st.lists(st.integers(0, 3), unique=True, max_size=2).map(tuple))


@given(st.lists(places, min_size=1, max_size=8), st.data())
def test_chosen_devices_are_available_and_aligned_devices_come_first(
    where: list[tuple[int, ...] | None], data: st.DataObject
) -> None:
    devices = gpus(*where)
    available = data.draw(st.frozensets(st.sampled_from(sorted(devices)), min_size=1))
    count = data.draw(st.integers(1, len(available)))
    mask = data.draw(st.one_of(st.none(), st.integers(1, 15)))
    groups = filter_by_affinity(devices, available, mask)

    found = choose(devices, available, PluginDeviceRequest("pod", "app", GPU, count, mask))

    assert groups.aligned | groups.unaligned | groups.without == available
    assert found <= available
    assert len(found) == count
    assert len(found & groups.aligned) == min(count, len(groups.aligned))
