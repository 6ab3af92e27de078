"""The chart agrees with the models that read its output."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from bindery.api import names, podkeys
from bindery.api.configuration import (
    BinderConfiguration,
    BinderPluginConfiguration,
    BindRequestConfiguration,
    DisruptionConfiguration,
    GrouperConfiguration,
    GrouperExpectation,
    HistoryConfiguration,
    LeaderElection,
    PluginConfiguration,
    SchedulerConfiguration,
    WebhookConfiguration,
)
from bindery.api.usage import PrometheusConfiguration, UsageConfiguration, UsageQueries
from bindery.grouper import ownerkinds
from bindery.scheduler.actions.registry import ACTIONS
from devcluster.install import Installation
from tests.house import chartnames

CHART = Path(__file__).resolve().parents[2] / "charts" / "bindery"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
USAGE: dict[str, Any] = SCHEMA["definitions"]["usage"]
FIXED_BY_THE_CHART = {"apiVersion", "kind"}


def keys(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def configuration(component: str) -> dict[str, Any]:
    schema: dict[str, Any] = SCHEMA["properties"][component]["properties"]["configuration"]
    return schema


@pytest.mark.parametrize(
    ("schema", "model"),
    [
        (configuration("scheduler"), SchedulerConfiguration),
        (configuration("scheduler")["properties"]["bindRequest"], BindRequestConfiguration),
        (configuration("scheduler")["properties"]["disruption"], DisruptionConfiguration),
        (configuration("scheduler")["properties"]["grouper"], GrouperExpectation),
        (configuration("grouper"), GrouperConfiguration),
        (configuration("binder"), BinderConfiguration),
        (configuration("binder")["properties"]["webhook"], WebhookConfiguration),
        (SCHEMA["definitions"]["leaderElection"], LeaderElection),
        (SCHEMA["definitions"]["history"], HistoryConfiguration),
        (USAGE, UsageConfiguration),
        (USAGE["properties"]["prometheus"], PrometheusConfiguration),
        (
            USAGE["properties"]["prometheus"]["properties"]["queries"]["additionalProperties"],
            UsageQueries,
        ),
        (SCHEMA["definitions"]["plugins"]["items"], PluginConfiguration),
        (SCHEMA["definitions"]["binderPlugins"]["items"], BinderPluginConfiguration),
    ],
)
def test_the_values_schema_contains_every_key_of_the_configuration(
    schema: dict[str, Any], model: type[BaseModel]
) -> None:
    assert set(schema["properties"]) == keys(model) - FIXED_BY_THE_CHART
    assert schema["additionalProperties"] is False


def test_the_values_schema_lists_all_actions() -> None:
    assert configuration("scheduler")["properties"]["actions"]["items"]["enum"] == list(ACTIONS)


def test_the_default_values_fit_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)

    jsonschema.validate(yaml.safe_load((CHART / "values.yaml").read_text()), SCHEMA)


def test_the_admission_policy_guards_the_keys_of_the_models(tmp_path: Path) -> None:
    podkeys.write(tmp_path / "pod-keys.yaml")

    written = (CHART / "files" / "pod-keys.yaml").read_text()
    assert written == (tmp_path / "pod-keys.yaml").read_text(), "run `make crds`"


def test_the_grouper_may_read_the_owners_of_all_rows(tmp_path: Path) -> None:
    ownerkinds.write(tmp_path / "owner-kinds.yaml")

    written = (CHART / "files" / "owner-kinds.yaml").read_text()
    assert written == (tmp_path / "owner-kinds.yaml").read_text(), "run `make crds`"


def test_the_chart_contains_all_plugins_arguments_and_keys_of_rows(tmp_path: Path) -> None:
    chartnames.write(tmp_path / "known-names.yaml")

    written = (CHART / "files" / "known-names.yaml").read_text()
    assert written == (tmp_path / "known-names.yaml").read_text(), "run `make crds`"


def test_the_webhook_knows_every_key_of_pods() -> None:
    of_pods = {
        value
        for name, value in vars(names).items()
        if name.endswith(("_LABEL", "_ANNOTATION")) and value.startswith(f"{names.GROUP}/")
    }
    of_requests = {
        names.FENCE_LABEL,
        names.POD_NAME_LABEL,
        names.SELECTED_NODE_LABEL,
        names.STATEMENT_LABEL,
    }
    of_groups = {names.MADE_BY_LABEL, names.SOURCES_ANNOTATION}
    of_nodes = {names.NUMA_DETAIL_ANNOTATION}
    of_leases = {names.CONFIGURATION_ANNOTATION, names.ROWS_ANNOTATION}
    of_scaling_pods = {names.SCALES_FOR_ANNOTATION, names.SCALED_BY_LABEL}

    assert (
        of_pods - of_requests - of_groups - of_nodes - of_leases - of_scaling_pods
        <= podkeys.known_annotations() | podkeys.known_labels()
    )


@pytest.mark.e2e
def test_the_rendered_configuration_equals_the_defaults_of_the_models(
    installation: Installation,
) -> None:
    assert installation.scheduler_configuration == SchedulerConfiguration(
        tenancy_policy_enforced=True, grouper=GrouperExpectation(wait_for_groups=True)
    )
    assert installation.grouper_configuration == GrouperConfiguration()
    assert installation.binder_configuration == BinderConfiguration()
