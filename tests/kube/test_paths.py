"""Paths of objects: names from other clients never lead to other objects."""

import pytest

from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import PODS


@pytest.mark.parametrize("name", [".", "..", "a/b", "../../other/pods/a", "a%2Fb"])
def test_an_invalid_name_is_not_found(name: str) -> None:
    with pytest.raises(NotFoundError):
        PODS.path("ns", name)


def test_a_name_is_quoted() -> None:
    assert PODS.path("ns", "a?b", "status") == "/api/v1/namespaces/ns/pods/a%3Fb/status"
