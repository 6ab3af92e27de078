"""Access of namespaces and priority classes to queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.objects.queueaccess import AccessReason, Applicant, access_refusal
from bindery.kube.objects.queues import NamespaceRule, QueueSpec
from bindery.kube.objects.selectors import LabelRequirement, LabelSelector

RESEARCH = NamespaceRule(names=["vision"], selector=LabelSelector(match_labels={"team": "r"}))


def who(namespace: str, **labels: str) -> Applicant:
    return Applicant(namespace, labels)


def reason(spec: QueueSpec, applicant: Applicant) -> AccessReason | None:
    refusal = access_refusal([("q", spec)], applicant)
    return refusal.reason if refusal is not None else None


@pytest.mark.parametrize(
    ("rule", "applicant", "takes"),
    [
        (RESEARCH, who("vision"), True),
        (RESEARCH, who("speech", team="r"), True),
        (RESEARCH, who("speech", team="s"), False),
        (NamespaceRule(), who("vision"), False),
        (NamespaceRule(selector=LabelSelector()), who("anybody"), True),
        (
            NamespaceRule(
                selector=LabelSelector(
                    match_expressions=[
                        LabelRequirement(
                            key="kubernetes.io/metadata.name", operator="In", values=["vision"]
                        )
                    ]
                )
            ),
            who("vision"),
            True,
        ),
    ],
)
def test_namespaces_have_access_by_name_or_selector(
    rule: NamespaceRule, applicant: Applicant, takes: bool
) -> None:
    expected = None if takes else AccessReason.NAMESPACE_NOT_ALLOWED
    assert reason(QueueSpec(namespaces=rule), applicant) is expected


@pytest.mark.parametrize(
    ("listed", "asked", "is_refused"),
    [
        ({"high": NamespaceRule()}, {"high"}, True),
        ({"high": NamespaceRule()}, {"low"}, False),
        ({"high": RESEARCH, "*": NamespaceRule()}, {"high"}, False),
        ({"high": RESEARCH, "*": NamespaceRule()}, {"low"}, True),
        ({"*": NamespaceRule()}, set(), False),
    ],
)
def test_unlisted_priority_classes_have_the_rule_of_the_star(
    listed: dict[str, NamespaceRule], asked: set[str], is_refused: bool
) -> None:
    applicant = Applicant("vision", {}, frozenset(asked))

    expected = AccessReason.PRIORITY_CLASS_NOT_ALLOWED if is_refused else None
    assert reason(QueueSpec(priority_classes=listed), applicant) is expected


def test_the_non_preemptible_rule_applies_only_to_non_preemptible_gangs() -> None:
    spec = QueueSpec(non_preemptible=NamespaceRule())

    assert reason(spec, Applicant("vision", {})) is None
    refused = reason(spec, Applicant("vision", {}, is_pinned=True))
    assert refused is AccessReason.NON_PREEMPTIBLE_NOT_ALLOWED


def test_the_message_names_the_namespace_and_the_queue_of_the_rule() -> None:
    chain = [("low", QueueSpec()), ("high", QueueSpec(namespaces=NamespaceRule()))]

    refusal = access_refusal(chain, who("vision"))

    assert refusal is not None
    assert "namespace vision may not use queue high" in refusal.text


names = st.sampled_from(["a", "b", "c"])
rules = st.builds(NamespaceRule, names=st.lists(names, max_size=2))
specs = st.builds(
    QueueSpec,
    namespaces=st.none() | rules,
    priority_classes=st.dictionaries(st.sampled_from(["x", "y", "*"]), rules, max_size=2),
    non_preemptible=st.none() | rules,
)
applicants = st.builds(
    Applicant,
    names,
    st.just({}),
    st.frozensets(st.sampled_from(["x", "y"]), max_size=2),
    st.booleans(),
)


@given(chain=st.lists(specs, max_size=4), applicant=applicants)
def test_access_to_a_queue_requires_access_to_all_its_ancestors(
    chain: list[QueueSpec], applicant: Applicant
) -> None:
    named = [(str(index), spec) for index, spec in enumerate(chain)]

    alone = [access_refusal([each], applicant) for each in named]
    together = access_refusal(named, applicant)

    assert (together is None) == all(each is None for each in alone)
    assert together == next((each for each in alone if each is not None), None)
