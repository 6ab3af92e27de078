"""`dashboard open` with an account that may not read the whole cluster."""

from typing import Any

import msgspec
import pytest

from bindery.answers.errors import NoAnswerError
from bindery.dashboard.history import LiveHistory
from bindery.dashboard.live import LiveCluster
from bindery.dashboard.process import open_live

KINDS = ("pods", "podgroups", "queues", "nodes")
EVERY = {(name, verb) for name in KINDS for verb in ("list", "watch")}
LACKING = {
    ("pods", "list"),
    ("pods", "watch"),
    ("podgroups", "list"),
    ("podgroups", "watch"),
    ("nodes", "watch"),
}
"""What a person with rights in one namespace, and a right to list nodes, lacks."""


class Server:
    """An API server that only answers which rights the account has."""

    def __init__(self, allowed: set[tuple[str, str]]) -> None:
        self._allowed = allowed

    async def create(self, resource: Any, body: dict[str, Any]) -> Any:
        asked = body["spec"]["resourceAttributes"]
        assert "namespace" not in asked, "the right in all namespaces is asked for"
        is_allowed = (asked["resource"], asked["verb"]) in self._allowed
        return msgspec.convert({**body, "status": {"allowed": is_allowed}}, resource.type)


def cluster(allowed: set[tuple[str, str]]) -> tuple[LiveCluster, LiveHistory]:
    client: Any = Server(allowed)
    found = LiveCluster(client, "kube-system")
    return found, LiveHistory(client, "kube-system", found.pools)


async def test_the_missing_rights_are_named_with_the_role_before_an_address_is_printed() -> None:
    announced: list[str] = []

    with pytest.raises(NoAnswerError) as refusal:
        await open_live(*cluster(EVERY - LACKING), 0, announced.append)

    text = str(refusal.value)
    assert "may not list and watch pods, " in text
    assert "list and watch podgroups.scheduling.bindery.dev, watch nodes in all" in text
    assert "queues.scheduling" not in text
    assert "ClusterRole bindery-reader" in text
    assert "bindery explain" in text
    assert announced == []


async def test_an_account_with_the_rights_is_not_refused() -> None:
    found, _ = cluster(EVERY)

    await found.demand_rights()
