"""Requests to a server that accepts connections and does not answer."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bindery.kube.client import Client
from bindery.kube.errors import ConfigurationError, OutcomeUnknownError, UnreachableError
from bindery.kube.objects.resources import CONFIG_MAPS


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def kubeconfig(directory: Path, server: str) -> Path:
    path = directory / "kubeconfig"
    cluster = {"name": "it", "cluster": {"server": server, "insecure-skip-tls-verify": True}}
    context = {"name": "it", "context": {"cluster": "it"}}
    path.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "it"})
    )
    return path


@pytest.mark.parametrize("is_command", [False, True], ids=["process", "command"])
@pytest.mark.parametrize(
    ("scheme", "error"), [("https", UnreachableError), ("http", OutcomeUnknownError)]
)
async def test_the_outcome_is_unknown_only_after_something_was_sent(
    tmp_path: Path, port: int, scheme: str, error: type[Exception], is_command: bool
) -> None:
    """With TLS the handshake does not end, so that nothing of the request leaves."""
    path = kubeconfig(tmp_path, f"{scheme}://127.0.0.1:{port}")
    async with Client.connect(
        path, user_agent="bindery-test/0", request_timeout_s=0.3, is_command=is_command
    ) as client:
        with pytest.raises(error, match="no answer"):
            await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default")


async def test_an_invalid_address_is_a_configuration_error(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:99999")

    with pytest.raises(ConfigurationError, match="99999"):
        await Client.connect(path, user_agent="bindery-test/0", is_command=True)
