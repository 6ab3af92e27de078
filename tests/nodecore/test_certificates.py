"""The certificate manager: requests, rotation, and the pair that is used after any crash."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.addresses import Address
from bindery.nodecore.certificates import bootstrap, rotation
from bindery.nodecore.certificates.requests import (
    CertificateError,
    Leaf,
    Template,
    client_template,
    digested_name,
    leaf_of,
    names_of,
    request_pem,
    serving_template,
    usages,
)
from bindery.nodecore.certificates.rotation import (
    CertificateManager,
    ConnectionWatcher,
    ServerAnswer,
    TransportAction,
    deadline_s,
    wait_s,
)
from bindery.nodecore.certificates.store import (
    CertificateStore,
    DirectoryFiles,
    NoPairError,
    Pair,
    pair_of,
)
from tests.nodecore.kubelettables import Json, cases

DAY_S = 86400.0
KEY = ec.derive_private_key(7, ec.SECP256R1())
KEY_PEM = KEY.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.TraditionalOpenSSL,
    serialization.NoEncryption(),
)
NODE = client_template("node")


def addresses(found: list[list[str]]) -> list[Address]:
    return [Address(kind, address) for kind, address in found]


def signed(template: Template = NODE, start_s: float = 0, end_s: float = 10 * DAY_S) -> bytes:
    """Return the certificate that a signer makes of the template's request."""
    request = x509.load_pem_x509_csr(request_pem(KEY, template))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(request.subject)
        .public_key(request.public_key())
        .serial_number(1)
        .not_valid_before(datetime.fromtimestamp(start_s, UTC))
        .not_valid_after(datetime.fromtimestamp(end_s, UTC))
    )
    for extension in request.extensions:
        certificate = certificate.add_extension(extension.value, extension.critical)
    return certificate.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@cases("certificates", "names")
def test_addresses_become_names(case: Json) -> None:
    found = names_of(addresses(case["addresses"]))

    assert found == (tuple(case["dns_names"]), tuple(case["ips"]))


@cases("certificates", "templates")
def test_a_serving_certificate_needs_an_address(case: Json) -> None:
    found = serving_template(
        "fake-node", addresses(case["addresses"]), allow_dns_only=case["allow_dns_only"]
    )
    wanted = case["template"]
    assert found == (
        wanted
        and Template(
            wanted["common_name"],
            tuple(wanted["organizations"]),
            tuple(wanted["dns_names"]),
            tuple(wanted["ips"]),
        )
    )


def template(found: Json) -> Template:
    return Template(
        found["common_name"],
        tuple(found["organizations"]),
        tuple(found["dns_names"]),
        tuple(found["ip_addresses"]),
    )


@cases("certificates", "satisfied")
def test_a_certificate_must_satisfy_the_template(case: Json) -> None:
    leaf = Leaf(template(case["certificate"]), 0.0, 1.0)

    assert leaf.satisfies(template(case["template"])) is case["satisfied"]


@cases("certificates", "deadlines")
def test_a_certificate_is_rotated_after_seven_tenths_of_its_life(case: Json) -> None:
    before, after = case["before"], case["after"]

    found = deadline_s(Leaf(client_template("node"), before, after), jitter=0.0)

    assert found == pytest.approx(before + (after - before) * 0.7)


def test_a_request_asks_for_all_names() -> None:
    wanted = Template("system:node:a", dns_names=("a.local",), ip_addresses=("10.0.0.1", "fd00::1"))

    assert leaf_of(signed(wanted, 100, 200)) == Leaf(wanted, 100, 200)
    assert usages(is_client=True) == ("digital signature", "client auth")
    assert usages(is_client=False, is_rsa=True) == (
        "digital signature",
        "key encipherment",
        "server auth",
    )


def test_the_first_request_has_the_kubelets_name() -> None:
    assert digested_name(KEY, NODE, usages(is_client=True)) == (
        "node-csr-F27ERj07-asMithZvGmQ0KTW73cdimEGZzE9h1oHIp8"
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Template("system:node:a", dns_names=("a",)), True),
        (Template("system:node:a", dns_names=("b",)), False),
        (Template("system:node:a", ip_addresses=("10.0.0.2",)), False),
        (Template("system:node:a", ("system:masters",)), False),
        (Template("system:node:b"), False),
    ],
)
def test_a_certificate_may_contain_more_than_the_template(wanted: Template, expected: bool) -> None:
    mine = Template("system:node:a", dns_names=("a", "c"), ip_addresses=("10.0.0.1",))

    assert Leaf(mine, 0, 1).satisfies(wanted) is expected


def test_certificates_are_rotated_between_seven_and_nine_tenths_of_their_life() -> None:
    leaf = Leaf(NODE, 1000, 2000)

    assert deadline_s(leaf, 0) == pytest.approx(1700)
    assert deadline_s(leaf, 0.5) == pytest.approx(1800)
    assert deadline_s(leaf, 1) == pytest.approx(1900)


