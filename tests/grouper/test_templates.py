"""Pod templates of owners with schemas that accept any template."""

from typing import Any

import pytest

from bindery.grouper.table.templates import scheduling_part

CONTAINER = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
SOUND = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}


@pytest.mark.parametrize("junk", [None, 5, 1.5, True, "x", [5], [None], {"a": None}])
@pytest.mark.parametrize("key", ["initContainers", "volumes", "ports"])
def test_a_list_of_any_shape_does_not_affect_the_rest_of_the_template(
    key: str, junk: object
) -> None:
    inner = {**CONTAINER, key: junk} if key == "ports" else CONTAINER
    outer = {} if key == "ports" else {key: junk}
    template = {**SOUND, "spec": {"containers": [inner], **outer}}

    assert scheduling_part(template) == scheduling_part(SOUND)


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        ({"labels": {"app": "a", "b": None, "c": 5, "d": {}}}, {"app": "a"}),
        ({"labels": {"app": "a"}, "annotations": {"a": None}}, {"app": "a"}),
        ({"labels": {"app": "a"}, "annotations": [5]}, {"app": "a"}),
        ({"labels": 5}, {}),
        (None, {}),
    ],
)
def test_labels_and_annotations_other_than_strings_are_ignored(
    metadata: Any, labels: dict[str, str]
) -> None:
    found = scheduling_part({**SOUND, "metadata": metadata})

    assert found.metadata.labels == labels
    assert found.metadata.annotations == {}
    assert found.spec == {"containers": [CONTAINER]}
