"""A node with a kubelet's sockets in a directory of its own."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.nodeagent.kubeletside.socketworld import SocketWorld


@pytest.fixture
async def world() -> AsyncIterator[SocketWorld]:
    # The path of a socket has at most 107 characters.
    with TemporaryDirectory() as directory:
        made = SocketWorld(Path(directory))
        await made.start()
        yield made
        await made.stop()