def test_failed_requests_wait_longer_and_then_regularly() -> None:
    assert [wait_s(failures, 0) for failures in range(8)] == [0, 2, 4, 8, 16, 32, 32, 32]
    assert wait_s(1, 1) == pytest.approx(2.2)


@dataclass
class Files:
    """A directory in memory; the operation with the number `dies_at` is its last."""

    content: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    dies_at: int = 10**9
    operations: int = 0

    def read(self, name: str) -> bytes | None:
        return self.content.get(self.links.get(name, name))

    def exists(self, name: str) -> bool:
        return name in self.content or name in self.links

    def is_link(self, name: str) -> bool:
        return name in self.links

    def write(self, name: str, blob: bytes) -> None:
        self._change(lambda: self.content.__setitem__(name, blob))

    def link(self, name: str, target: str) -> None:
        self._change(lambda: self.links.__setitem__(name, target))

    def rename(self, name: str, to: str) -> None:
        self._change(lambda: self.links.__setitem__(to, self.links.pop(name)))

    def remove(self, name: str) -> None:
        self._change(lambda: self.links.pop(name))

    def _change(self, change: Callable[[], object]) -> None:
        if self.operations == self.dies_at:
            raise KeyboardInterrupt
        self.operations += 1
        change()


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files | DirectoryFiles:
    return Files() if request.param == "memory" else DirectoryFiles(tmp_path / "pki")


def test_a_pair_is_kept_behind_a_link(files: Files | DirectoryFiles, tmp_path: Path) -> None:
    store = CertificateStore(files, "kubelet-client", lambda: 0.0)
    with pytest.raises(NoPairError, match="no cert/key files read"):
        store.current()
    store.update(signed(), KEY_PEM)
    pair = CertificateStore(files, "kubelet-client", lambda: 1.0).update(
        signed(end_s=DAY_S), KEY_PEM
    )

    assert store.current() == pair
    assert files.is_link("kubelet-client-current.pem")
    assert files.exists("kubelet-client-1970-01-01-00-00-00.pem")
    path = tmp_path / "pki" / "kubelet-client-1970-01-01-00-00-01.pem"
    if isinstance(files, DirectoryFiles):
        assert path.stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "pki" / "kubelet-client-current.pem").resolve() == path


def test_files_in_the_older_format_are_read() -> None:
    certificate = signed()
    files = Files({"kubelet-client.crt": certificate, "kubelet-client.key": KEY_PEM})

    found = CertificateStore(files, "kubelet-client", lambda: 0.0).current()
    assert found == pair_of(certificate, KEY_PEM)


@pytest.mark.parametrize("dies_at", range(5))
def test_one_of_the_two_pairs_is_used_after_a_crash(dies_at: int) -> None:
    files = Files()
    old = CertificateStore(files, "kubelet-client", lambda: 0.0).update(signed(), KEY_PEM)
    files.links["kubelet-client-updated.pem"] = "left over"
    files.operations, files.dies_at = 0, dies_at
    new = pair_of(signed(end_s=DAY_S), KEY_PEM)
    try:
        CertificateStore(files, "kubelet-client", lambda: 1.0).update(new.certificate, new.key)
    except KeyboardInterrupt:
        files.dies_at = 10**9

    found = CertificateStore(files, "kubelet-client", lambda: 2.0).current()
    assert found in (old, new)


def test_an_interrupted_rotation_is_completed() -> None:
    files = Files()
    pair = CertificateStore(files, "kubelet-client", lambda: 0.0).update(signed(), KEY_PEM)
    files.links["kubelet-client-updated.pem"] = files.links.pop("kubelet-client-current.pem")

    assert CertificateStore(files, "kubelet-client", lambda: 0.0).current() == pair
    assert "kubelet-client-updated.pem" not in files.links


