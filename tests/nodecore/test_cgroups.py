"""cgroups: names for both drivers, and the values of pods, QoS classes and the node."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.cgroups import allocatable, conversions, names, oom, values
from bindery.nodecore.cgroups.names import ROOT, CgroupName, CgroupNameError
from bindery.nodecore.cgroups.values import CgroupValues, MemoryReservation
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.features import Features
from bindery.nodecore.pods import Container, Pod, QosClass
from tests.nodecore.nodes import MIB, container, cpus, pod, whole_pod

MEMORY_QOS = Features(memory_qos=True)
KUBEPODS = CgroupName(("kubepods",))
BURSTABLE = pod(Container("app", {"cpu": 500, "memory": 100 * MIB}, {"cpu": 1000}), uid="b-1")
PAGES = 2 * MIB


@pytest.mark.parametrize(
    ("name", "cgroupfs", "systemd"),
    [
        ((), "/", "/"),
        (("kubepods",), "/kubepods", "/kubepods.slice"),
        (
            ("kubepods", "burstable", "pod1-2"),
            "/kubepods/burstable/pod1-2",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
        ),
    ],
)
def test_a_name_has_a_path_for_each_driver(
    name: tuple[str, ...], cgroupfs: str, systemd: str
) -> None:
    cgroup = CgroupName(name)

    assert (names.to_cgroupfs(cgroup), names.to_systemd(cgroup)) == (cgroupfs, systemd)
    assert names.from_cgroupfs(cgroupfs) == cgroup
    if name:
        assert names.from_systemd(systemd) == cgroup


@pytest.mark.parametrize("part", ["a/b", "a_b"])
def test_name_components_with_separators_of_a_driver_are_refused(part: str) -> None:
    with pytest.raises(CgroupNameError, match="invalid character in component"):
        names.child(ROOT, part)


@pytest.mark.parametrize("unit", ["a.service", ".slice", "a--b.slice", "-a.slice", "a/b.slice"])
def test_units_other_than_slices_are_refused(unit: str) -> None:
    with pytest.raises(CgroupNameError, match="invalid slice name"):
        names.expand_slice(unit)


def test_pods_are_below_their_class() -> None:
    assert names.expand_slice("-.slice") == "/"
    assert names.node_allocatable_root("/", names.SYSTEMD) == "/kubepods.slice"
    assert names.node_allocatable_root("/a", names.CGROUPFS) == "/a/kubepods"
    assert names.node_allocatable_root("/a", names.CGROUPFS, per_qos=False) == "/a"
    assert names.of_pod(KUBEPODS, pod(container(), uid="g")) == ("kubepods", "podg")
    name = names.of_pod(KUBEPODS, BURSTABLE)
    assert name == CgroupName(("kubepods", "burstable", "podb-1"))
    assert (names.pod_uid(name), names.pod_uid(KUBEPODS)) == ("b-1", None)


parts = st.text(alphabet="abz019-", min_size=1, max_size=8).filter(lambda part: part[0] != "-")


@given(st.lists(parts, min_size=1, max_size=4))
def test_names_survive_both_drivers(found: list[str]) -> None:
    name = names.child(ROOT, *found)

    assert names.from_cgroupfs(names.to_driver(name, names.CGROUPFS)) == name
    assert names.from_systemd(names.to_driver(name, names.SYSTEMD)) == name


@pytest.mark.parametrize(
    ("shares", "linear", "quadratic"),
    [
        (2, 1, 1),
        (102, 4, 17),
        (512, 20, 59),
        (1024, 39, 100),
        (2048, 79, 174),
        (10240, 391, 639),
        (262144, 10000, 10000),
        (300000, 10000, 10000),
    ],
)
def test_shares_become_weights_in_two_ways(shares: int, linear: int, quadratic: int) -> None:
    assert (conversions.weight(shares), conversions.container_weight(shares)) == (linear, quadratic)


@pytest.mark.parametrize(
    ("milli", "shares", "quota"),
    [(0, 2, 0), (1, 2, 1000), (100, 102, 10000), (1000, 1024, 100000), (300000, 262144, 30000000)],
)
def test_millicores_become_shares_and_quotas(milli: int, shares: int, quota: int) -> None:
    assert (conversions.shares(milli), conversions.quota_us(milli)) == (shares, quota)


@given(st.integers(1, 10000))
def test_weights_lead_back_to_shares(weight: int) -> None:
    back = conversions.weight(conversions.shares_of_weight(weight))

    assert weight - 1 <= back <= weight


def test_shares_and_quotas_lead_back_to_millicores() -> None:
    assert [conversions.milli_of_shares(shares) for shares in (1, 2, 102, 1024)] == [
        0,
        2,
        100,
        1000,
    ]
    assert conversions.milli_of_quota(-1, 100000) == 0
    assert conversions.milli_of_quota(50000, 100000) == 500
    assert conversions.container_weight(0) == 0


@pytest.mark.parametrize(
    ("request_mib", "limit_mib", "allocatable_mib", "expected"),
    [
        (100, 200, 0, 190 * MIB),
        (100, 100, 0, None),  # equal: the limit alone counts
        (0, 100, 0, 90 * MIB),
        (100, 0, 1100, 1000 * MIB),
        (100, 0, 0, None),
        (0, 1, 0, 943718 // 4096 * 4096),
    ],
)
def test_memory_is_throttled_below_the_limit(
    request_mib: int, limit_mib: int, allocatable_mib: int, expected: int | None
) -> None:
    found = conversions.memory_high(request_mib * MIB, limit_mib * MIB, allocatable_mib * MIB)

    assert found == expected


@pytest.mark.parametrize(
    ("request_mib", "expected"), [(100, 50 * MIB), (1000, 500 * MIB), (1001, 0), (0, 0)]
)
def test_swap_is_given_in_proportion_to_memory(request_mib: int, expected: int) -> None:
    assert conversions.swap_limit(request_mib * MIB, 1000 * MIB, 500 * MIB) == expected
    assert conversions.swap_limit(request_mib * MIB, 0, 500 * MIB) == 0


@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        (
            pod(container(cpu=2)),
            CgroupValues(100 * MIB, 2048, 200000, 100000),
        ),
        (BURSTABLE, CgroupValues(None, 512, 100000, 100000)),
        (
            pod(BURSTABLE.containers[0], Container("other", {"cpu": 500})),
            CgroupValues(None, 1024),
        ),
        (pod(Container("app")), CgroupValues(None, 2)),
        (
            whole_pod(Container("app", {"cpu": 100}), cpu=2, memory_mib=400),
            CgroupValues(400 * MIB, 2048, 200000, 100000),
        ),
        (
            pod(container(cpu=1, hugepages_2Mi=20 * MIB)),
            CgroupValues(100 * MIB, 1024, 100000, 100000, huge_pages={PAGES: 20 * MIB}),
        ),
    ],
)
def test_pods_are_limited_by_their_class(asking: Pod, expected: CgroupValues) -> None:
    assert values.of_pod(asking) == expected


def test_pods_with_exclusive_cpus_have_no_quota() -> None:
    assert values.of_pod(pod(container()), enforce_cpu_limits=False).cpu_quota_us == -1


def test_overhead_is_added_to_limits() -> None:
    asking = replace(pod(container(cpu=1)), overhead={"cpu": 500, "memory": MIB})

    assert values.of_pod(asking) == CgroupValues(101 * MIB, 1536, 150000, 100000)


def test_requested_memory_is_protected_with_the_feature() -> None:
    tiered = MemoryReservation.TIERED

    def files(asking: Pod) -> dict[str, str]:
        of = values.of_pod(asking, memory_reservation=tiered, features=MEMORY_QOS)
        return dict(of.unified)

    assert files(pod(container())) == {"memory.min": str(100 * MIB)}
    assert files(BURSTABLE) == {"memory.low": str(100 * MIB)}
    assert files(pod(Container("app"))) == {}
    assert values.of_pod(BURSTABLE, memory_reservation=tiered).unified == {}


def test_classes_get_the_sums_of_their_pods() -> None:
    pods = [pod(container(memory_mib=200)), BURSTABLE, replace(BURSTABLE, uid="b-2")]

    of = values.of_qos_classes(
        pods,
        page_sizes=[PAGES],
        allocatable_memory=1000 * MIB,
        reserved_memory_percent=50,
        memory_reservation=MemoryReservation.TIERED,
        features=MEMORY_QOS,
    )

    pages = {PAGES: 1 << 62}
    least, low = {"memory.min": str(400 * MIB)}, {"memory.low": str(200 * MIB)}
    assert of == {
        QosClass.GUARANTEED: CgroupValues(huge_pages=pages, unified=least),
        QosClass.BURSTABLE: CgroupValues(900 * MIB, 1024, huge_pages=pages, unified=low),
        QosClass.BEST_EFFORT: CgroupValues(800 * MIB, 2, huge_pages=pages),
    }
    plain = values.of_qos_classes(pods, features=MEMORY_QOS)
    assert plain[QosClass.GUARANTEED].unified == {"memory.min": "0"}
    assert values.of_qos_classes([])[QosClass.BURSTABLE].cpu_shares == 2


def test_values_are_written_as_files() -> None:
    of = CgroupValues(
        100 * MIB, 1024, 50000, 100000, 10, {PAGES: 20 * MIB}, cpus("0-3"), {"memory.min": "1"}
    )

    assert values.files_v1(of, [PAGES, 1 << 30]) == {
        "memory.limit_in_bytes": str(100 * MIB),
        "cpu.shares": "1024",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
        "pids.max": "10",
        "cpuset.cpus": "0-3",
        "hugetlb.2MB.limit_in_bytes": str(20 * MIB),
        "hugetlb.1GB.limit_in_bytes": "0",
    }
    assert values.files_v2(of) == {
        "memory.max": str(100 * MIB),
        "cpu.weight": "39",
        "cpu.max": "50000 100000",
        "pids.max": "10",
        "cpuset.cpus": "0-3",
        "hugetlb.2MB.max": str(20 * MIB),
        "memory.min": "1",
    }
    none = CgroupValues(cpu_quota_us=-1, cpu_period_us=100000)
    assert values.files_v2(none) == {"cpu.max": "max 100000"}


def test_the_node_keeps_the_reserved_resources() -> None:
    capacity = {"cpu": 4000, "memory": 1000 * MIB, "ephemeral-storage": 100 * MIB}
    system, kube = {"cpu": 500, "memory": 100 * MIB}, {"memory": 50 * MIB}
    eviction = allocatable.eviction_reservation(
        {"memory.available": str(100 * MIB), "nodefs.available": "10%", "pid.available": "10%"},
        capacity,
    )

    assert eviction == {"memory": 100 * MIB, "ephemeral-storage": 10 * MIB}
    assert allocatable.enforced(capacity, system, kube)["memory"] == 850 * MIB
    reserved = allocatable.reservation(capacity, system, kube, eviction)
    assert allocatable.allocatable(capacity, reserved) == {
        "cpu": 3500,
        "memory": 750 * MIB,
        "ephemeral-storage": 90 * MIB,
    }
    with pytest.raises(ConfigurationError, match='"cpu" has a reservation of 5000 but capacity'):
        allocatable.allocatable(capacity, {"cpu": 5000})


def test_reservations_become_limits() -> None:
    amounts = {"cpu": 1000, "memory": MIB, "pid": 100, "hugepages-2Mi": 4 * MIB}

    assert values.of_resources(amounts) == CgroupValues(
        MIB, 1024, pids_limit=100, huge_pages={PAGES: 4 * MIB}
    )
    assert values.of_resources(amounts, compressible_only=True) == CgroupValues(cpu_shares=1024)


@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        (pod(container()), -997),
        (pod(Container("app")), 1000),
        (pod(Container("app", {"memory": 100 * MIB})), 900),
        (pod(Container("app", {"memory": 1000 * MIB})), 3),
        (pod(Container("app", {"cpu": 1})), 999),
    ],
)
def test_containers_that_request_more_memory_are_killed_later(asking: Pod, expected: int) -> None:
    assert oom.score_adjustment(asking, asking.containers[0], 1000 * MIB) == expected


def test_sidecars_are_killed_after_the_containers_they_serve() -> None:
    side = Container("side", {"memory": 10 * MIB}, is_sidecar=True)
    asking = pod(Container("app", {"memory": 300 * MIB}), init=[side])

    assert oom.score_adjustment(asking, side, 1000 * MIB) == 700
    assert oom.score_adjustment(asking, side, 1000 * MIB, is_node_critical=True) == -997
    shared = replace(asking, requests={"memory": 510 * MIB})
    assert oom.score_adjustment(shared, shared.containers[0], 1000 * MIB) == 600


@pytest.mark.parametrize(
    ("signal", "threshold", "message"),
    [
        ("memory.free", "1Gi", "unsupported eviction signal memory.free"),
        ("memory.available", "0", "eviction threshold memory.available must be positive: 0"),
        ("memory.available", "-1Mi", "eviction threshold memory.available must be positive: -1Mi"),
        (
            "memory.available",
            "-5%",
            "eviction percentage threshold memory.available must be >= 0%: -5%",
        ),
        (
            "nodefs.available",
            "1e400%",
            "eviction percentage threshold nodefs.available must be <= 100%: 1e400%",
        ),
        ("imagefs.available", "inf%", 'strconv.ParseFloat: parsing "inf": invalid syntax'),
        ("pid.available", "nan%", 'strconv.ParseFloat: parsing "nan": invalid syntax'),
        ("memory.available", " 5%", 'strconv.ParseFloat: parsing " 5": invalid syntax'),
    ],
)
def test_impossible_thresholds_are_refused(signal: str, threshold: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        allocatable.eviction_reservation({signal: threshold}, {"memory": 1 << 30})


def test_thresholds_of_0_and_100_percent_reserve_nothing() -> None:
    thresholds = {"memory.available": "100%", "nodefs.available": "0%", "pid.available": "10%"}

    assert allocatable.eviction_reservation(thresholds, {"memory": 1 << 30}) == {}


@pytest.mark.parametrize("text", [" 50%", "\uff15\uff10%", "5_0%", "50"])
def test_percentages_are_parsed_as_in_go(text: str) -> None:
    with pytest.raises(ConfigurationError):
        allocatable.parse_percentage(text)
