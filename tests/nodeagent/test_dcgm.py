"""The use of GPUs by DCGM's exporter, from a transcribed answer that is served on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bindery.nodeagent.devices import dcgm
from bindery.nodeagent.devices.dcgm import DcgmExporter
from bindery.nodeagent.devices.inventory import DevicesUnreadableError, UseReading

ANSWER = Path(__file__).parent / "dcgm" / "dgx-a100.prom"
"""Transcribed, not recorded on hardware; the file names its sources."""
UUIDS = [f"GPU-{n:08x}-5a1c-4d1e-9b7f-0242ac1100{n:02x}" for n in range(3)]


@asynccontextmanager
async def served(text: str, status: int = 200) -> AsyncIterator[str]:
    """Serve an answer; yields its address."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    application = web.Application()
    application.router.add_get("/metrics", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    _, port = runner.addresses[0]
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        await runner.cleanup()


async def transcribed() -> UseReading:
    async with served(ANSWER.read_text()) as url:
        return await DcgmExporter(url).use()


async def test_each_gpu_and_mig_instance_has_the_greater_of_both_metrics() -> None:
    """Ratios are rounded up: GPU 1 worked in 0.13 % of the time. GPU 2 works if a part does."""
    assert (await transcribed()).percents == {
        UUIDS[0]: 97,
        UUIDS[1]: 1,
        UUIDS[2]: 35,
        f"{UUIDS[2]}/2": 35,
        f"{UUIDS[2]}/9": 0,
    }


async def test_the_series_name_the_pods_as_far_as_the_exporter_knows_them() -> None:
    assert (await transcribed()).holders == {
        ("team-a", "train-0"): {UUIDS[0]},
        ("team-b", "lab"): {UUIDS[0]},
        ("team-a", "train-1"): {f"{UUIDS[2]}/2"},
        ("team-b", "small"): {f"{UUIDS[2]}/9"},
    }


def test_the_labels_of_the_exporters_first_versions_are_read() -> None:
    labels = 'gpu="0",uuid="GPU-a",pod_name="p",pod_namespace="n",container_name="c"'

    found = dcgm.read(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 12\n")

    assert found == UseReading({"GPU-a": 12}, {("n", "p"): frozenset({"GPU-a"})})


@pytest.mark.parametrize(("value", "percent"), [("1.7", 100), ("-1", 0), ("0.02", 2)])
def test_a_ratio_out_of_range_is_brought_into_it(value: str, percent: int) -> None:
    found = dcgm.read(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="a"}} {value}\n')

    assert found.percents == {"a": percent}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither"),
        ('DCGM_FI_DEV_SM_CLOCK{UUID="a"} 1410\n', "neither"),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="a"} NaN\n', "neither"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 5\n', "neither"),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="a"} many\n', "many"),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="a\n', "metrics"),
    ],
)
async def test_an_answer_without_the_use_of_a_gpu_is_reported(text: str, reason: str) -> None:
    async with served(text) as url:
        with pytest.raises(DevicesUnreadableError, match=reason):
            await DcgmExporter(url).use()


async def test_an_exporter_that_is_away_or_answers_with_an_error_is_reported() -> None:
    async with served("", status=503) as url:
        with pytest.raises(DevicesUnreadableError, match=r"DCGM's exporter at .*503"):
            await DcgmExporter(url).use()
    with pytest.raises(DevicesUnreadableError, match="DCGM's exporter at"):
        await DcgmExporter(url).use()