def test_an_invalid_pair_is_not_stored() -> None:
    files = Files()
    store = CertificateStore(files, "kubelet-client", lambda: 0.0)
    other = ec.derive_private_key(8, ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for certificate, key, message in (
        (b"no certificate", KEY_PEM, "unable to parse certificate data"),
        (signed(), b"no key", "invalid key data"),
        (signed(), other, "private key does not match public key"),
    ):
        with pytest.raises(CertificateError, match=message):
            store.update(certificate, key)
    assert files.content == {}
    files.content["kubelet-client-current.pem"] = signed() + KEY_PEM
    with pytest.raises(CertificateError, match="to be a symlink but it is a file"):
        store.update(signed(), KEY_PEM)


class Node:
    """A node with a certificate manager whose clock and template can be changed."""

    def __init__(self, files: Files | None = None, initial: tuple[bytes, bytes] | None = None):
        self.now = 0.0
        self.template: Template | None = NODE
        self.files = files or Files()
        self.manager = CertificateManager(
            CertificateStore(self.files, "kubelet-client", lambda: self.now),
            lambda: self.template,
            lambda: self.now,
            lambda: 0.5,
            initial,
        )


def test_a_certificate_is_requested_at_once_and_again_when_it_is_due() -> None:
    node = Node()
    assert node.manager.current() is None
    assert node.manager.to_request() == NODE
    node.manager.requested(NODE)
    pair = node.manager.signed(signed(), KEY_PEM)

    assert node.manager.current() == pair
    assert node.manager.to_request() is None
    assert node.manager.deadline_s() == pytest.approx(8 * DAY_S)
    node.now = 8 * DAY_S + 1
    assert node.manager.to_request() == NODE
    node.now = 10 * DAY_S + 1
    assert node.manager.current() is None


def test_the_stored_certificate_is_used_after_a_restart() -> None:
    first = Node()
    pair = first.manager.signed(signed(), KEY_PEM)

    assert Node(first.files).manager.current() == pair
    assert Node(first.files).manager.to_request() is None


def test_a_bootstrap_pair_is_used_and_replaced_at_once() -> None:
    node = Node(initial=(signed(), KEY_PEM))

    assert node.manager.current() is not None
    assert node.manager.to_request() == NODE
    node.manager.signed(signed(), KEY_PEM)
    assert node.manager.to_request() is None


def test_failed_requests_are_delayed_and_show_whether_the_server_is_healthy() -> None:
    node = Node()
    node.manager.failed(ServerAnswer.UNREACHABLE)
    assert node.manager.to_request() is None
    assert not node.manager.is_server_healthy
    node.now = node.manager.deadline_s()
    assert node.now == pytest.approx(2.1)
    assert node.manager.to_request() == NODE
    node.manager.failed(ServerAnswer.FORBIDDEN)
    assert node.manager.is_server_healthy
    assert node.manager.deadline_s() - node.now == pytest.approx(4.2)


def test_a_changed_template_is_requested_once() -> None:
    node = Node()
    node.manager.signed(signed(), KEY_PEM)
    node.template = Template(NODE.common_name, ip_addresses=("10.0.0.1",))
    assert node.manager.to_request() == node.template
    node.manager.requested(node.template)
    assert node.manager.to_request() is None
    assert not node.manager.is_outdated()
    node.template = Template(NODE.common_name, ip_addresses=("10.0.0.2",))
    assert node.manager.is_outdated()
    node.template = None
    assert node.manager.to_request() is None


def test_connections_are_closed_once_for_each_new_certificate() -> None:
    old, new = (pair_of(signed(end_s=end_s), KEY_PEM) for end_s in (DAY_S, 2 * DAY_S))
    watcher = ConnectionWatcher(None, 0)
    assert watcher.period_s == 1

    def check(pair: Pair | None, now_s: float = 0.0) -> TransportAction:
        return watcher.check(pair, now_s, is_server_healthy=True)

    assert [check(pair) for pair in (None, old, old, new, None, new)] == [
        TransportAction.NONE,
        TransportAction.CLOSE_ALL,
        TransportAction.NONE,
        TransportAction.CLOSE_ALL,
        TransportAction.NONE,
        TransportAction.NONE,
    ]
    assert watcher.period_s == rotation.TRANSPORT_PERIOD_S


def test_a_process_without_a_certificate_exits_if_a_restart_would_help() -> None:
    pair = pair_of(signed(end_s=DAY_S), KEY_PEM)
    watcher = ConnectionWatcher(pair, 0, exit_after_s=300)

    assert watcher.check(None, 300, is_server_healthy=True) == TransportAction.NONE
    assert watcher.check(None, 301, is_server_healthy=False) == TransportAction.NONE
    assert watcher.check(None, 301, is_server_healthy=True) == TransportAction.EXIT
    assert watcher.check(pair, DAY_S + 1, is_server_healthy=True) == TransportAction.EXIT


def test_the_kubeconfig_points_to_the_current_pair() -> None:
    found = bootstrap.kubeconfig(
        bootstrap.BootstrapServer("https://api", ca_data="Q0E="), "/pki/kubelet-client-current.pem"
    )

    assert found["clusters"][0]["cluster"] == {
        "server": "https://api",
        "certificate-authority-data": "Q0E=",
    }
    assert found["users"][0]["user"]["client-key"] == "/pki/kubelet-client-current.pem"
    assert found["contexts"][0]["name"] == found["current-context"] == "default-context"


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_malformed_pair_is_an_error(certificate: bytes, key: bytes) -> None:
    with pytest.raises(CertificateError):
        pair_of(certificate, key)
    with pytest.raises(CertificateError):
        pair_of(signed(), key)
