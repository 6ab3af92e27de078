"""The webhook's answers to any review, with any behaviour of plugins."""

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.binder.plugins.gpusharing import admission
from bindery.binder.plugins.interface import PodManifest
from bindery.binder.webhook.answers import MalformedReviewError
from bindery.binder.webhook.changes import changes
from bindery.binder.webhook.review import Plugins


class Strict:
    name = "strict"

    def __init__(self, *problems: str) -> None:
        self._problems = list(problems)

    def validate(self, pod: PodManifest) -> list[str]:  # noqa: ARG002
        return self._problems


class Broken:
    name = "broken"

    def validate(self, pod: PodManifest) -> list[str]:  # noqa: ARG002
        raise RuntimeError("it broke")

    def mutate(self, pod: PodManifest) -> PodManifest:  # noqa: ARG002
        raise RuntimeError("it broke")


class Adds:
    def __init__(self, name: str) -> None:
        self.name = name

    def mutate(self, pod: PodManifest) -> PodManifest:
        return {**pod, "added": [*pod.get("added", []), self.name]}


def review(pod: dict[str, Any] | None = None) -> bytes:
    pod = {"spec": {"schedulerName": "bindery"}} if pod is None else pod
    return json.dumps({"request": {"uid": "7", "object": pod}}).encode()


def patched(old: Any, patch: list[dict[str, Any]]) -> Any:
    new = copy.deepcopy(old)
    for step in patch:
        keys = [k.replace("~1", "/").replace("~0", "~") for k in step["path"].split("/")[1:]]
        at = new
        for key in keys[:-1]:
            at = at[key]
        if step["op"] == "remove":
            del at[keys[-1]]
        else:
            at[keys[-1]] = step["value"]
    return new


def test_all_problems_of_all_plugins_are_listed() -> None:
    answer = Plugins([Strict("one", "two"), Strict("three")], "bindery").validate(review())

    assert answer["response"]["uid"] == "7"
    assert answer["response"]["status"]["message"] == "one; two; three"


def test_a_change_is_refused_only_for_errors_that_it_introduces() -> None:
    class Named:
        name = "named"

        def validate(self, pod: PodManifest) -> list[str]:
            return list(pod["problems"])

    def answer(old: list[str], new: list[str]) -> Any:
        pods = [
            {"spec": {"schedulerName": "bindery"}, "problems": problems} for problems in (old, new)
        ]
        body = {"request": {"uid": "7", "object": pods[1], "oldObject": pods[0]}}
        return Plugins([Named()], "bindery").validate(json.dumps(body).encode())["response"]

    assert answer(["one"], ["one"])["allowed"]
    assert answer(["one"], [])["allowed"]
    assert answer(["one"], ["one", "two"])["status"]["message"] == "two"


def test_an_unknown_key_of_bindery_is_refused_when_it_is_added() -> None:
    group = "scheduling.bindery.dev"

    def answer(old: dict[str, str] | None, new: dict[str, str], scheduler: str = "bindery") -> Any:
        old_pod, pod = (
            {"spec": {"schedulerName": scheduler}, "metadata": {"annotations": annotations}}
            for annotations in (old, new)
        )
        request = {"uid": "7", "object": pod, "oldObject": None if old is None else old_pod}
        return Plugins([], "bindery").validate(json.dumps({"request": request}).encode())

    refused = answer(None, {f"{group}/podgroup": "g"})["response"]
    assert not refused["allowed"]
    assert f"did you mean the annotation {group}/pod-group?" in refused["status"]["message"]
    assert not answer({}, {f"{group}/queue": "q"})["response"]["allowed"]
    kept = {f"{group}/queue": "q"}
    assert answer(kept, {**kept, "more": "1"})["response"]["allowed"]
    assert answer(None, {f"{group}/pod-group": "g"})["response"]["allowed"]
    assert answer(None, {f"{group}/podgroup": "g"}, "other")["response"]["allowed"]


def test_a_plugin_that_raises_is_named_in_a_warning_and_refuses_no_object() -> None:
    plugins = Plugins([Broken(), Adds("a")], "bindery")

    for answer in (plugins.validate(review()), plugins.mutate(review())):
        assert answer["response"]["allowed"]
        assert "plugin broken could not" in answer["response"]["warnings"][0]


def test_each_plugin_sees_the_changes_of_earlier_plugins() -> None:
    answer = Plugins([Adds("a"), Adds("b")], "bindery").mutate(review())

    patch = json.loads(base64.b64decode(answer["response"]["patch"]))
    assert patch == [{"op": "add", "path": "/added", "value": ["a", "b"]}]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"request": {}}', b'{"request": 1}', b"\xff"]
)
def test_a_body_that_is_no_review_is_rejected_as_such(body: bytes) -> None:
    with pytest.raises(MalformedReviewError):
        Plugins([], "bindery").validate(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
objects = st.dictionaries(st.text(alphabet="ab/~", max_size=3), json_values, max_size=4)


@given(old=objects, new=objects)
def test_a_patch_transforms_the_old_object_into_the_new(old: Any, new: Any) -> None:
    assert patched(old, changes(old, new)) == new


def test_preparing_a_pod_is_idempotent() -> None:
    pod = {
        "metadata": {"name": "a", "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"containers": [{"name": "main"}], "schedulerName": "bindery"},
    }
    once = admission.prepared(pod)

    assert admission.prepared(once) == once
    assert once != pod


def test_a_copied_pod_loses_the_device_records_of_its_original() -> None:
    pod = {
        "metadata": {
            "name": "a",
            "annotations": {"gpu-fraction": "0.5", "received-resource-type": "Fraction"},
            "labels": {"runai-gpu-group": "g", "runai-gpu-group/h": "h", "app": "mine"},
        },
        "spec": {"containers": [{"name": "main"}]},
    }
    metadata = admission.prepared(pod)["metadata"]

    assert metadata["labels"] == {"app": "mine"}
    assert "received-resource-type" not in metadata["annotations"]


@pytest.mark.parametrize(
    ("wanted", "kind", "key"), [("main", "containers", "1"), ("first", "initContainers", "i0")]
)
def test_the_named_container_gets_the_environment_of_the_share(
    wanted: str, kind: str, key: str
) -> None:
    annotations = {"gpu-fraction": "0.5", "gpu-fraction-container-name": wanted}
    pod = {
        "metadata": {"name": "a", "annotations": annotations},
        "spec": {
            "initContainers": [{"name": "first"}],
            "containers": [{"name": "proxy"}, {"name": "main"}],
        },
    }
    spec = admission.prepared(pod)["spec"]
    told = [each for each in spec[kind] if "env" in each]

    assert [each["name"] for each in told] == [wanted]
    assert told[0]["env"][0]["valueFrom"]["configMapKeyRef"]["name"].endswith(f"-{key}")
    others = spec["containers" if kind == "initContainers" else "initContainers"]
    assert not any("env" in each for each in others)
