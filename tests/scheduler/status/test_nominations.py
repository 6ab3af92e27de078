"""Pods are nominated for their node while its preparation takes long."""

import msgspec

from bindery.api.times import timestamp
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.scheduler.cache.holds import LINGER_S
from bindery.scheduler.engine import Engine
from bindery.scheduler.status.conditions import ConditionWrite, pending_writes
from bindery.scheduler.status.nominations import NOMINATED_AFTER_S
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    as_created,
    delete,
    engine_with,
    modify,
    node,
    plan,
    pod,
)


def committed(clock: Clock, data: dict[str, object]) -> tuple[Engine, CommittedStatement]:
    """Return an engine whose pod `a` is in a BindRequest with `data` for the binder's plugins."""
    engine = engine_with(node("n"), pod("a"), clock=clock)
    (draft,) = engine.cycle()
    made = as_created(draft)
    entries = [msgspec.structs.replace(each, plugin_data=data) for each in made.spec.pods]
    meta = msgspec.structs.replace(made.metadata, creation_timestamp=timestamp(clock.now))
    spec = msgspec.structs.replace(made.spec, pods=entries)
    request = msgspec.structs.replace(made, metadata=meta, spec=spec)
    add(engine.cluster, request)
    return engine, request


def writes(engine: Engine, clock: Clock) -> list[ConditionWrite]:
    plan(engine)
    return list(pending_writes(engine.cluster, engine.report, clock.now))


VOLUMES: dict[str, object] = {"volumes": {"claims": []}}


def test_a_pod_is_nominated_while_its_volumes_take_long() -> None:
    clock = Clock()
    engine, _ = committed(clock, VOLUMES)
    assert writes(engine, clock) == []

    clock.now += NOMINATED_AFTER_S
    (write,) = writes(engine, clock)

    assert (write.meta.name, write.nominated_node) == ("a", "n")
    assert (write.condition.type, write.condition.status) == ("PodScheduled", "False")
    shown = msgspec.structs.replace(
        pod("a"),
        status=msgspec.structs.replace(
            pod("a").status, nominated_node_name="n", conditions=[write.condition]
        ),
    )
    modify(engine.cluster, shown)
    assert writes(engine, clock) == []


def test_a_pod_with_nothing_to_prepare_is_not_nominated() -> None:
    clock = Clock()
    engine, _ = committed(clock, {})

    clock.now += NOMINATED_AFTER_S

    assert writes(engine, clock) == []


def test_the_nomination_is_removed_after_a_failed_binding_without_room() -> None:
    clock = Clock()
    engine, request = committed(clock, VOLUMES)
    nominated = msgspec.structs.replace(
        pod("a"), status=msgspec.structs.replace(pod("a").status, nominated_node_name="n")
    )
    modify(engine.cluster, nominated)
    clock.now += NOMINATED_AFTER_S
    assert writes(engine, clock) == []

    delete(engine.cluster, request)
    delete(engine.cluster, node("n"))
    clock.now += LINGER_S
    written = [each for each in writes(engine, clock) if each.meta.name == "a"]

    assert [each.nominated_node for each in written] == [""]
