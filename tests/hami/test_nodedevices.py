"""Registers of devices, MIG instances and locks, byte for byte as other programs write them."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.hami import lock, migallocations, nodedevices
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.migallocations import MigAllocation
from bindery.api.hami.nodedevices import MigPlacement, MigProfile, NodeDevice

V100 = NodeDevice(
    id="GPU-0055",
    index=1,
    count=10,
    memory_mib=32768,
    cores=100,
    type="NVIDIA-Tesla V100-PCIE-32GB",
    mode="hami-core",
    healthy=True,
)
JSON = (
    '[{"id":"GPU-0055","index":1,"count":10,"devmem":32768,"devcore":100,'
    '"type":"NVIDIA-Tesla V100-PCIE-32GB","mode":"hami-core","health":true}]'
)
FIELDS = "GPU-0055,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true,1,hami-core:"


def test_a_register_is_encoded_as_in_go() -> None:
    assert nodedevices.encode_json([V100]) == JSON
    assert encode_fields([V100]) == FIELDS
    assert nodedevices.encode_json([NodeDevice(id="<&>\u2028")]) == (
        '[{"id":"\\u003c\\u0026\\u003e\\u2028"}]'
    )


def test_both_forms_of_a_register_are_read() -> None:
    assert nodedevices.decode(JSON) == nodedevices.decode(FIELDS) == (V100,)


def test_the_old_form_without_index_and_mode_is_read() -> None:
    (device,) = nodedevices.decode("GPU-a,10,1024,100,NVIDIA-T4,1,true:")

    assert (device.index, device.mode, device.numa) == (0, "hami-core", 1)


def test_fields_omitted_by_go_are_zero_and_a_missing_health_is_unhealthy() -> None:
    (device,) = nodedevices.decode('[{"id":"GPU-a","custominfo":{"x":1}}]')

    assert (device.index, device.numa, device.healthy) == (0, 0, False)


def test_mig_profiles_are_read_and_written() -> None:
    device = NodeDevice(
        id="GPU-a",
        mode="mig",
        mig_profiles=(
            MigProfile(
                name="1g.5gb",
                memory_mib=4864,
                cores=14,
                slice_count=1,
                placements=(MigPlacement(0, 1), MigPlacement(1, 1)),
            ),
        ),
    )
    text = (
        '[{"id":"GPU-a","mode":"mig","migProfiles":[{"name":"1g.5gb","memoryMB":4864,"core":14,'
        '"sliceCount":1,"placements":[{"start":0,"size":1},{"start":1,"size":1}]}]}]'
    )

    assert nodedevices.encode_json([device]) == text
    assert nodedevices.decode(text) == (device,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU-a",
        "GPU-a,1,2:",
        "GPU-a,x,1024,100,NVIDIA-T4,0,true:",
        "GPU-a,10,1024,100,NVIDIA-T4,0,yes:",
        "GPU-a,10,1024,100,NVIDIA-T4,0,true,-1,hami-core:",
        "[{]",
        '[{"id":5}]',
        '[{"id":"a","count":-1}]',
        '[{"id":"a","devmem":99999999999}]',
        '[{"id":""}]',
        '[{"id":"a"},{"id":"a"}]',
        '[{"id":"a,b"}]',
        '{"id":"a"}',
        '["a"]',
        "[" * 5000,
        '[{"id":"a","mode":"mig","migProfiles":[{"name":"x","memoryMB":1,"placements":[{"start":0,"size":0}]}]}]',
    ],
)
def test_a_malformed_register_is_refused(text: str) -> None:
    with pytest.raises(HamiFormatError):
        nodedevices.decode(text)


@pytest.mark.parametrize("text", [":", "::", "[]", "null"])
def test_an_empty_register_is_no_devices(text: str) -> None:
    assert nodedevices.decode(text) == ()


def test_metax_and_enflame_have_separate_forms_of_registers() -> None:
    (metax,) = nodedevices.decode_metax(
        '[{"uuid":"u","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true}]',
        "Metax-SGPU",
    )
    (enflame,) = nodedevices.decode_drs(
        '{"devices":[{"index":"0","minor":"0","capacity":6}],"profiles":{"1g.6gb":"0"}}',
        "n1",
        "Enflame",
    )

    assert (metax.count, metax.memory_mib, metax.healthy) == (16, 65536, True)
    assert (enflame.id, enflame.count) == ("n1-enflame-0", 6)


READERS: list[Callable[[str], object]] = [
    nodedevices.decode,
    nodedevices.decode_pair_scores,
    nodedevices.decode_cordon,
    migallocations.decode,
    lock.decode,
    lambda text: nodedevices.decode_metax(text, "Metax-SGPU"),
    lambda text: nodedevices.decode_drs(text, "n1", "Enflame"),
]
near_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "uuid", "devices", "gpuUUID", "score"]), inner)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("read", READERS)
@given(text=st.text() | near_json.map(json.dumps))
def test_any_text_is_decoded_or_refused(read: Callable[[str], object], text: str) -> None:
    with suppress(HamiFormatError):
        read(text)


@given(st.text(alphabet=st.sampled_from("GPU,:0123456789truefalse-"), max_size=60))
def test_a_register_survives_encoding_and_decoding(text: str) -> None:
    try:
        devices = nodedevices.decode_fields(text)
    except HamiFormatError:
        return
    assert nodedevices.decode_fields(encode_fields(devices)) == devices
    assert nodedevices.decode_json(nodedevices.encode_json(devices)) == devices


def test_mig_instances_are_written_without_fields_of_the_device_plugin() -> None:
    planned = MigAllocation(
        container_index=1,
        device_index=0,
        gpu_uuid="GPU-a",
        profile="1g.5gb",
        placement=MigPlacement(6, 1),
    )
    text = (
        '[{"containerIndex":1,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.5gb",'
        '"placement":{"start":6,"size":1}}]'
    )

    assert migallocations.encode([planned]) == text
    assert migallocations.decode(text) == (planned,)


@pytest.mark.parametrize("extra", ['"migUUID":"m"', '"gpuInstanceID":0', '"computeInstanceID":1'])
def test_a_partly_completed_mig_instance_is_refused(extra: str) -> None:
    text = (
        '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.5gb",'
        '"placement":{"start":6,"size":1},' + extra + "}]"
    )
    with pytest.raises(HamiFormatError, match="partly"):
        migallocations.decode(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-08-01T06:00:00Z,ns,pod-a", NodeLock(1785564000, "ns", "pod-a")),
        ("2026-08-01T06:00:00.75Z,ns,pod-a", NodeLock(1785564000, "ns", "pod-a")),
        ("2026-08-01T14:00:00+08:00,ns,pod-a", NodeLock(1785564000, "ns", "pod-a")),
        ("2026-08-01T14:00:00+08:00", NodeLock(1785564000)),
    ],
)
def test_a_lock_is_read_and_written(text: str, found: NodeLock) -> None:
    assert lock.decode(text) == found
    assert lock.decode(found.encode()) == found
    assert found.encode().startswith("2026-08-01T06:00:00Z")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-08-01T06:00:00Z,ns",
        "2026-08-01T06:00:00Z,,",
        "2026-08-01T06:00:00Z,ns,a,b",
        "2026-08-01 06:00:00Z,ns,a",
        "2026-13-01T06:00:00Z,ns,a",
        "0001-01-01T00:00:00+14:00,ns,a",
        "2026-08-01T06:00:00+99:99,ns,a",
    ],
)
def test_a_malformed_lock_is_refused(text: str) -> None:
    with pytest.raises(HamiFormatError):
        lock.decode(text)


def encode_fields(devices: Sequence[NodeDevice]) -> str:
    """Return the form with nine fields, as older device plugins write it."""
    texts = (
        f"{d.id},{d.count},{d.memory_mib},{d.cores},{d.type},{d.numa},"
        f"{str(d.healthy).lower()},{d.index},{d.mode}:"
        for d in devices
    )
    return "".join(texts) or ":"
