"""The changes derived from observed objects: the store alone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.objects.watched import KubeObject, Meta
from bindery.kube.watches.store import Change, EventType, Malformed, Store


def seen(name: str, uid: str, version: str) -> KubeObject:
    return KubeObject(metadata=Meta(name=name, namespace="ns", uid=uid, resource_version=version))


def malformed(name: str, uid: str, version: str) -> Malformed:
    return Malformed(seen(name, uid, version).metadata, "no int")


SIGHTS = st.builds(
    lambda make, name, uid, version: make(name, uid, version),
    st.sampled_from([seen, malformed]),
    st.sampled_from("abc"),
    st.sampled_from("uvw"),
    st.sampled_from("123"),
)
STEPS = st.one_of(
    st.tuples(st.just("see"), SIGHTS),
    st.tuples(st.just("lose"), SIGHTS),
    st.tuples(
        st.just("reconcile"),
        st.lists(
            SIGHTS,
            unique_by=lambda each: (
                each.meta.name if isinstance(each, Malformed) else each.metadata.name
            ),
        ),
    ),
)


def apply(change: Change[KubeObject], mirror: dict[str, KubeObject]) -> None:
    """Check the contract of a change against the changes before it."""
    meta = change.object.metadata
    known = mirror.get(meta.name)
    assert change.previous is known
    if change.type is EventType.ADDED:
        assert known is None
        mirror[meta.name] = change.object
        return
    assert known is not None
    assert known.metadata.uid == meta.uid
    if change.type is EventType.DELETED:
        del mirror[meta.name]
    else:
        assert known.metadata.resource_version != meta.resource_version
        mirror[meta.name] = change.object


@given(st.lists(STEPS))
def test_replayed_changes_give_the_objects_and_never_repeat(steps: list[tuple[str, Any]]) -> None:
    store: Store[KubeObject] = Store()
    mirror: dict[str, KubeObject] = {}

    for step, argument in steps:
        for change in list(getattr(store, step)(argument)):
            apply(change, mirror)
        assert {("ns", name): each for name, each in mirror.items()} == dict(store.objects)
        if step == "reconcile":
            good = {each.metadata.name for each in argument if isinstance(each, KubeObject)}
            bad = {each.meta.name for each in argument if isinstance(each, Malformed)}
            assert good <= set(mirror) <= good | bad


def test_a_list_without_news_gives_no_changes() -> None:
    store: Store[KubeObject] = Store()
    objects = [seen("a", "u", "1"), seen("b", "v", "2")]
    assert len(list(store.reconcile(objects))) == 2

    assert list(store.reconcile(objects)) == []


def test_an_object_recreated_unobserved_is_deleted_and_then_added() -> None:
    store: Store[KubeObject] = Store()
    old, new = seen("a", "u", "1"), seen("a", "v", "9")
    store.see(old)

    assert store.see(new) == [
        Change(EventType.DELETED, old, old),
        Change(EventType.ADDED, new, None),
    ]


def test_a_deletion_carries_the_last_state() -> None:
    store: Store[KubeObject] = Store()
    old, last = seen("a", "u", "1"), seen("a", "u", "2")
    store.see(old)

    assert store.lose(last) == [Change(EventType.DELETED, last, old)]
    assert store.lose(last) == []


def test_an_object_that_becomes_malformed_keeps_its_last_version_until_it_is_deleted() -> None:
    store: Store[KubeObject] = Store()
    old = seen("a", "u", "1")
    store.see(old)

    assert store.see(malformed("a", "u", "2")) == []
    assert list(store.reconcile([malformed("a", "u", "3")])) == []
    assert store.lose(malformed("a", "u", "4")) == [Change(EventType.DELETED, old, old)]


def test_a_malformed_object_deletes_an_earlier_object_of_its_name() -> None:
    store: Store[KubeObject] = Store()
    old = seen("a", "u", "1")
    store.see(old)

    assert store.see(malformed("a", "v", "2")) == [Change(EventType.DELETED, old, old)]


def test_the_readable_part_of_a_malformed_object_is_its_new_version() -> None:
    store: Store[KubeObject] = Store()
    bad, part = malformed("a", "u", "2"), seen("a", "u", "2")
    held = Malformed(bad.meta, bad.message, lambda _known: part)

    assert store.see(held) == [Change(EventType.ADDED, part, None)]
    assert store.see(held) == []


def test_a_malformed_version_is_reported_once() -> None:
    store: Store[KubeObject] = Store()
    bad = malformed("a", "u", "1")

    assert store.is_news(bad)
    store.see(bad)
    assert not store.is_news(bad)
    assert store.is_news(malformed("a", "u", "2"))
    assert store.is_news(malformed("a", "v", "1"))
