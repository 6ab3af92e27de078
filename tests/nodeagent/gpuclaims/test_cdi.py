"""CDI files: their form by the rules of the specification, and what is read from them again."""

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.objects.claims import ResourceClaim
from bindery.nodeagent.gpuclaims import cdi, grants
from bindery.nodeagent.gpuclaims.cdi import ClaimOnNode, UnreadableSpecError
from bindery.nodeagent.gpuclaims.grants import GrantError
from bindery.nodeagent.hamicore import HamiCore
from tests.nodeagent.gpuclaims.claimedgpus import (
    FIRST,
    GPUS,
    INSTANCE,
    NODE,
    SECOND,
    result,
)

CLAIM = ClaimOnNode("team", "train-0-gpu", "0a1b2c3d-0000-4444-8888-123456789abc")


def text(*results: Any, claim: ClaimOnNode = CLAIM, has_core: bool = False) -> str:
    body = {"status": {"allocation": {"devices": {"results": list(results)}}}}
    given_ = grants.grants(msgspec.convert(body, ResourceClaim), NODE, GPUS)
    return cdi.text(claim, given_, HamiCore(PurePosixPath("/usr/local"), has_core))


def broken_rules(spec: dict[str, Any]) -> Iterator[str]:
    """Yield the rules of CDI 0.6.0 (SPEC.md) that `spec` breaks."""
    if spec.keys() - {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}:
        yield "unknown fields"
    if spec["cdiVersion"] != "0.6.0":
        yield "version"
    if not re.fullmatch(r"[A-Za-z][\w.-]*[A-Za-z0-9]/[A-Za-z]([\w.-]*[A-Za-z0-9])?", spec["kind"]):
        yield "kind"
    names = [device["name"] for device in spec["devices"]]
    if not names or len(set(names)) < len(names):
        yield "names of devices"
    for device in spec["devices"]:
        if device.keys() - {"name", "annotations", "containerEdits"}:
            yield "unknown fields of a device"
        if not re.fullmatch(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", device["name"]):
            yield "name of a device"
        yield from broken_rules_of_edits(device["containerEdits"])


def broken_rules_of_edits(edits: dict[str, Any]) -> Iterator[str]:
    if not edits or edits.keys() - {"env", "mounts", "deviceNodes", "hooks"}:
        yield "edits"
    if not all(re.fullmatch(r"[^=]+=.*", each) for each in edits.get("env", ())):
        yield "variables"
    for mount in edits.get("mounts", ()):
        if mount.keys() != {"hostPath", "containerPath", "options"}:
            yield "mounts"


def test_a_file_has_a_device_with_the_variables_for_each_request() -> None:
    spec = json.loads(text(result(request="a"), result(SECOND, request="b", memory="1Gi")))

    first, second = spec["devices"]
    assert (first["name"], second["name"]) == (f"{CLAIM.uid}-a", f"{CLAIM.uid}-b")
    assert f"NVIDIA_VISIBLE_DEVICES={FIRST.uuid}" in first["containerEdits"]["env"]
    assert f"NVIDIA_VISIBLE_DEVICES={SECOND.uuid}" in second["containerEdits"]["env"]
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=1024m" in second["containerEdits"]["env"]
    assert list(broken_rules(spec)) == []


def test_the_library_is_mounted_for_shares_and_not_for_admin_access() -> None:
    spec = json.loads(
        text(
            result(request="a"),
            result(request="b", adminAccess=True, consumedCapacity={}),
            has_core=True,
        )
    )

    limited, free = (device["containerEdits"] for device in spec["devices"])
    shared = f"/usr/local/vgpu/claims/{CLAIM.uid}_a"
    assert [
        (mount["hostPath"], mount["containerPath"], mount["options"][0])
        for mount in limited["mounts"]
    ] == [
        ("/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu/libvgpu.so", "ro"),
        (shared, "/usr/local/vgpu", "rw"),
        ("/tmp/vgpulock", "/tmp/vgpulock", "rw"),
        ("/usr/local/vgpu/ld.so.preload", "/etc/ld.so.preload", "ro"),
    ]
    counts = f"CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/{CLAIM.uid}-a.cache"
    assert counts in limited["env"]
    assert not any(each.startswith("CUDA_DEVICE_MEMORY_SHARED_CACHE") for each in free["env"])
    assert "mounts" not in free
    assert list(broken_rules(spec)) == []


def test_a_mig_instance_has_no_library() -> None:
    body = {"status": {"allocation": {"devices": {"results": [result(INSTANCE)]}}}}
    given_ = grants.grants(msgspec.convert(body, ResourceClaim), NODE, (INSTANCE,))

    spec = json.loads(cdi.text(CLAIM, given_, HamiCore(PurePosixPath("/usr/local"), True)))

    [device] = spec["devices"]
    assert device["containerEdits"] == {"env": [f"NVIDIA_VISIBLE_DEVICES={INSTANCE.uuid}"]}


label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
uids = st.uuids().map(str)
results = st.lists(
    st.builds(
        result,
        st.sampled_from(GPUS),
        label,
        memory=st.integers(1, 999).map("{}Mi".format),
        cores=st.integers(1, 100).map(str),
    ),
    min_size=1,
    max_size=8,
)


@given(results, uids)
def test_every_file_keeps_the_rules_of_cdi(given_: list[Any], uid: str) -> None:
    spec = json.loads(text(*given_, claim=ClaimOnNode("team", "claim", uid)))

    assert list(broken_rules(spec)) == []
    requests = {each["request"] for each in given_}
    names = {f"{spec['kind']}={device['name']}" for device in spec["devices"]}
    assert names == {cdi.device_id(uid, request) for request in requests}


@given(results, uids)
def test_a_file_has_the_claim_and_what_it_holds(given_: list[Any], uid: str) -> None:
    claim = ClaimOnNode("team", "claim", uid)

    found = cdi.read(uid, text(*given_, claim=claim))

    assert found.claim == claim
    cores = sum(int(each["consumedCapacity"]["cores"]) for each in given_)
    assert sum((part.cores for part in found.held.values()), 0) == cores
    assert cdi.uid_of(cdi.file_name(uid)) == uid


def test_the_same_claim_gives_the_same_text() -> None:
    assert text(result(), result(SECOND)) == text(result(), result(SECOND))


NOTES = {"gpu.bindery.dev/namespace": "a", "gpu.bindery.dev/claim": "b"}


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "{}", '{"annotations": {}}', "1"),
        *(
            json.dumps({"annotations": {**NOTES, "gpu.bindery.dev/held": held}})
            for held in ("", "[]", "null", '{"a": 1}', '{"a": [1]}', '{"a": ["b", 1]}')
        ),
    ],
)
def test_other_files_are_refused(content: str) -> None:
    with pytest.raises(UnreadableSpecError):
        cdi.read(CLAIM.uid, content)


@pytest.mark.parametrize("uid", ["", "..", "a/b", "a-", "-a", "a\n", "../../etc/x"])
def test_what_is_no_uid_makes_no_file(uid: str) -> None:
    with pytest.raises(GrantError, match="not the UID"):
        cdi.file_name(uid)
    assert cdi.uid_of(f"gpu.bindery.dev-share_{uid}.json") is None


def test_files_of_others_are_not_ours() -> None:
    assert cdi.uid_of("nvidia.yaml") is None
    assert cdi.uid_of("gpu.bindery.dev-share_abc.yaml") is None
