"""The certificates of a node on a real API server; the test is the signer and approves."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from bindery.kube.access.credentials import Credentials
from bindery.kube.access.pem import key_pem
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.objects.resources import Resource
from bindery.nodeagent.identity.errors import IdentityError
from bindery.nodeagent.identity.process import IdentityOptions, IdentitySurroundings, NodeIdentity
from bindery.nodeagent.identity.signing import CLIENT, SERVING, SIGNING_REQUESTS
from bindery.nodecore.addresses import Address
from bindery.nodecore.certificates.requests import Template, client_template, request_pem
from bindery.nodecore.certificates.store import CertificateStore, DirectoryFiles
from devcluster.plane import ControlPlane
from tests.kube.mirror import WAIT_S, wait_until
from tests.signing import START_S, SigningAuthority, new_key

pytestmark = pytest.mark.e2e

NODE = "node-a"
ADDRESSES = (Address("InternalIP", "127.0.0.1"), Address("Hostname", NODE))
NOW_S = START_S + 86400.0


class Node:
    """A node whose clock only its pauses move."""

    def __init__(self, directory: Path, bootstrap: Path) -> None:
        self.now = NOW_S
        self.options = IdentityOptions(
            NODE, bootstrap, directory / "pki", directory / "kubeconfig", "bindery-test/0"
        )

    def start(self) -> NodeIdentity:
        environment = Environment(lambda: self.now, Random(1))
        return NodeIdentity(
            self.options, IdentitySurroundings(environment, lambda: ADDRESSES, self.pause)
        )

    async def pause(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0.01)


@pytest.fixture
def node(tmp_path: Path, control_plane: ControlPlane) -> Node:
    return Node(tmp_path, control_plane.admin_kubeconfig)


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.connect(control_plane.admin_kubeconfig, user_agent="bindery-test/0") as made:
        for each in await made.list(SIGNING_REQUESTS):
            await made.delete(SIGNING_REQUESTS, each.metadata.name)
        yield made


async def sign(client: Client, signer: str, authority: SigningAuthority) -> dict[str, Any]:
    """Approve and sign the first request for `signer`; return its spec."""
    raw: Resource[Any] = SIGNING_REQUESTS.decoded_as(dict)  # with all fields
    while True:
        for each in await client.list(SIGNING_REQUESTS):
            found: Any = await client.get(raw, each.metadata.name)
            if found["spec"]["signerName"] == signer and "certificate" not in found["status"]:
                approved = {"type": "Approved", "status": "True", "reason": "Test", "message": ""}
                found["status"]["conditions"] = [approved]
                name = each.metadata.name
                found = await client.replace(raw, name, found, subresource="approval")
                pem = authority.sign(base64.b64decode(found["spec"]["request"]))
                found["status"]["certificate"] = base64.b64encode(pem).decode()
                await client.replace(raw, name, found, subresource="status")
                spec: dict[str, Any] = found["spec"]
                return spec
        await asyncio.sleep(0.05)


async def test_a_node_joins_with_bootstrap_credentials_and_needs_them_once(
    client: Client, node: Node
) -> None:
    identity = node.start()
    joining = asyncio.create_task(identity.join())
    spec = await sign(client, CLIENT.signer, SigningAuthority())
    await joining

    assert (spec["usages"], len(await client.list(SIGNING_REQUESTS))) == (
        ["digital signature", "client auth"], 1,
    )  # fmt: skip
    written = yaml.safe_load(identity.kubeconfig.read_text())
    pem = str(node.options.directory / "kubelet-client-current.pem")
    assert written["users"][0]["user"] == {"client-certificate": pem, "client-key": pem}
    assert identity.kubeconfig.stat().st_mode & 0o777 == 0o600
    await Credentials.load(identity.kubeconfig)
    await node.start().join()
    assert len(await client.list(SIGNING_REQUESTS)) == 1


async def test_a_certificate_of_another_node_is_replaced(client: Client, node: Node) -> None:
    keep(node, client_template("node-b"), SigningAuthority())
    identity = node.start()

    joining = asyncio.create_task(identity.join())
    await sign(client, CLIENT.signer, SigningAuthority())

    await joining


@pytest.mark.parametrize("content", ["", "half a certifi"])
async def test_an_unreadable_certificate_is_replaced(
    client: Client, node: Node, content: str
) -> None:
    keep(node, client_template(NODE), SigningAuthority())
    node.options.pem.resolve().write_text(content)
    identity = node.start()

    joining = asyncio.create_task(identity.join())
    await sign(client, CLIENT.signer, SigningAuthority())

    await joining


def keep(
    node: Node, template: Template, authority: SigningAuthority, end_s: float = NOW_S * 2
) -> None:
    """Give the node a client certificate."""
    key = new_key()
    certificate = authority.sign(request_pem(key, template), end_s=end_s)
    files = DirectoryFiles(node.options.directory)
    CertificateStore(files, CLIENT.prefix, lambda: NOW_S).update(certificate, key_pem(key))


def test_another_kubeconfig_is_not_replaced(node: Node, control_plane: ControlPlane) -> None:
    text = control_plane.admin_kubeconfig.read_text()
    node.options.kubeconfig.write_text(text)

    with pytest.raises(IdentityError, match="does not use"):
        node.start()

    assert node.options.kubeconfig.read_text() == text


def serving_context(directory: Path) -> ssl.SSLContext:
    """Return the settings of a server with a certificate that no authority has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = SigningAuthority().write(Template("own"), directory / "own.pem")
    context.load_cert_chain(own)
    return context


async def user_of_server(port: int) -> str:
    """Return the user of the server's certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found = x509.load_der_x509_certificate(
        writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    )
    writer.close()
    (name,) = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


async def until_served(port: int, user: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if await user_of_server(port) == user:
                return
            await asyncio.sleep(0.05)


async def test_a_server_has_the_serving_certificate_once_it_is_approved(
    client: Client, node: Node, control_plane: ControlPlane, tmp_path: Path
) -> None:
    keep(node, client_template(NODE), SigningAuthority())
    identity = node.start()
    identity.use(client, await Credentials.load(control_plane.admin_kubeconfig))
    context = serving_context(tmp_path)
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    identity.serve(context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        running = asyncio.create_task(identity.run(asyncio.Event()))
        assert await user_of_server(port) == "own"

        spec = await sign(client, SERVING.signer, SigningAuthority())
        await until_served(port, f"system:node:{NODE}")
        running.cancel()
    assert spec["usages"] == ["digital signature", "server auth"]


async def test_the_agent_ends_when_its_certificate_has_expired_and_the_server_answers(
    client: Client, node: Node, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The bootstrap token is not valid any more: a new start may find another."""
    kubeconfig = yaml.safe_load(control_plane.admin_kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": "ended"}
    stale = tmp_path / "bootstrap"
    stale.write_text(json.dumps(kubeconfig))
    node = Node(tmp_path, stale)
    keep(node, client_template(NODE), SigningAuthority(), end_s=NOW_S - 1)
    identity, stop = node.start(), asyncio.Event()
    identity.use(client, await Credentials.load(control_plane.admin_kubeconfig))

    running = asyncio.create_task(identity.run(stop))
    await wait_until(stop.is_set)

    await running
    assert "expired" in identity.problem
