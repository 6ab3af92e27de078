"""Each component exports only its own series."""

import json
import subprocess
import sys

import pytest

SHARED = ("bindery_api_", "bindery_events_", "bindery_watch_")
"""Series about the traffic with the API server; every component has them."""
FOREIGN = {
    "scheduler": ("bindery_binder_", "bindery_grouper_", "bindery_nodeagent_", "bindery_webhook_"),
    "binder": ("bindery_cycle_", "bindery_grouper_", "bindery_nodeagent_", "bindery_webhook_"),
    "grouper": ("bindery_cycle_", "bindery_bind", "bindery_nodeagent_", "bindery_webhook_"),
    "webhook": ("bindery_cycle_", "bindery_bind", "bindery_nodeagent_", "bindery_grouper_"),
    "nodeagent": ("bindery_cycle_", "bindery_bind", "bindery_webhook_", "bindery_grouper_"),
}
_SCRIPT = """
import importlib, json, sys
command = importlib.import_module("bindery.cli.processes." + sys.argv[1])
if hasattr(command, "registry"):
    command.registry.load(None)
from prometheus_client import REGISTRY
print(json.dumps([metric.name for metric in REGISTRY.collect()]))
"""


@pytest.mark.parametrize("component", FOREIGN)
def test_a_component_exports_no_series_of_another(component: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, component],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    names: list[str] = json.loads(done.stdout)
    assert any(name.startswith(SHARED) for name in names)
    assert [name for name in names if name.startswith(FOREIGN[component])] == []
