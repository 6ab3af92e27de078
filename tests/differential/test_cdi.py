"""The CDI files of claims, read and injected by the library of containerd."""

import random
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from bindery.kube.objects.claims import ResourceClaim
from bindery.nodeagent.gpuclaims import cdi, grants
from bindery.nodeagent.gpuclaims.cdi import ClaimOnNode
from bindery.nodeagent.gpuclaims.specfiles import SpecFiles
from bindery.nodeagent.hamicore import HamiCore
from devcluster import build
from tests.goprograms import ask
from tests.nodeagent.gpuclaims.claimedgpus import FIRST, GPUS, NODE, SECOND, result
from tests.sizes import IS_LONG

CLAIMS = 2000 if IS_LONG else 200
OWN = ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_DEVICE_MEMORY_LIMIT_0=999999m"]
"""Variables of an image, or of a pod that asks for more than its claim."""
NAMES = ("gpu", "0", "a-1", "x" * 63)


def shares(claim: Mapping[str, Any]) -> tuple[grants.GrantedShare, ...]:
    body = {"status": {"allocation": {"devices": {"results": claim["results"]}}}}
    return grants.grants(msgspec.convert(body, ResourceClaim), NODE, GPUS)


def drawn(chance: random.Random) -> dict[str, Any]:
    """Return a claim with some results, and a request of it."""
    results = [
        result(
            chance.choice(GPUS),
            chance.choice(NAMES),
            f"{chance.randint(1, 40960)}Mi",
            str(chance.randint(1, 100)),
        )
        for _ in range(chance.randint(1, 6))
    ]
    uid = "-".join(f"{chance.getrandbits(4 * size):0{size}x}" for size in (8, 4, 4, 4, 12))
    return {"uid": uid, "results": results, "request": chance.choice(results)["request"]}


def test_containerds_library_gives_containers_what_their_claims_hold(tmp_path: Path) -> None:
    chance = random.Random(5)
    files = SpecFiles(tmp_path)
    claims = [drawn(chance) for _ in range(CLAIMS)]
    for claim in claims:
        core = HamiCore(PurePosixPath("/usr/local"), is_installed=chance.random() < 0.5)
        key = ClaimOnNode("team", "x" * chance.randint(1, 253), claim["uid"])
        files.write(claim["uid"], cdi.text(key, shares(claim), core))
    asked = [
        {
            "directory": str(tmp_path),
            "devices": [cdi.device_id(claim["uid"], claim["request"])],
            "env": OWN,
        }
        for claim in claims
    ]

    answers = ask("cdi", asked, build.CONTAINERS_MODULE)

    for claim, answer in zip(claims, answers, strict=True):
        assert answer["errors"] == []
        held = [share for share in shares(claim) if share.request == claim["request"]]
        variables = dict(each.split("=", 1) for each in answer["env"])
        variables.pop("CUDA_DEVICE_MEMORY_SHARED_CACHE", None)
        assert variables == {"PATH": "/bin", **grants.variables(held)}
        assert len(answer["env"]) == len({each.partition("=")[0] for each in answer["env"]})


def test_the_library_is_injected_once(tmp_path: Path) -> None:
    claim = {"results": [result(FIRST), result(SECOND)]}
    uid = "00000000-0000-0000-0000-000000000001"
    key = ClaimOnNode("team", "a", uid)
    core = HamiCore(PurePosixPath("/usr/local"), is_installed=True)
    SpecFiles(tmp_path).write(uid, cdi.text(key, shares(claim), core))

    device = cdi.device_id(uid, "gpu")
    [answer] = ask(
        "cdi",
        [{"directory": str(tmp_path), "devices": [device], "env": []}],
        build.CONTAINERS_MODULE,
    )

    assert answer["errors"] == []
    assert sorted(answer["mounts"]) == [
        "/etc/ld.so.preload",
        "/tmp/vgpulock",
        "/usr/local/vgpu",
        "/usr/local/vgpu/libvgpu.so",
    ]


def test_a_device_that_was_given_back_is_refused(tmp_path: Path) -> None:
    device = cdi.device_id("00000000-0000-0000-0000-000000000001", "gpu")

    [answer] = ask(
        "cdi",
        [{"directory": str(tmp_path), "devices": [device], "env": []}],
        build.CONTAINERS_MODULE,
    )

    assert answer["errors"] == [f"unresolvable CDI devices {device}"]
