"""The volumes of the claims of planned pods, and the volumes that open plans take."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.objects.selectors import LabelRequirement, LabelSelector
from bindery.kube.objects.storage import (
    CSINode,
    CSINodeAllocatable,
    CSINodeDriver,
    CSINodeSpec,
    CSISource,
    PersistentVolume,
    PersistentVolumeClaim,
)
from bindery.kube.objects.watched import Meta, Node
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.engine import Engine
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.planning.session import Session
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    add,
    as_created,
    configuration,
    delete,
    engine_with,
    group,
    modify,
    node,
    plan,
    report_of,
)
from tests.scheduler.volumeworld import (
    bound_claim,
    claim,
    ephemeral_user,
    owned_by,
    promised_to,
    storage_class,
    user,
    volume,
)

DRIVER = "csi.example.com"


def host(name: str, **fields: Any) -> Node:
    return node(name, labels={"kubernetes.io/hostname": name}, **fields)


def given_volumes(drafts: Sequence[StatementDraft]) -> dict[str, str]:
    """Return claim -> the planned volume in the data for the binder; "": to provision."""
    return {
        entry["name"]: entry["volume"]
        for draft in drafts
        for pod in draft.spec.pods
        for entry in pod.plugin_data["volumes"]["claims"]
        if "volume" in entry
    }


def planned(*items: Any) -> dict[str, str]:
    engine = engine_with(storage_class("local"), *items)
    return given_volumes(list(engine.cycle()))


GOLD = LabelSelector(match_labels={"tier": "gold"})
NOT_GOLD = LabelSelector(
    match_expressions=[LabelRequirement(key="tier", operator="NotIn", values=["gold"])]
)
MATCHING: dict[str, tuple[PersistentVolumeClaim, list[PersistentVolume], str | None]] = {
    "the smallest that fits": (
        claim("c", "5Gi"),
        [volume("large", "50Gi"), volume("small", "1Gi"), volume("right", "8Gi")],
        "right",
    ),
    "the first by name of equal volumes": (claim("c"), [volume("b"), volume("a")], "a"),
    "exactly as large": (claim("c", "1024Mi"), [volume("v", "1Gi")], "v"),
    "none is large enough": (claim("c", "2Gi"), [volume("v", "1Gi")], None),
    "of another class": (claim("c"), [volume("v", of="other")], None),
    "of another mode": (claim("c"), [volume("v", volume_mode="Block")], None),
    "of the block mode": (
        claim("c", volume_mode="Block"),
        [volume("files"), volume("raw", volume_mode="Block")],
        "raw",
    ),
    "without an access mode": (claim("c", access_modes=["ReadWriteMany"]), [volume("v")], None),
    "with all access modes": (
        claim("c", access_modes=["ReadWriteMany", "ReadOnlyMany"]),
        [
            volume("one", access_modes=["ReadWriteMany"]),
            volume("both", access_modes=["ReadOnlyMany", "ReadWriteOnce", "ReadWriteMany"]),
        ],
        "both",
    ),
    "by labels": (
        claim("c", selector=GOLD),
        [volume("a"), volume("z", "9Gi", labels={"tier": "gold"})],
        "z",
    ),
    "by an excluded label": (
        claim("c", selector=NOT_GOLD),
        [volume("a", labels={"tier": "gold"}), volume("z", "9Gi")],
        "z",
    ),
    "not of another attributes class": (
        claim("c"),
        [volume("v", volume_attributes_class_name="quick")],
        None,
    ),
    "not released": (claim("c"), [volume("v", phase="Released")], None),
    "not of another claim": (
        claim("c"),
        [volume("v", claim_ref=promised_to("other", "uid-other"))],
        None,
    ),
    "not of an earlier claim of its name": (
        claim("c"),
        [volume("v", claim_ref=promised_to("c", "uid-of-the-earlier"))],
        None,
    ),
    "promised by a user, and larger": (
        claim("c"),
        [volume("a"), volume("z", "90Gi", claim_ref=promised_to("c"))],
        "z",
    ),
    "promised but too small": (
        claim("c", "5Gi"),
        [volume("a", "9Gi"), volume("z", "1Gi", claim_ref=promised_to("c"))],
        "a",
    ),
    "not of a size that cannot be read": (claim("c"), [volume("v", "many")], None),
}


@pytest.mark.parametrize("case", MATCHING)
def test_a_claim_gets_the_volume_that_the_controller_would_choose(case: str) -> None:
    wanted, volumes, expected = MATCHING[case]

    assert planned(host("n"), wanted, *volumes, user("p", "c")).get("c") == expected


def test_a_volume_on_the_node_of_the_pod_is_used_before_a_smaller_one_elsewhere() -> None:
    items = (host("a"), host("b"), volume("tiny", "1Gi", on="a"), volume("big", "9Gi", on="b"))
    pod = user("p", "c", node_selector={"kubernetes.io/hostname": "b"})

    assert planned(*items, claim("c"), pod) == {"c": "big"}


def test_a_shared_claim_gets_one_volume_and_places_all_its_pods_on_one_node() -> None:
    pods = [user(f"p{i}", "c", group="g") for i in range(3)]
    engine = engine_with(
        storage_class("local"), host("a"), host("b"), group("g", 3), *pods,
        volume("va", on="a"), volume("vb", on="b"), claim("c"),
    )  # fmt: skip

    drafts = list(engine.cycle())

    assert len({each.selected_node for draft in drafts for each in draft.spec.pods}) == 1
    assert len({str(each.plugin_data) for draft in drafts for each in draft.spec.pods}) == 1


def test_a_claim_of_a_provisioner_is_provisioned_for_the_node_of_its_pod() -> None:
    items = (storage_class("ssd", DRIVER), host("n"), claim("c", of="ssd"), user("p", "c"))

    assert planned(*items) == {"c": ""}


def test_a_bound_claim_is_listed_without_a_volume() -> None:
    engine = engine_with(
        host("n"), volume("v", phase="Bound"), bound_claim("c", "v"), user("p", "c")
    )

    (draft,) = engine.cycle()

    assert draft.spec.pods[0].plugin_data == {
        "volumes": {"claims": [{"name": "c", "uid": "uid-c"}]}
    }


def test_pods_without_claims_have_no_volume_data() -> None:
    (draft,) = engine_with(host("n"), user("p")).cycle()

    assert "volumes" not in draft.spec.pods[0].plugin_data


# ---- what is on its way -----------------------------------------------------------------------


def two_rivals() -> Engine:
    """Return an engine in which two claims want the same volume."""
    return engine_with(
        storage_class("local"), host("n"), volume("v"), claim("c1"), claim("c2"), user("p1", "c1")
    )


def test_a_committed_volume_stays_taken_before_and_after_its_request_is_observed() -> None:
    engine = two_rivals()
    (draft,) = engine.cycle()
    add(engine.cluster, user("p2", "c2"))

    assert plan(engine) == {}
    add(engine.cluster, as_created(draft))
    assert plan(engine) == {}
    assert "didn't find available persistent volumes" in report_of(engine, "p2").message


def test_a_volume_is_free_again_when_the_request_could_not_be_created() -> None:
    engine = two_rivals()
    (draft,) = engine.cycle()
    engine.refused(draft)
    delete(engine.cluster, user("p1", "c1"))
    add(engine.cluster, user("p2", "c2"))

    assert plan(engine) == {"p2": "n"}


def test_a_volume_stays_taken_when_the_pod_is_observed_bound_before_its_claim() -> None:
    engine = two_rivals()
    (draft,) = engine.cycle()
    add(engine.cluster, as_created(draft))
    modify(engine.cluster, user("p1", "c1", on="n"))
    delete(engine.cluster, as_created(draft))
    add(engine.cluster, user("p2", "c2"))

    assert plan(engine) == {}
    modify(engine.cluster, bound_claim("c1", "another"))
    assert plan(engine) == {"p2": "n"}


def test_a_restarted_scheduler_counts_the_volumes_of_existing_requests() -> None:
    (draft,) = two_rivals().cycle()
    later = two_rivals()
    add(later.cluster, as_created(draft), user("p2", "c2"))

    assert plan(later) == {}


def test_plugins_of_a_new_configuration_get_all_existing_volumes() -> None:
    engine = two_rivals()
    engine.configure(configuration(backfill={"reservations": 0}))

    assert plan(engine) == {"p1": "n"}


# ---- ephemeral volumes ------------------------------------------------------------------------


def test_a_pod_waits_for_its_ephemeral_claim_which_must_belong_to_it() -> None:
    pod = ephemeral_user("p", "scratch")
    engine = engine_with(storage_class("ssd", DRIVER), host("n"), pod)
    assert plan(engine) == {}
    assert "waiting for ephemeral volume controller" in report_of(engine, "p").message

    foreign = claim("p-scratch", of="ssd")
    add(engine.cluster, foreign)
    assert plan(engine) == {}
    assert '"p-scratch" was not created for pod p' in report_of(engine, "p").message

    modify(engine.cluster, owned_by(foreign, pod))
    assert plan(engine) == {"p": "n"}


# ---- plans that are undone --------------------------------------------------------------------

NODES, VOLUMES, PODS = 3, 4, 5


def csi_volume(number: int, on: int | None) -> PersistentVolume:
    source = CSISource(driver=DRIVER, volume_handle=f"h{number}")
    place = None if on is None else f"n{on}"
    return volume(f"v{number}", f"{number + 1}Gi", on=place, csi=source)


def limited(name: str, count: int) -> CSINode:
    driver = CSINodeDriver(name=DRIVER, allocatable=CSINodeAllocatable(count=count))
    return CSINode(metadata=Meta(name=name), spec=CSINodeSpec(drivers=[driver]))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.integers(0, PODS - 1), st.integers(0, NODES - 1)),
        st.tuples(st.just("mark"), st.just(0), st.just(0)),
        st.tuples(st.just("back"), st.just(0), st.just(0)),
    ),
    max_size=25,
)
places = st.lists(
    st.one_of(st.none(), st.integers(0, NODES - 1)), min_size=VOLUMES, max_size=VOLUMES
)
claims_of_pods = st.lists(
    st.sets(st.integers(0, 5), min_size=1, max_size=2), min_size=PODS, max_size=PODS
)


@given(steps=steps, places=places, claims_of_pods=claims_of_pods, limit=st.integers(1, 3))
def test_undo_of_a_plan_releases_every_volume_and_no_volume_is_used_twice(
    steps: list[tuple[str, int, int]],
    places: list[int | None],
    claims_of_pods: list[set[int]],
    limit: int,
) -> None:
    names = [f"c{number}" for number in range(6)]
    engine = engine_with(
        storage_class("local"),
        storage_class("ssd", DRIVER),
        *(host(f"n{number}") for number in range(NODES)),
        *(limited(f"n{number}", limit) for number in range(NODES)),
        *(csi_volume(number, on) for number, on in enumerate(places)),
        *(claim(name, of="ssd" if name == "c5" else "local") for name in names),
        *(
            user(f"p{number}", *(f"c{each}" for each in sorted(used)))
            for number, used in enumerate(claims_of_pods)
        ),
    )
    with engine.session() as session:
        ledger: Any = next(each for each in session.ledgers if each.name == "volumes")
        tasks = {task.name: task for task in session.state.tasks.values()}

        def chosen() -> dict[str, Any]:
            return {name: ledger.choice((NAMESPACE, name)) for name in names}

        empty, before_all = chosen(), greedily_placed(session)
        with session.statement() as statement:
            marks = [(statement.savepoint(), empty)]
            for kind, number, at in steps:
                if kind == "mark":
                    marks.append((statement.savepoint(), chosen()))
                elif kind == "back":
                    savepoint, before = marks[-1] if len(marks) == 1 else marks.pop()
                    statement.rollback(savepoint)
                    assert chosen() == before
                else:
                    try:
                        statement.allocate(tasks[f"p{number}"], session.state.nodes.rows[f"n{at}"])
                    except LedgerRefusalError:
                        continue
                taken = [each.volume for each in chosen().values() if each and each.volume]
                assert len(taken) == len(set(taken))
                for each in filter(None, chosen().values()):
                    on = places[int(each.volume[1:])] if each.volume else None
                    assert on in (None, int(session.state.nodes.name(each.row)[1:]))
        assert chosen() == empty
        # Attachments leak nothing either: the same pods fit as before.
        assert greedily_placed(session) == before_all


def greedily_placed(session: Session) -> dict[str, str]:
    """Return where the waiting pods go one after the other, and undo it."""
    tasks = sorted(session.state.tasks.values(), key=lambda task: task.name)
    with session.statement() as statement:
        for task in tasks:
            finder = session.placement.finder(session.state.jobs[task.job])
            place = finder.best(task)
            if place is not None:
                with suppress(LedgerRefusalError):
                    statement.allocate(task, place.row)
        return {task.name: session.state.nodes.name(task.row) for task in tasks if task.row >= 0}
