"""The configuration that a leader publishes: a command reads what the leader uses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.configuration import (
    DEFAULT_ACTIONS,
    BackfillConfiguration,
    DisruptionConfiguration,
    LeaderElection,
    PluginConfiguration,
    SchedulerConfiguration,
    VictimPreference,
)
from bindery.api.names import CONFIGURATION_ANNOTATION
from bindery.api.usage import PrometheusConfiguration, UsageConfiguration
from bindery.kube.publication import (
    MOST_BYTES,
    Publisher,
    annotations,
    configuration_hash,
    published,
)
from tests.sizes import examples

_SECONDS = st.floats(min_value=0.5, max_value=1e6)
_PLUGINS = st.builds(
    PluginConfiguration,
    name=st.text("abc_", min_size=1, max_size=8),
    weight=_SECONDS,
    arguments=st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none()),
)
CONFIGURATIONS = st.builds(
    SchedulerConfiguration,
    node_pool=st.sampled_from(["", "a"]),
    actions=st.lists(st.sampled_from(DEFAULT_ACTIONS), unique=True).map(tuple),
    plugins=st.lists(_PLUGINS, unique_by=lambda each: each.name, max_size=4).map(tuple),
    gpu_resources=st.lists(st.text("gpu./*", min_size=1), max_size=3).map(tuple),
    cycle_seconds=_SECONDS,
    backfill=st.builds(BackfillConfiguration, reservations=st.integers(0, 9)),
    disruption=st.builds(DisruptionConfiguration, prefer=st.sampled_from(VictimPreference)),
    leader_election=st.builds(LeaderElection, enabled=st.booleans()),
    usage=st.builds(UsageConfiguration, half_life_seconds=st.none() | st.floats(1, 1e6)),
)


@settings(max_examples=examples(21))
@given(CONFIGURATIONS)
def test_the_published_configuration_equals_the_used_one(
    configuration: SchedulerConfiguration,
) -> None:
    found = published(annotations(configuration))

    assert found is not None
    assert SchedulerConfiguration.model_validate(found.changes) == configuration
    assert found.hash == configuration_hash(configuration)


@settings(max_examples=examples(21))
@given(CONFIGURATIONS, CONFIGURATIONS)
def test_hashes_of_configurations_are_equal_exactly_if_the_configurations_are(
    one: SchedulerConfiguration, other: SchedulerConfiguration
) -> None:
    assert (configuration_hash(one) == configuration_hash(other)) == (one == other)


def test_the_defaults_are_published_without_values() -> None:
    found = published(annotations(SchedulerConfiguration()))

    assert found is not None
    assert found.changes == {}


@pytest.mark.parametrize("length", [MOST_BYTES - 400, 3 * MOST_BYTES])
def test_a_configuration_that_is_too_large_is_published_only_as_a_hash(length: int) -> None:
    large = PluginConfiguration(name="own", arguments={"table": "x" * length})
    configuration = SchedulerConfiguration(plugins=(large,))

    text = annotations(configuration)[CONFIGURATION_ANNOTATION]

    found = published({CONFIGURATION_ANNOTATION: text})
    assert found is not None
    assert len(text.encode()) <= MOST_BYTES
    assert found.hash == configuration_hash(configuration)
    assert (found.changes is None) == (length > MOST_BYTES)


def test_user_and_password_of_a_url_are_not_published() -> None:
    prometheus = PrometheusConfiguration(address="https://user:secret@prometheus:9090/path")
    usage = UsageConfiguration(source="prometheus", prometheus=prometheus)

    (text,) = annotations(SchedulerConfiguration(usage=usage)).values()

    assert "https://prometheus:9090/path" in text
    assert "secret" not in text


def test_an_invalid_change_is_published_with_the_configuration_in_use() -> None:
    configuration = SchedulerConfiguration(cycle_seconds=3)
    problem = "scheduler.yaml:7: usage.prometheus.address: https://user:secret@p is no address"

    found = published(annotations(configuration, problem + " x" * 1000))

    assert found is not None
    assert found.changes == {"cycleSeconds": 3}
    assert found.problem is not None
    assert found.problem.startswith("scheduler.yaml:7: usage.prometheus.address: https://p is no")
    assert len(found.problem) <= 500


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hash": 1, "version": "x"}', '{"hash": "x"}'])
def test_an_unreadable_annotation_publishes_nothing(text: str) -> None:
    assert published({CONFIGURATION_ANNOTATION: text}) is None


def test_a_lease_without_the_annotation_publishes_nothing() -> None:
    assert published({}) is None


def test_a_publisher_shows_each_change_and_encodes_no_configuration_twice() -> None:
    publisher, first = Publisher(), SchedulerConfiguration()
    other = SchedulerConfiguration(cycle_seconds=3)

    shown = publisher.annotations(first)

    assert publisher.annotations(first) is shown == annotations(first)
    assert publisher.annotations(other) == annotations(other)
    assert publisher.annotations(other, "bad file") == annotations(other, "bad file")
    assert publisher.annotations(other) == annotations(other)
