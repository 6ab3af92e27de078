"""The loop of a certificate: it is signed, refused, forgotten, changed, and killed at any step."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from bindery.nodeagent.identity.signing import CLIENT, SigningStatus
from bindery.nodecore.certificates.requests import Template
from bindery.nodecore.certificates.rotation import CERTIFICATE_TIMEOUT_S
from bindery.nodecore.certificates.store import DirectoryFiles
from tests.nodeagent.identity.signer import LIFE_S, NODE, Node, wait
from tests.signing import START_S

EXPIRATION = "bindery_nodeagent_certificate_expiration_timestamp_seconds"
OTHER = Template(NODE.common_name, ip_addresses=("10.0.0.2",))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.start()
    return made


def key_left(node: Node) -> bool:
    return node.files.exists(CLIENT.key_file)


async def test_the_first_certificate_is_requested_and_kept(node: Node) -> None:
    await node.loop.step()

    assert node.template_held == NODE
    assert [pair.leaf.not_after_s for pair in node.signed] == [node.signed[0].leaf.not_after_s]
    assert REGISTRY.get_sample_value(EXPIRATION, {"certificate": "client"}) == (
        node.signed[0].leaf.not_after_s
    )
    assert not key_left(node)


@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.7), (1.0, 0.9)])
async def test_a_certificate_is_rotated_in_the_last_third_of_its_life(
    node: Node, draw: float, share: float
) -> None:
    node.draw = draw
    await node.steps_until(START_S + LIFE_S)

    first, second = node.server.times[:2]
    assert second - first == pytest.approx(share * LIFE_S, abs=5)
    assert len(set(node.server.sent)) == len(node.server.sent)


async def test_a_refused_request_is_followed_by_others_with_new_keys_and_growing_pauses(
    node: Node,
) -> None:
    node.server.judge = node.server.deny
    await node.steps_until(START_S + 100)

    pauses = [int(b - a) for a, b in zip(node.server.times, node.server.times[1:], strict=False)]
    assert pauses[:6] == [2, 4, 8, 16, 32, 32]
    assert len(set(node.server.sent)) == len(node.server.sent)
    assert node.complaints[0] == (
        "the request for the client certificate: Denied: Stranger: not known"
    )
    assert not node.signed


async def test_a_request_without_an_answer_stays_the_only_one(node: Node) -> None:
    node.server.judge = wait
    await node.steps_until(START_S + 3 * CERTIFICATE_TIMEOUT_S)
    assert len(node.server.sent) >= 3
    assert len(node.server.requests) == 1

    node.server.judge = node.server.sign
    await node.steps_until(node.now + 60)

    assert node.template_held == NODE
    assert len(node.server.requests) == 1


async def test_a_request_is_given_up_when_the_addresses_change(node: Node) -> None:
    node.server.judge = wait

    def change() -> None:
        if node.now > START_S + 50:
            node.template, node.server.judge = OTHER, node.server.sign

    node.on_pause = change
    await node.steps_until(START_S + 100)

    assert node.template_held == OTHER
    assert len(node.server.requests) == 2


async def test_a_certificate_without_a_new_address_is_replaced(node: Node) -> None:
    await node.steps_until(START_S + 10)
    node.template = OTHER

    await node.steps_until(node.now + 3)

    assert node.template_held == OTHER


async def test_nothing_is_requested_while_the_node_has_no_address(node: Node) -> None:
    node.template = None

    await node.steps_until(START_S + 60)

    assert node.server.sent == []


async def test_a_removed_request_is_sent_again_with_another_key(node: Node) -> None:
    node.server.judge = wait

    def remove() -> None:
        if node.now > START_S + 20:
            node.server.judge = node.server.sign
            if len(node.server.sent) == 1:
                node.server.requests.clear()

    node.on_pause = remove
    await node.steps_until(START_S + 60)

    assert node.template_held == NODE
    assert len(set(node.server.sent)) == 2


async def test_an_unreachable_server_is_asked_again_with_the_same_key(node: Node) -> None:
    node.server.is_reachable = False
    await node.steps_until(START_S + 40)
    assert len(node.server.times) >= 4
    assert not node.manager.is_server_healthy

    node.server.is_reachable = True
    await node.steps_until(node.now + 40)

    assert len(node.server.requests) == 1
    assert node.template_held == NODE


async def test_an_expired_certificate_is_not_used(node: Node) -> None:
    node.server.judge = lambda name: node.server.sign(name, life_s=60, ago_s=100)
    await node.steps_until(START_S + 3)

    assert node.signed == []
    assert node.manager.current() is None


async def test_a_certificate_without_all_names_is_not_used(node: Node) -> None:
    await node.steps_until(START_S + 3)
    narrow: SigningStatus = node.server.requests[node.server.sent[0]].status
    node.template, node.server.judge = OTHER, lambda _: narrow

    await node.steps_until(node.now + 60)

    assert node.template_held == NODE
    assert 4 <= len(node.server.sent) <= 8


async def test_a_new_process_replaces_a_certificate_that_expired_while_it_was_off(
    node: Node,
) -> None:
    await node.steps_until(START_S + 5)
    node.now += 2 * LIFE_S
    node.start()
    assert node.manager.current() is None

    await node.loop.step()

    assert node.manager.current() is not None


async def test_a_new_process_finds_the_open_request(node: Node) -> None:
    node.server.judge = wait
    with pytest.raises(Killed):
        await killed_at(node, START_S + 100)
    node.server.judge = node.server.sign
    node.start()

    await node.loop.step()

    assert node.template_held == NODE
    assert len(node.server.requests) == 1
    assert not key_left(node)


async def test_a_key_that_is_half_written_is_replaced(node: Node) -> None:
    node.files.write(CLIENT.key_file, b"-----BEGIN PRIVATE KEY-----\nMIGH")

    await node.loop.step()

    assert node.template_held == NODE


class Killed(BaseException):
    """The process ends here."""


async def killed_at(node: Node, time_s: float) -> None:
    def kill() -> None:
        if node.now >= time_s:
            node.on_pause = lambda: None
            raise Killed

    node.on_pause = kill
    await node.steps_until(time_s + 1)


class KilledFiles(DirectoryFiles):
    """Ends the process at its change number `at`, before it or, when writing, in the middle."""

    def __init__(self, directory: Path, at: int, *, is_halfway: bool) -> None:
        super().__init__(directory)
        self.left, self.is_halfway = at, is_halfway

    def write(self, name: str, blob: bytes) -> None:
        if self.left == 0 and self.is_halfway:
            super().write(name, blob[: len(blob) // 2])
        self._count()
        super().write(name, blob)

    def link(self, name: str, target: str) -> None:
        self._count()
        super().link(name, target)

    def rename(self, name: str, to: str) -> None:
        self._count()
        super().rename(name, to)

    def remove(self, name: str) -> None:
        self._count()
        super().remove(name)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


@pytest.mark.parametrize("is_halfway", [False, True])
@pytest.mark.parametrize("at", range(5))
async def test_a_process_that_is_killed_at_any_change_gets_a_certificate_at_its_next_start(
    tmp_path: Path, at: int, is_halfway: bool
) -> None:
    node = Node(tmp_path)
    node.files = KilledFiles(tmp_path, at, is_halfway=is_halfway)
    node.start()
    with pytest.raises(Killed):
        await node.loop.step()
    node.files = DirectoryFiles(tmp_path)
    node.now += 2  # names of files have seconds
    node.start()

    await node.loop.step()

    assert node.manager.current() is not None
    assert node.template_held == NODE
    assert len(node.server.requests) == 1 or (is_halfway and at == 0)

    await node.steps_until(node.now + LIFE_S)
    assert len(node.server.requests) > 1, "the next rotation has another key"
    assert not key_left(node)
