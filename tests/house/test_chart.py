"""The chart says the same as the models that read its output."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from bindery.api.configuration import (
    BinderConfiguration,
    BindRequestConfiguration,
    LeaderElection,
    PluginConfiguration,
    SchedulerConfiguration,
    WebhookConfiguration,
)
from bindery.api.usage import PrometheusConfiguration, UsageConfiguration, UsageQueries
from bindery.controlplane.install import Installation

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
        (configuration("binder"), BinderConfiguration),
        (configuration("binder")["properties"]["webhook"], WebhookConfiguration),
        (SCHEMA["definitions"]["leaderElection"], LeaderElection),
        (USAGE, UsageConfiguration),
        (USAGE["properties"]["prometheus"], PrometheusConfiguration),
        (
            USAGE["properties"]["prometheus"]["properties"]["queries"]["additionalProperties"],
            UsageQueries,
        ),
        (SCHEMA["definitions"]["plugins"]["items"], PluginConfiguration),
    ],
)
def test_the_values_schema_knows_every_key_of_the_configuration(
    schema: dict[str, Any], model: type[BaseModel]
) -> None:
    assert set(schema["properties"]) == keys(model) - FIXED_BY_THE_CHART
    assert schema["additionalProperties"] is False


def test_the_default_values_fit_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)

    jsonschema.validate(yaml.safe_load((CHART / "values.yaml").read_text()), SCHEMA)


@pytest.mark.e2e
def test_the_rendered_configuration_is_the_models_default(installation: Installation) -> None:
    assert installation.scheduler_configuration == SchedulerConfiguration()
    assert installation.binder_configuration == BinderConfiguration()
