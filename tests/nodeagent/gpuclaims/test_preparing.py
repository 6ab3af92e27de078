"""Claims are prepared and given back as the kubelet expects, whatever is killed in between."""

import asyncio
from pathlib import Path

import pytest

from bindery.nodeagent.gpuclaims import cdi, preparing
from bindery.nodeagent.sockets.definitions import dra_pb2 as api
from tests.histories.apiserver.refusals import forbidden
from tests.nodeagent.gpuclaims.claimedgpus import (
    FIRST,
    GPUS,
    NODE,
    SECOND,
    Arena,
    prepare,
    result,
    unprepare,
)

GONE = "00000000-0000-0000-0000-00000000dead"


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena(tmp_path / "cdi")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims wait for room only for a moment."""
    monkeypatch.setattr(preparing, "_ROOM_S", 0.05)


async def test_the_answer_has_each_device_and_the_cdi_device_of_its_request_once(
    arena: Arena,
) -> None:
    claim = await arena.add_claim("a", result(request="gpu/big"), result(SECOND, request="gpu/big"))

    answer = (await prepare(arena.preparer(), claim))[claim.uid]

    assert answer.error == ""
    share = result()["shareID"]
    assert [
        (list(one.request_names), one.pool_name, one.device_name, list(one.cdi_device_ids))
        for one in answer.devices
    ] == [
        (["gpu"], NODE, FIRST.name, [f"gpu.bindery.dev/share={claim.uid}-gpu"]),
        (["gpu"], NODE, SECOND.name, []),
    ]
    assert {one.share_id for one in answer.devices} == {share}
    assert list(arena.files()) == [cdi.file_name(claim.uid)]


async def test_preparing_twice_gives_the_same_answer_and_leaves_the_file(arena: Arena) -> None:
    claim = await arena.add_claim("a", result())
    first = await prepare(arena.preparer(), claim)
    [path] = arena.directory.iterdir()
    stamp, content = path.stat().st_mtime_ns, path.read_text()

    again = await prepare(arena.preparer(), claim)

    assert again == first
    assert (path.stat().st_mtime_ns, path.read_text()) == (stamp, content)


async def test_each_claim_has_its_own_error(arena: Arena) -> None:
    good = await arena.add_claim("good", result())
    waiting = await arena.add_claim("waiting")
    await arena.add_claim("replaced", result(memory="1Gi"))
    replaced = api.Claim(namespace="default", name="replaced", uid=GONE)
    missing = api.Claim(namespace="default", name="missing", uid="1" + GONE[1:])
    hostile = api.Claim(namespace="default", name="good", uid="../../etc/passwd")

    answers = await prepare(arena.preparer(), good, waiting, replaced, missing, hostile)

    errors = {uid: answer.error for uid, answer in answers.items()}
    assert errors[good.uid] == ""
    assert errors[waiting.uid] == "the claim is not allocated"
    assert errors[replaced.uid] == "another claim has this name now"
    assert "NotFound" in errors[missing.uid]
    assert errors[hostile.uid] == "another claim has this name now"
    assert list(arena.files()) == [cdi.file_name(good.uid)]


async def test_a_file_that_cannot_be_written_is_the_error_of_the_claim(arena: Arena) -> None:
    claim = await arena.add_claim("a", result())
    preparer = arena.preparer()
    (arena.directory / f".bindery-{claim.uid}").mkdir()

    answers = await prepare(preparer, claim)

    assert "Is a directory" in answers[claim.uid].error


async def test_claims_are_given_back_unknown_ones_too(arena: Arena) -> None:
    claim = await arena.add_claim("a", result())
    unknown = api.Claim(namespace="default", name="x", uid=GONE)
    await prepare(arena.preparer(), claim)

    # Another process, and the claim is deleted already.
    errors = await unprepare(arena.preparer(), claim, unknown)

    assert errors == {claim.uid: "", unknown.uid: ""}
    assert arena.files() == {}
    assert await unprepare(arena.preparer(), claim) == {claim.uid: ""}


async def test_a_wrong_uid_is_not_given_back(arena: Arena) -> None:
    wrong = api.Claim(namespace="default", name="x", uid="../x")

    errors = await unprepare(arena.preparer(), wrong)

    assert "not the UID" in errors["../x"]


async def test_a_gpu_is_never_given_out_twice(arena: Arena, short: None) -> None:
    first = await arena.add_claim("a", result(memory="50Gi"))
    second = await arena.add_claim("b", result(memory="50Gi"))
    preparer = arena.preparer()

    answers = await prepare(preparer, first, second)

    errors = sorted(answer.error for answer in answers.values())
    assert errors[0] == ""
    assert f"{FIRST.uuid} has no room for 51200 MiB and 30 %" in errors[1]
    assert len(arena.files()) == 1


async def test_a_claim_waits_until_the_room_it_was_given_is_free(arena: Arena) -> None:
    """As after a deletion by force: the claim is free before the containers have ended."""
    old = await arena.add_claim("old", result(memory="50Gi"))
    new = await arena.add_claim("new", result(memory="50Gi"))
    preparer = arena.preparer()
    await prepare(preparer, old)
    waiting = asyncio.create_task(prepare(preparer, new))
    await asyncio.sleep(0.02)
    assert not waiting.done()

    await unprepare(preparer, old)

    answer = await asyncio.wait_for(waiting, 60)
    assert answer[new.uid].error == ""
    assert list(arena.files()) == [cdi.file_name(new.uid)]


async def test_an_allocation_that_has_changed_replaces_the_file(arena: Arena) -> None:
    """A give-back that got lost: the file of the claim is older than its allocation."""
    claim = await arena.add_claim("a", result(memory="50Gi"))
    await prepare(arena.preparer(), claim)
    await arena.allocate("a", result(SECOND, memory="30Gi"))

    answers = await prepare(arena.preparer(), claim)

    assert [one.device_name for one in answers[claim.uid].devices] == [SECOND.name]
    [content] = arena.files().values()
    assert SECOND.uuid in content
    assert FIRST.uuid not in content


async def test_requests_for_one_claim_do_not_disturb_each_other(arena: Arena) -> None:
    claim = await arena.add_claim("a", result())
    preparer = arena.preparer()

    both = (prepare, unprepare)
    found = await asyncio.gather(*(both[each % 2](preparer, claim) for each in range(20)))

    assert {str(answer) for answer in found[::2]} == {str(found[0])}
    assert found[0][claim.uid].error == ""
    assert found[1::2] == [{claim.uid: ""}] * 10
    await unprepare(preparer, claim)
    assert arena.files() == {}


async def test_files_of_claims_that_are_gone_are_removed_at_the_start(arena: Arena) -> None:
    kept = await arena.add_claim("kept", result(memory="1Gi"))
    await prepare(arena.preparer(), kept)
    [content] = arena.files().values()
    files = {
        cdi.file_name(GONE): content,  # another claim has its name
        cdi.file_name("1" + GONE[1:]): content.replace('"kept"', '"gone"'),
        cdi.file_name("2" + GONE[1:]): "{",  # not written by this driver
        "nvidia.json": "{}",
        f".bindery-{GONE}": "half a fi",
    }
    for name, text in files.items():
        (arena.directory / name).write_text(text)

    await arena.preparer().sweep()

    assert sorted(arena.files()) == sorted(
        [cdi.file_name(kept.uid), cdi.file_name("2" + GONE[1:]), "nvidia.json"]
    )


async def test_a_file_without_an_answer_about_its_claim_stays_until_there_is_one(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_LOOK_AGAIN_S", 0.01)
    claim = await arena.add_claim("a", result())
    preparer = arena.preparer()
    await prepare(preparer, claim)
    arena.server.refuse = lambda _: forbidden("resourceclaims", "a", "not now")

    sweep = asyncio.create_task(preparer.sweep())
    await asyncio.sleep(0.05)
    assert not sweep.done()
    assert len(arena.files()) == 1
    assert "not now" in (await prepare(preparer, claim))[claim.uid].error

    arena.server.refuse = None
    await asyncio.wait_for(sweep, 60)
    assert len(arena.files()) == 1


async def test_a_gpu_that_is_gone_is_no_longer_prepared(arena: Arena) -> None:
    claim = await arena.add_claim("a", result(SECOND))
    arena.given.append(GPUS[:1])

    answers = await prepare(arena.preparer(), claim)

    assert f"has no device {SECOND.name}" in answers[claim.uid].error


async def test_a_pod_whose_container_uses_two_claims_with_shares_has_the_reason(
    arena: Arena,
) -> None:
    entries = [{"name": name, "resourceClaimName": name} for name in ("a", "b")]
    used = [{"name": "a"}, {"name": "b"}]
    container = {"name": "main", "image": "x", "resources": {"claims": used}}
    spec = {"containers": [container], "resourceClaims": entries}
    pod = arena.server.add(
        "pods", {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    )
    claims = [await arena.add_claim(name, result(memory="1Gi")) for name in ("a", "b")]
    consumer = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    gone = {"resource": "pods", "name": "gone", "uid": GONE}
    for claim in claims:
        await arena.reserve(claim.name, gone, consumer)

    answers = await prepare(arena.preparer(), *claims)

    for claim in claims:
        assert "container main of pod p uses several requests" in answers[claim.uid].error
    assert arena.files() == {}


def installed(tmp_path: Path) -> Arena:
    """Return an arena on a node with HAMi-core."""
    library = tmp_path / "usr/local/vgpu/libvgpu.so"
    library.parent.mkdir(parents=True)
    library.touch()
    return Arena(tmp_path / "cdi", node=tmp_path)


async def test_the_counts_of_a_request_are_kept_until_its_claim_is_given_back(
    tmp_path: Path,
) -> None:
    """All containers that use the request mount this directory, so one limit holds them all."""
    arena = installed(tmp_path)
    shared = tmp_path / "usr/local/vgpu/claims"
    first = await arena.add_claim("a", result(), result(SECOND, request="other"))
    second = await arena.add_claim("b", result())
    await prepare(arena.preparer(), first, second)
    (shared / f"{first.uid}_gpu" / "counts.cache").touch()

    await prepare(arena.preparer(), first)  # as after a restart of the kubelet

    assert (shared / f"{first.uid}_gpu" / "counts.cache").exists()
    await unprepare(arena.preparer(), second)
    left = {path.name for path in shared.iterdir()}
    assert left == {f"{first.uid}_gpu", f"{first.uid}_other"}
    await unprepare(arena.preparer(), first)
    assert list(shared.iterdir()) == []


async def test_the_directory_of_a_claim_that_was_never_prepared_goes_at_the_next_start(
    tmp_path: Path,
) -> None:
    arena = installed(tmp_path)
    left = tmp_path / "usr/local/vgpu/claims" / f"{GONE}_gpu"
    left.mkdir(parents=True)

    await arena.preparer().sweep()

    assert not left.exists()


async def test_admin_access_has_no_counts(tmp_path: Path) -> None:
    arena = installed(tmp_path)
    claim = await arena.add_claim("a", result(adminAccess=True, consumedCapacity={}))

    await prepare(arena.preparer(), claim)

    assert not (tmp_path / "usr/local/vgpu/claims").exists()
