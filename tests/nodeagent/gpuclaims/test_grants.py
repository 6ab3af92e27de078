"""What an allocated claim gives to containers: GPUs, limits and variables."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.objects.claims import ResourceClaim
from bindery.nodeagent.gpuclaims import grants
from bindery.nodeagent.gpuclaims.grants import GpuPart, GrantedShare, GrantError, NoRoomError
from tests.nodeagent.gpuclaims.claimedgpus import FIRST, GPUS, INSTANCE, NODE, SECOND, result


def claim(*results: Any) -> ResourceClaim:
    body = {"status": {"allocation": {"devices": {"results": list(results)}}}}
    return msgspec.convert(body, ResourceClaim)


def given_by(*results: Any) -> tuple[GrantedShare, ...]:
    return grants.grants(claim(*results), NODE, GPUS)


def test_a_share_has_the_consumed_capacity_as_its_limit() -> None:
    [found] = given_by(result(memory="10Gi", cores="30"))

    assert found.part == GpuPart(10240, 30)
    assert grants.variables([found]) == {
        "NVIDIA_VISIBLE_DEVICES": FIRST.uuid,
        "CUDA_DEVICE_MEMORY_LIMIT_0": "10240m",
        "CUDA_DEVICE_SM_LIMIT_0": "30",
        "CUDA_DEVICE_SM_LIMIT": "30",
    }


def test_gpus_are_in_the_order_in_which_tools_number_them() -> None:
    found = grants.variables(given_by(result(SECOND, memory="1Gi", cores="9"), result(FIRST)))

    assert found == {
        "NVIDIA_VISIBLE_DEVICES": f"{FIRST.uuid},{SECOND.uuid}",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "10240m",
        "CUDA_DEVICE_SM_LIMIT_0": "30",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "1024m",
        "CUDA_DEVICE_SM_LIMIT_1": "9",
        "CUDA_DEVICE_SM_LIMIT": "9",
    }


def test_two_shares_of_one_gpu_in_a_request_are_one_limit() -> None:
    found = grants.variables(given_by(result(), result(memory="1Gi", cores="5")))

    assert found["NVIDIA_VISIBLE_DEVICES"] == FIRST.uuid
    assert found["CUDA_DEVICE_MEMORY_LIMIT_0"] == "11264m"
    assert found["CUDA_DEVICE_SM_LIMIT"] == "35"


def test_the_chosen_alternative_belongs_to_its_request() -> None:
    [found] = given_by(result(request="gpu/small"))

    assert found.request == "gpu"


def test_a_mig_instance_is_held_whole_and_limited_by_the_hardware_alone() -> None:
    whole = {key: value for key, value in result(INSTANCE).items()
             if key not in ("consumedCapacity", "shareID")}  # fmt: skip
    found = grants.grants(claim(whole), NODE, (*GPUS, INSTANCE))

    assert grants.variables(found) == {"NVIDIA_VISIBLE_DEVICES": INSTANCE.uuid}
    assert grants.held(found) == {INSTANCE.uuid: GpuPart(4864, 100)}
    with pytest.raises(NoRoomError):
        grants.check_room(found, {"other": grants.held(found)})
    mixed = claim(whole, result())
    with pytest.raises(GrantError, match="both MIG instances and shares"):
        grants.grants(mixed, NODE, (*GPUS, INSTANCE))


def test_admin_access_has_no_limit_and_holds_nothing() -> None:
    found = given_by(result(adminAccess=True, consumedCapacity={}))

    assert grants.variables(found) == {"NVIDIA_VISIBLE_DEVICES": FIRST.uuid}
    assert grants.held(found) == {}


def test_devices_of_other_drivers_are_left_to_them() -> None:
    found = given_by(result(driver="other.example.com", device="x"), result())

    assert len(found) == 1


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([], "no device of gpu.bindery.dev"),
        ([result(device="gpu-gone")], "no device gpu-gone of pool gpu-1"),
        ([result(pool="gpu-2")], "no device gpu-aaaaaaaa-0000 of pool gpu-2"),
        ([result(consumedCapacity={})], "gate DRAConsumableCapacity off"),
        ([result(consumedCapacity={"memory": "1Gi"})], "no consumed capacity 'cores'"),
        ([result(memory="much")], "not a Kubernetes quantity"),
        ([result(memory="1Ki")], "less than 1 MiB"),
        ([result(cores="0")], "no cores"),
    ],
)
def test_a_claim_that_cannot_be_prepared_has_a_reason(results: list[Any], reason: str) -> None:
    with pytest.raises(GrantError, match=reason):
        given_by(*results)


def test_a_claim_that_is_not_allocated_has_a_reason() -> None:
    with pytest.raises(GrantError, match="not allocated"):
        grants.grants(ResourceClaim(), NODE, GPUS)


def test_a_gpu_is_not_given_out_twice() -> None:
    wanted = given_by(result(memory="40Gi", cores="50"))
    others = {"other": {FIRST.uuid: GpuPart(40 * 1024, 50)}, "far": {SECOND.uuid: GpuPart(9, 99)}}
    grants.check_room(wanted, others)

    others["other"] = {FIRST.uuid: GpuPart(40 * 1024 + 1, 50)}
    with pytest.raises(NoRoomError, match=f"{FIRST.uuid} has no room .* prepared: other$"):
        grants.check_room(wanted, others)
    others["other"] = {FIRST.uuid: GpuPart(1, 51)}
    with pytest.raises(NoRoomError):
        grants.check_room(wanted, others)


parts = st.builds(GpuPart, memory_mib=st.integers(1, 10**6), cores=st.integers(1, 100))


@given(st.dictionaries(st.text(max_size=50), parts))
def test_what_is_held_is_read_as_it_was_written(held: dict[str, GpuPart]) -> None:
    assert grants.decode(grants.encode(held)) == held


shares = st.lists(
    st.builds(lambda gpu, part: GrantedShare("gpu", gpu, part, "id"), st.sampled_from(GPUS), parts),
    min_size=1,
    max_size=6,
)


@given(shares)
def test_every_visible_gpu_has_a_limit_of_its_own(given_: list[GrantedShare]) -> None:
    found = grants.variables(given_)

    visible = found["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert len(set(visible)) == len(visible)
    total = sum(each.part.memory_mib for each in given_ if each.part is not None)
    limits = [found[f"CUDA_DEVICE_MEMORY_LIMIT_{place}"] for place in range(len(visible))]
    assert sum(int(limit.removesuffix("m")) for limit in limits) == total
    assert f"CUDA_DEVICE_MEMORY_LIMIT_{len(visible)}" not in found


def test_admin_access_beside_a_share_is_not_limited_by_it() -> None:
    found = given_by(result(), result(SECOND, adminAccess=True, consumedCapacity={}))

    assert grants.variables(found) == {"NVIDIA_VISIBLE_DEVICES": f"{FIRST.uuid},{SECOND.uuid}"}
