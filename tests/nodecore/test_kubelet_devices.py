"""The device manager answers as the kubelet's, case by case."""

from collections.abc import Iterable, Mapping

from bindery.nodecore.devices.allocation import PluginDeviceRequest, choose
from bindery.nodecore.devices.hints import container_hints, pod_hints
from bindery.nodecore.devices.state import Device, DeviceState, Held, Ids
from bindery.nodecore.pods import total
from bindery.nodecore.topology.hints import Hint, ResourceHints
from tests.nodecore.kubelettables import Json, cases, hint, hints, pod

NUMA_NODES = (0, 1)


def devices(found: Iterable[tuple[str, list[int] | None]]) -> list[Device]:
    return [Device(one, None if nodes is None else tuple(nodes)) for one, nodes in found]


def state(case: Json) -> DeviceState:
    found = DeviceState()
    for resource, listed in case["devices"].items():
        found = found.with_plugin(resource, devices(listed))
    for uid, containers in case["held"].items():
        for name, inner in containers.items():
            for resource, ids in inner.items():
                held = Held({0: tuple(ids)})
                found = found.with_held(uid, name, resource, held)
    return found


def checked(found: Mapping[str, ResourceHints], case: Json) -> None:
    for resource, wanted in (case["hints"] or {}).items():
        one = found.get(resource)
        assert (None if one is None else set(one)) == (None if wanted is None else hints(wanted))


@cases("devices", "hints")
def test_a_container_has_hints(case: Json) -> None:
    asking = pod(case["pod"])

    checked(container_hints(state(case), {}, NUMA_NODES, asking, asking.containers[0]), case)


@cases("devices", "pod_hints")
def test_a_pod_has_hints(case: Json) -> None:
    checked(pod_hints(state(case), NUMA_NODES, pod(case["pod"])), case)


def place(case: Json) -> int | None:
    found: Hint = hint(case["hint"])
    return found.mask


@cases("devices", "allocate")
def test_aligned_devices_are_taken_first(case: Json) -> None:
    listed = {one.id: one for one in devices(case["devices"])}
    request = PluginDeviceRequest("pod", "app", "resource", case["count"], place(case))
    taken = choose(listed, frozenset(listed), request)
    near: dict[str, int] = {}
    if any(one.numa_nodes for one in listed.values()):
        for one in taken:
            for node in (listed[one].numa_nodes or ())[:1]:
                near[str(node)] = near.get(str(node), 0) + 1

    assert len(taken) == case["count"]
    assert near == case["near"]


@cases("devices", "asked_plugin")
def test_the_plugin_chooses_its_preferred_devices(case: Json) -> None:
    listed = {one.id: one for one in devices(case["devices"])}
    asked: list[tuple[Ids, Ids, int]] = []

    def preferred(available: Ids, included: Ids, size: int) -> Iterable[str]:
        asked.append((available, included, size))
        return ()

    request = PluginDeviceRequest(
        "pod", "app", "resource", case["count"], place(case), frozenset(case["reusable"])
    )
    choose(listed, frozenset(listed) - frozenset(case["held"]), request, preferred)

    expected = (frozenset(case["available"]), frozenset(case["included"]), case["size"])
    assert asked == [expected]


@cases("devices", "requests")
def test_the_devices_of_a_pod_at_one_time_are_counted(case: Json) -> None:
    wanted = total(pod(case["pod"]), "limits")

    counts = {name: wanted[name] for name in case["known"] if name in wanted}
    assert counts == case["counts"]
