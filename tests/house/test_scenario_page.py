"""docs/scenarios.md lists every key of scenarios, in the section of its part."""

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from bindery.scenario.format import Scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scenarios.md"
WRITTEN_AS_ELSEWHERE = (
    "bindery.scenario.constraints",
    "bindery.api.",
    "bindery.kube.objects.queues",
    "bindery.kube.objects.selectors",
)
"""Modules of what is written as in Kubernetes, or as in a Queue or the configuration."""
AS_IN_KUBERNETES = ("Taint",)
SECTIONS = {
    "Scenario": "Keys",
    "ConfigurationOverrides": "`config`",
    "ScenarioNode": "`nodes`",
    "ScenarioDevice": "`nodes`",
    "NodeNuma": "NUMA zones",
    "NumaZone": "NUMA zones",
    "Topology": "`topologies` and `hyperNodes`",
    "HyperNode": "`topologies` and `hyperNodes`",
    "ScenarioQueue": "`queues`",
    "GpuShare": "`queues`",
    "Share": "`queues`",
    "ModelShare": "`queues`",
    "ScenarioJob": "`jobs`",
    "Owner": "`jobs`",
    "SubGroup": "`jobs`",
    "Dependency": "`jobs`",
    "TopologyConstraint": "`jobs`",
    "Segments": "`jobs`",
    "ScenarioPod": "`pods` of a job",
    "InitContainer": "`pods` of a job",
    "GpuSelector": "`pods` of a job",
    "InTreeDisk": "`pods` of a job",
    "InFlightRequest": "`bindRequests`, `events` and `faults`",
    "Event": "`bindRequests`, `events` and `faults`",
    "Fault": "`bindRequests`, `events` and `faults`",
    "Expectation": "`expect`",
    "PodExpectation": "`expect`",
    "QueueExpectation": "`expect`",
}
"""Model -> the heading of its section."""


def models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield all models below `annotation` of which the page has the keys."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        is_elsewhere = annotation.__module__.startswith(WRITTEN_AS_ELSEWHERE)
        if is_elsewhere or annotation.__name__ in AS_IN_KUBERNETES:
            return
        yield annotation
        for field in annotation.model_fields.values():
            yield from models(field.annotation)
    for argument in typing.get_args(annotation):
        yield from models(argument)


MODELS = {model.__name__: model for model in models(Scenario)}


def sections() -> dict[str, str]:
    """Return heading -> the text below it, up to the next heading."""
    parts = re.split(r"^#+ (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_the_page_lists_every_key(name: str) -> None:
    text = sections()[SECTIONS[name]]
    keys = [field.alias or key for key, field in MODELS[name].model_fields.items()]

    assert [key for key in keys if not re.search(rf"[`{{ \"]{key}[`:, }}]", text)] == []


def test_every_section_has_a_model() -> None:
    assert SECTIONS.keys() == MODELS.keys()
