"""A client whose certificate is replaced while its requests and watches are under way."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bindery.kube.access.credentials import Credentials
from bindery.kube.client import Client
from bindery.kube.errors import ConfigurationError
from bindery.kube.http.requests import Selection
from bindery.kube.objects.resources import CONFIG_MAPS
from bindery.nodecore.certificates.requests import Template
from tests.kube.mirror import wait_until
from tests.signing import SigningAuthority

EVENT = b'{"type":"BOOKMARK"}\n'


class Server:
    """Answers with the user of the client's certificate; requests of `slow` wait for `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.open: list[str] = []
        """The users of the open connections."""
        self.waiting = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subject = writer.get_extra_info("peercert")["subject"]
        user = dict(pair for (pair,) in subject)["commonName"]
        self.open.append(user)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"watch=true" in head:
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    writer.write(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                    continue
                if b"/slow" in head:
                    self.waiting += 1
                    await self.go.wait()
                body = json.dumps({"metadata": {"name": user}}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.remove(user)
            writer.close()


@pytest.fixture(scope="module")
def authority() -> SigningAuthority:
    return SigningAuthority()


@pytest.fixture
def pair(tmp_path: Path, authority: SigningAuthority) -> Path:
    return authority.write(Template("old"), tmp_path / "pair.pem")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def credentials(
    tmp_path: Path, authority: SigningAuthority, pair: Path, server: Server
) -> AsyncIterator[Credentials]:
    """The credentials for `server`, which serves."""
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    own = authority.write(Template("server", ip_addresses=("127.0.0.1",)), tmp_path / "server.pem")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(own)
    serving = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    port = serving.sockets[0].getsockname()[1]
    kubeconfig = {
        "clusters": [{"name": "it", "cluster": {
            "server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.pem"}}],
        "users": [{"name": "it", "user": {
            "client-certificate": str(pair), "client-key": str(pair)}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }  # fmt: skip
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    async with serving:
        yield await Credentials.load(tmp_path / "kubeconfig")


@pytest.fixture
async def client(credentials: Credentials) -> AsyncIterator[Client]:
    async with Client.connect(credentials=credentials, user_agent="bindery-test/0") as made:
        yield made


async def user_of(client: Client, name: str = "quick") -> str:
    return (await client.get(CONFIG_MAPS, name, "default")).metadata.name


async def test_new_requests_have_the_new_certificate_and_old_ones_are_answered(
    client: Client, credentials: Credentials, server: Server, authority: SigningAuthority,
    pair: Path,
) -> None:  # fmt: skip
    assert await user_of(client) == "old"
    slow = asyncio.create_task(user_of(client, "slow"))
    await wait_until(lambda: server.waiting == 1)

    authority.write(Template("new"), pair)
    await credentials.reload()

    assert await user_of(client) == "new"
    assert not slow.done()
    server.go.set()
    assert await slow == "old"
    await wait_until(lambda: server.open == ["new"])


async def test_a_watch_ends_without_an_error_and_the_next_has_the_new_certificate(
    client: Client, credentials: Credentials, server: Server, authority: SigningAuthority,
    pair: Path,
) -> None:  # fmt: skip
    def watch() -> AsyncIterator[bytes]:
        return client.watch(CONFIG_MAPS, Selection(), resource_version="1", timeout_s=60, idle_s=30)

    seen: list[bytes] = []

    async def follow() -> None:
        seen.extend([line async for line in watch()])

    following = asyncio.create_task(follow())
    await wait_until(lambda: server.open == ["old"])
    authority.write(Template("new"), pair)
    await credentials.reload()
    await following

    following = asyncio.create_task(follow())
    await wait_until(lambda: server.open == ["new"])
    following.cancel()


def mix(authority: SigningAuthority, pair: Path) -> None:
    """Write a certificate with the key of another."""
    mark = b"-----BEGIN PRIVATE"
    one, other = authority.pair(Template("new")), authority.pair(Template("new"))
    pair.write_bytes(one[: one.index(mark)] + other[other.index(mark) :])


async def test_a_pair_that_does_not_fit_is_refused_and_the_old_one_stays(
    client: Client, credentials: Credentials, authority: SigningAuthority, pair: Path
) -> None:
    mix(authority, pair)

    with pytest.raises(ConfigurationError, match="no matching pair"):
        await credentials.reload()

    assert await user_of(client) == "old"
