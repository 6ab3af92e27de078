"""What a cloud provider knows of a node comes from a file or a URL, and stays through failures."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bindery.kube.objects.watched import Meta
from bindery.nodeagent import node_objects
from bindery.nodeagent.identity.cloud import (
    CloudRequestManager,
    FileProvider,
    UrlProvider,
    instance_of,
)
from bindery.nodeagent.node_objects import AgentNode, AgentNodeSpec
from bindery.nodeagent.shapes import ManagedNode, NodeShape, expand
from bindery.nodecore.addresses import Address, AddressError, Instance

FACTS: dict[str, Any] = {
    "providerID": "aws:///a/i-1",
    "instanceType": "p5.48xlarge",
    "zone": "eu-1a",
    "region": "eu-1",
    "addresses": [
        {"type": "InternalIP", "address": "10.0.0.7"},
        {"type": "ExternalIP", "address": "203.0.113.7"},
    ],
}


@pytest.fixture
def node() -> ManagedNode:
    (made,) = expand((NodeShape(count=1),))
    return made


class Polled:
    """A provider whose next answer a test gives; a pause is noted, and the last one ends."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.pauses: list[float] = []

    async def answer(self) -> bytes:
        if not self.answers:
            raise asyncio.CancelledError
        if (found := self.answers.pop(0)) is None:
            raise AddressError("no route")
        return found

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def given(**facts: object) -> bytes:
    return json.dumps({**FACTS, **facts}).encode()


async def test_a_node_has_what_its_provider_knows(tmp_path: Path, node: ManagedNode) -> None:
    file = tmp_path / "node.json"
    file.write_bytes(given())
    cloud = CloudRequestManager(FileProvider(file))

    await cloud.wait()
    found = cloud.described(node)

    body = node_objects.node_body(found, 0.0)
    assert body["spec"] == {"providerID": "aws:///a/i-1"}
    assert (
        body["metadata"]["labels"].items()
        >= {
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "topology.kubernetes.io/zone": "eu-1a",
            "topology.kubernetes.io/region": "eu-1",
            "failure-domain.beta.kubernetes.io/zone": "eu-1a",
        }.items()
    )
    assert body["status"]["addresses"] == [
        {"type": "InternalIP", "address": "10.0.0.7"},
        {"type": "ExternalIP", "address": "203.0.113.7"},
        {"type": "Hostname", "address": node.name},
    ]
    assert cloud.described(found) == found


async def test_the_first_answer_is_waited_for_and_the_last_good_one_stays(
    node: ManagedNode,
) -> None:
    provider = Polled(None, b"{", given(), None, b"[]", given(zone="eu-1b"))
    cloud = CloudRequestManager(provider, provider.pause)
    await cloud.wait()
    assert provider.pauses == [10.0, 10.0]

    changes: list[str] = []
    with pytest.raises(asyncio.CancelledError):
        await cloud.run(
            lambda: changes.append(cloud.described(node).labels["topology.kubernetes.io/zone"])
        )

    assert changes == ["eu-1b"]


async def test_a_provider_without_addresses_leaves_those_of_the_node(node: ManagedNode) -> None:
    provider = Polled(b'{"zone": "eu-1a"}')
    cloud = CloudRequestManager(provider, provider.pause)
    await cloud.wait()

    assert node_objects.addresses(cloud.described(node)) == (
        Address("InternalIP", node.address),
        Address("Hostname", node.name),
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"[]",
        b'{"zone": "eu 1"}',
        b'{"zone": 1}',
        b'{"zones": "eu-1"}',
        given(addresses=[{"type": "InternalIP", "address": "ten"}]),
        given(addresses=[{"type": "IP", "address": "10.0.0.1"}]),
        given(addresses=[{"type": "Hostname", "address": ""}]),
    ],
)
def test_what_is_no_such_json_is_refused(answer: bytes) -> None:
    with pytest.raises(AddressError):
        instance_of(answer)


def test_all_keys_may_be_missing() -> None:
    assert instance_of(b"{}") == Instance()


@pytest.mark.parametrize(
    ("present", "patch"), [("", {"spec": {"providerID": "a://1"}}), ("a://0", None)]
)
def test_the_id_of_a_node_is_written_once(node: ManagedNode, present: str, patch: object) -> None:
    stored = AgentNode(
        metadata=Meta(name=node.name, labels=node.labels),
        spec=AgentNodeSpec(provider_id=present),
    )

    assert node_objects.own_patch(replace(node, provider_id="a://1"), stored) == patch


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server that answers once, and then with an error."""
    answers = [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Busy\r\n"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head, body = answers.pop(0), given()
        writer.write(head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/node"


async def test_a_url_answers_with_the_same_json(url: str) -> None:
    provider = UrlProvider(url)

    assert instance_of(await provider.answer()).provider_id == "aws:///a/i-1"
    with pytest.raises(AddressError, match="503"):
        await provider.answer()


async def test_an_error_of_a_provider_names_it(tmp_path: Path) -> None:
    with pytest.raises(AddressError, match=r"none\.json: No such file"):
        await FileProvider(tmp_path / "none.json").answer()
    with pytest.raises(AddressError, match="http://127"):
        await UrlProvider("http://127.0.0.1:1/").answer()
