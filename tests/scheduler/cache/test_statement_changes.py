"""Each change of a BindRequest reaches the cluster once per changed Statement."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from bindery.api.names import FENCE_LABEL
from bindery.kube.objects.bindrequests import BindRequest, BindRequestSpec, CommittedStatement
from bindery.kube.objects.resources import BIND_REQUESTS, Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.feed import statement_changes
from bindery.scheduler.model.jobs import Uid
from tests.scheduler.schedulerworld import (
    NOW,
    add,
    configuration,
    engine_with,
    node,
    pod,
    request,
    shared_request,
)


def statement(name: str, **fields: Any) -> CommittedStatement:
    if fields.get("phase") == "Succeeded":
        fields["bound"] = [f"uid-{name}"]
    return request(name, {f"uid-{name}": "n"}, **fields)


def told(
    kind: EventType, stored: BindRequest, previous: BindRequest | None
) -> list[tuple[str, str, str]]:
    """Return type, Statement and phase of each change."""
    changes = list(statement_changes(Change(kind, stored, previous)))
    assert changes.pop(0).object is stored, "observers of whole requests are told first"
    found = []
    for change in changes:
        assert isinstance(change.object, CommittedStatement)
        item = change.object
        found.append((change.type.value, item.key.statement, item.status.phase))
    return found


def test_each_statement_of_a_new_request_is_added() -> None:
    stored = shared_request("r", statement("a"), statement("b", phase="Failed"))

    assert told(EventType.ADDED, stored, None) == [
        ("ADDED", "a-1", "Pending"),
        ("ADDED", "b-1", "Failed"),
    ]


def test_only_the_statements_that_have_changed_are_modified() -> None:
    before = shared_request("r", statement("a"), statement("b"), statement("c"))
    after = shared_request(
        "r", statement("a"), statement("b", phase="Succeeded"), statement("c"), withdrawn=["c-1"]
    )

    assert told(EventType.MODIFIED, after, before) == [
        ("MODIFIED", "b-1", "Succeeded"),
        ("MODIFIED", "c-1", "Pending"),
    ]


def test_all_statements_of_a_deleted_request_are_deleted() -> None:
    stored = shared_request("r", statement("a"), statement("b", phase="Succeeded"))

    assert told(EventType.DELETED, stored, stored) == [
        ("DELETED", "a-1", "Pending"),
        ("DELETED", "b-1", "Succeeded"),
    ]


def test_a_statement_removed_from_its_request_is_deleted() -> None:
    before = shared_request("r", statement("a"), statement("b"))
    after = shared_request("r", statement("b"))

    assert told(EventType.MODIFIED, after, before) == [("DELETED", "a-1", "Pending")]


def test_a_fencing_announcement_carries_no_statement() -> None:
    stored = shared_request("r", statement("a"))
    labels = {FENCE_LABEL: "true"}
    fence = BindRequest(
        metadata=msgspec.structs.replace(stored.metadata, labels=labels),
        spec=BindRequestSpec(fencing_token=3),
    )

    assert told(EventType.ADDED, fence, None) == []


@pytest.mark.parametrize("phase", ["Failed", "Pending"])
def test_a_request_refused_as_a_whole_holds_nothing(phase: str) -> None:
    """As the binder does with an invalid request."""
    cluster = engine_with(node("n"), pod("a"), pod("b")).cluster
    stored = shared_request("r", statement("a"), statement("b"), phase=phase)

    for change in statement_changes(Change(EventType.ADDED, stored, None)):
        cluster.apply(change)

    uids = (Uid("uid-a"), Uid("uid-b"))
    assert [cluster.holds.get(uid) is None for uid in uids] == [phase == "Failed"] * 2


def test_a_refused_statement_without_a_list_of_pods_has_bound_no_pod() -> None:
    stored = shared_request("r", statement("a"), statement("b", phase="Failed"))
    (entry,) = stored.status.statements
    entry = msgspec.structs.replace(entry, unbound_pods=[], reason="Malformed")
    status = msgspec.structs.replace(stored.status, statements=[entry])

    _, refused = msgspec.structs.replace(stored, status=status).each()

    assert (refused.status.phase, refused.status.bound_pods) == ("Failed", [])


def test_a_plugin_that_watches_requests_gets_whole_requests() -> None:
    seen: list[KubeObject] = []

    def observe(change: Change[KubeObject]) -> bool:
        seen.append(change.object)
        return False

    cluster = Cluster(configuration(), lambda: NOW)
    watched: Sequence[Resource[Any]] = [BIND_REQUESTS]
    cluster.observe([(watched, observe)])
    stored = shared_request("r", statement("a"), statement("b"))
    changes = list(statement_changes(Change(EventType.ADDED, stored, None)))

    news = [cluster.apply(change) for change in changes]

    assert seen == [stored]
    assert not news[0], "the whole request alone changes no plan"


def test_an_error_of_one_statement_does_not_affect_the_others_of_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = engine_with(node("n"), pod("a"), pod("b")).cluster
    put = cluster.holds.put

    def fragile(item: CommittedStatement) -> Any:
        if item.key.statement == "a-1":
            raise ZeroDivisionError
        return put(item)

    monkeypatch.setattr(cluster.holds, "put", fragile)
    add(cluster, shared_request("r", statement("a"), statement("b")))

    assert cluster.holds.get(Uid("uid-a")) is None
    assert cluster.holds.get(Uid("uid-b")) is not None
    assert len(cluster.quarantine) == 1, "the good neighbour has not ended its quarantine"
