"""The example of a third-party plugin: found when installed, and used by all components."""

import base64
import json
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.names import BINDER_PLUGINS, SCHEDULER_PLUGINS
from bindery.api.plugins import PluginConfigurationError
from bindery.binder.plugins import registry as binder_registry
from bindery.binder.webhook.review import Plugins
from bindery.scheduler.plugins import registry as scheduler_registry
from bindery.scheduler.plugins.interface.state import BindData

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "binder-plugin"
PROJECT: dict[str, Any] = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
ARGUMENTS = {"registries": ["registry.example.com"]}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package as an installer would: code, and the metadata of pyproject.toml."""
    information = tmp_path / "bindery_image_policy-1.0.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n"
    )
    lines = [
        line
        for group, points in PROJECT["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {where}" for name, where in points.items()))
    ]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))


def plugins() -> Plugins:
    configured = [PluginConfiguration(name="image_policy", arguments=ARGUMENTS)]
    return Plugins(binder_registry.build(configured), "bindery")


def review(image: str, scheduler: str = "bindery") -> bytes:
    pod = {"spec": {"schedulerName": scheduler, "containers": [{"name": "a", "image": image}]}}
    return json.dumps({"request": {"uid": "1", "object": pod}}).encode()


@pytest.mark.usefixtures("installed")
def test_the_binder_and_scheduler_plugins_have_the_same_name() -> None:
    for group in (BINDER_PLUGINS, SCHEDULER_PLUGINS):
        assert "image_policy" in {point.name for point in entry_points(group=group)}


@pytest.mark.usefixtures("installed")
def test_the_webhook_refuses_and_changes_pods_by_the_plugin() -> None:
    refused = plugins().validate(review("docker.io/a"))["response"]
    changed = plugins().mutate(review("registry.example.com/a"))["response"]

    assert not refused["allowed"]
    assert "image 'docker.io/a' is from no trusted registry" in refused["status"]["message"]
    patch = json.loads(base64.b64decode(changed["patch"]))
    assert patch[0]["path"] == "/spec/containers"
    assert patch[0]["value"][0]["imagePullPolicy"] == "Always"


@pytest.mark.usefixtures("installed")
def test_pods_of_other_schedulers_are_permitted() -> None:
    assert plugins().validate(review("docker.io/a", "other"))["response"]["allowed"]
    assert "patch" not in plugins().mutate(review("docker.io/a", "other"))["response"]


@pytest.mark.usefixtures("installed")
def test_a_wrong_argument_is_a_startup_error_with_its_position() -> None:
    configured = [PluginConfiguration(name="image_policy", arguments={"registry": "x"})]

    with pytest.raises(PluginConfigurationError, match=r"arguments\.regist"):
        binder_registry.build(configured)


@pytest.mark.usefixtures("installed")
def test_the_scheduler_loads_its_plugin() -> None:
    arguments = {"warmLabel": "images.example.com/warm"}
    configured = (
        *SchedulerConfiguration().plugins,
        PluginConfiguration(name="image_policy", arguments=arguments),
    )
    found = scheduler_registry.load(configured)

    assert "image_policy" in {plugin.name for plugin in found.plugins}
    assert "image_policy" in {plugin.name for plugin in found.of(BindData)}
