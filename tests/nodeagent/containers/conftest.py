"""A fake runtime that serves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.nodeagent.containers.fakeruntime import FakeRuntime


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[FakeRuntime]:
    async with FakeRuntime(tmp_path / "cri.sock") as serving:
        yield serving
