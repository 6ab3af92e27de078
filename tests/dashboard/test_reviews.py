"""The questions about rights, and that a person's token never goes with the page's certificate."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bindery.dashboard.rights import Rights, read_rights
from bindery.kube.access.credentials import Credentials, ServerAddress
from bindery.kube.client import Client
from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest
from bindery.kube.realenvironment import REAL


class Reviews:
    """A carrier that answers SelfSubjectAccessReviews: `allowed` has (resource, namespace)."""

    field_manager = "test"

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self._allowed = set(allowed)
        self.asked: list[dict[str, Any]] = []

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:  # noqa: ARG002
        assert request.body is not None
        asked = msgspec.json.decode(request.body)["spec"]["resourceAttributes"]
        self.asked.append(asked)
        key = (asked["resource"], asked.get("namespace", ""))
        return Answer(201, msgspec.json.encode({"status": {"allowed": key in self._allowed}}), None)

    def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:  # noqa: ARG002
        raise AssertionError("rights are asked for, not watched")

    async def close(self) -> None:
        """Nothing is open."""


async def rights(*allowed: tuple[str, str], namespaces: tuple[str, ...] = ("a", "b")) -> Rights:
    return await read_rights(Client(Reviews(*allowed), 5.0, REAL), namespaces)


async def test_a_namespace_is_seen_if_podgroups_and_pods_in_it_may_be_listed() -> None:
    found = await rights(("podgroups", "a"), ("pods", "a"), ("podgroups", "b"))

    assert found == Rights(frozenset({"a"}), queues=False, nodes=False)


async def test_who_may_list_everywhere_is_not_asked_about_namespaces() -> None:
    carrier = Reviews(("podgroups", ""), ("pods", ""), ("queues", ""), ("nodes", ""))

    found = await read_rights(Client(carrier, 5.0, REAL), ["a"] * 100)

    assert found == Rights(None, queues=True, nodes=True)
    assert len(carrier.asked) == 4


async def test_the_verbs_are_list_and_for_queues_get() -> None:
    carrier = Reviews()
    await read_rights(Client(carrier, 5.0, REAL), ["a"])

    assert {(each["resource"], each["verb"]) for each in carrier.asked} == {
        ("podgroups", "list"),
        ("queues", "get"),
        ("nodes", "list"),
    }


async def test_the_token_of_a_person_goes_alone(tmp_path: Path) -> None:
    """With a certificate of the page, the API server would take the person for the page."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "page"}}],
                "clusters": [
                    {"name": "k", "cluster": {"server": "https://k.test", "proxy-url": "http://p"}}
                ],
                "users": [{"name": "page", "user": {"token": "of-the-page"}}],
            }
        )
    )

    address = ServerAddress.load(path)
    credentials = Credentials.of_token(address, "of-a-person")

    assert (credentials.server, credentials.proxy) == ("https://k.test", "http://p")
    assert credentials.authorization == "Bearer of-a-person"
    await credentials.renew(rejected="Bearer of-a-person")
    assert credentials.authorization == "Bearer of-a-person"


def test_the_address_needs_no_certificate_of_a_user(tmp_path: Path) -> None:
    """A certificate that cannot be read would fail if it were loaded."""
    path = tmp_path / "kubeconfig"
    pair = {"client-certificate-data": "bm8=", "client-key-data": "bm8="}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "page"}}],
                "clusters": [{"name": "k", "cluster": {"server": "https://k.test"}}],
                "users": [{"name": "page", "user": pair}],
            }
        )
    )

    assert ServerAddress.load(path).tls is not None
