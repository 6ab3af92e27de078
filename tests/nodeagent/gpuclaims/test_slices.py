"""The ResourceSlice of a node: its form by Kubernetes' rules, and the writes that make it so."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.quantity import nano
from bindery.kube.objects.devices import Device, ResourceSlice
from bindery.nodeagent.gpuclaims import slices
from bindery.nodeagent.gpuclaims.offers import OfferedGpu, OfferError, checked
from bindery.nodeagent.gpuclaims.slices import SliceChange
from bindery.scheduler.plugins.dra.capacity import consumption
from tests.nodeagent.gpuclaims.claimedgpus import FIRST, GPUS, INSTANCE, NODE

UID = "node-uid"
NANO = 10**9

gpus = st.builds(
    OfferedGpu,
    index=st.integers(0, 9),
    uuid=st.from_regex(r"(GPU|MIG)-[0-9a-f]{4,8}", fullmatch=True),
    model=st.text(max_size=80),
    memory_mib=st.integers(2, 200_000),
    numa_node=st.none() | st.integers(0, 7),
    pci_address=st.sampled_from(["", "0000:3b:00.0"]),
    pcie_root=st.sampled_from(["", "pci0000:3a"]),
    problem=st.sampled_from(["", "fell off the bus"]),
)
"""Any GPU."""
instances = gpus.map(lambda gpu: replace(gpu, profile="3g.20gb+me", parent_uuid="GPU-a"))


def stored(change: SliceChange, version: str = "1") -> ResourceSlice:
    """Return the slice as the API server has it after the write."""
    assert change.body is not None
    found = msgspec.convert(change.body, ResourceSlice)
    meta = msgspec.structs.replace(found.metadata, uid="slice-uid", resource_version=version)
    return msgspec.structs.replace(found, metadata=meta)


def change(
    existing: Sequence[ResourceSlice], *offered: OfferedGpu, uid: str = UID, last: int = 0
) -> SliceChange:
    return slices.change(existing, offered, NODE, uid, last)


def test_the_first_slice_is_created_and_owned_by_the_node() -> None:
    first = change([], *GPUS)

    assert first.is_new
    assert first.generation == 1
    assert first.body is not None
    assert first.body["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    assert first.body["spec"]["nodeName"] == NODE
    [owner] = first.body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", NODE, UID)


@given(st.lists(gpus, min_size=1, max_size=4))
def test_what_was_written_needs_no_second_write(offered: list[OfferedGpu]) -> None:
    first = change([], *offered)

    assert change([stored(first)], *offered) == SliceChange(generation=1)


def test_a_change_replaces_the_version_that_was_seen_with_the_next_generation() -> None:
    before = stored(change([], *GPUS), version="7")

    after = change([before], replace(FIRST, problem="fell off the bus"))

    assert not after.is_new
    assert after.generation == 2
    assert after.body is not None
    assert after.body["metadata"]["resourceVersion"] == "7"
    [device] = after.body["spec"]["devices"]
    assert device["taints"] == [{"key": "gpu.bindery.dev/unhealthy", "effect": "NoSchedule"}]


def test_a_mig_instance_is_a_device_that_one_claim_gets() -> None:
    device = slices.device(INSTANCE)

    attributes = {name: value["string"] for name, value in device["attributes"].items()
                  if "string" in value}  # fmt: skip
    assert attributes == {
        "type": "mig",
        "uuid": INSTANCE.uuid,
        "productName": "NVIDIA A100",
        "profile": "1g.5gb",
        "parentUUID": "GPU-cccccccc",
    }
    assert device["capacity"] == {"memory": {"value": "4864Mi"}}
    assert "allowMultipleAllocations" not in device
    assert slices.device(FIRST)["attributes"]["type"] == {"string": "gpu"}


def test_a_slice_that_the_kubelet_deleted_comes_back_with_a_later_generation() -> None:
    again = change([], *GPUS, last=4)

    assert again.is_new
    assert again.generation == 5


def test_the_slice_of_an_older_node_of_this_name_gets_the_new_owner() -> None:
    before = stored(change([], *GPUS))

    after = change([before], *GPUS, uid="new-uid")

    assert after.body is not None
    assert after.body["metadata"]["ownerReferences"][0]["uid"] == "new-uid"


def test_slices_of_other_names_are_deleted_and_their_generation_is_passed() -> None:
    old = stored(change([], *GPUS, last=8))
    renamed = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, name="former")
    )

    after = change([renamed], *GPUS)

    assert after.surplus == ("former",)
    assert after.is_new
    assert after.generation == 10


def test_a_node_without_gpus_has_no_slice() -> None:
    before = stored(change([], *GPUS))

    assert change([before]) == SliceChange(surplus=(before.metadata.name,), generation=1)


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?", fullmatch=True))
def test_the_name_of_the_slice_is_a_name_of_kubernetes(node: str) -> None:
    name = slices.slice_name(node)

    assert len(name) <= 253
    assert re.fullmatch(r"[a-z0-9].*[a-z0-9]", name)


def test_long_names_of_nodes_that_begin_alike_give_different_slices() -> None:
    one, other = "a" * 250 + "b", "a" * 250 + "c"

    assert slices.slice_name(one) != slices.slice_name(other)


# ---- the rules of the API -----------------------------------------------------------------------


def broken_rules(capacity: Mapping[str, Any]) -> list[str]:
    """Return which rules of Kubernetes' validation a capacity breaks (validateRequestPolicy)."""
    value = nano(capacity["value"])
    policy = capacity["requestPolicy"]
    default = nano(policy["default"])
    least, most, step = (nano(policy["validRange"][name]) for name in ("min", "max", "step"))
    rules = {
        "min is at most the value": least <= value,
        "default is in the range": least <= default <= most,
        "max is at most the value": most <= value,
        "one step fits": least + step <= value,
        "default is a step": (default - least) % step == 0,
        "max is a step": (most - least) % step == 0,
    }
    return [name for name, holds in rules.items() if not holds]


@given(gpus | instances)
def test_every_device_keeps_the_rules_of_the_api(gpu: OfferedGpu) -> None:
    device = slices.device(gpu)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", device["name"])
    texts = [each["string"] for each in device["attributes"].values() if "string" in each]
    assert all(len(text) <= 64 for text in texts)
    shared = [each for each in device["capacity"].values() if "requestPolicy" in each]
    assert [broken_rules(each) for each in shared] == ([] if gpu.is_instance else [[], []])


@given(
    gpus,
    st.dictionaries(
        st.sampled_from(["memory", "cores"]), st.integers(0, 300_000 * 2**20), max_size=2
    ),
)
def test_what_the_scheduler_takes_is_a_part_that_can_be_prepared(
    gpu: OfferedGpu, requested: dict[str, int]
) -> None:
    device = msgspec.convert(slices.device(gpu), Device)

    taken = consumption(device.capacity, {name: each * NANO for name, each in requested.items()})

    if taken is None:
        assert (
            requested.get("memory", 0) > gpu.memory_mib * 2**20 or requested.get("cores", 0) > 100
        )
        return
    memory_mib, rest = divmod(taken["memory"], 2**20 * NANO)
    assert rest == 0
    assert 1 <= memory_mib <= gpu.memory_mib
    assert 1 * NANO <= taken["cores"] <= 100 * NANO
    assert taken["memory"] >= requested.get("memory", 0) * NANO
    assert taken["cores"] >= requested.get("cores", 0) * NANO


@given(gpus)
def test_a_claim_that_names_no_amount_takes_the_whole_gpu(gpu: OfferedGpu) -> None:
    device = msgspec.convert(slices.device(gpu), Device)

    assert consumption(device.capacity, {}) == {
        "memory": gpu.memory_mib * 2**20 * NANO,
        "cores": 100 * NANO,
    }


@given(st.lists(gpus | instances, max_size=5))
def test_gpus_that_were_checked_have_names_of_their_own(offered: list[OfferedGpu]) -> None:
    try:
        found = checked(offered)
    except OfferError:
        assert len({gpu.name for gpu in offered}) < len(offered)
        return
    assert len({gpu.name for gpu in found}) == len(found)
