"""The settings of a running kubelet, from its configuration file and its checkpoints. Pure.

The kubelet reads its configuration once, at its start, and arguments of its command line come
before it. Its checkpoints have the policies with which it runs, so these are believed.
"""

from collections.abc import Mapping
from typing import Any, Final

import yaml
from pydantic import ValidationError

from bindery.api import yamlfile
from bindery.nodeagent.hardware import GATES, KubeletSettings
from bindery.nodecore import checkpointfiles
from bindery.nodecore.checkpoints import cpu, memory
from bindery.nodecore.errors import CheckpointError

KIND: Final = "KubeletConfiguration"
_EVICTION: Final = "evictionHard"
_MERGES: Final = "mergeDefaultEvictionSettings"
_GATES: Final = "featureGates"
_DEFAULT_EVICTION: Final = {"memory.available": "100Mi"}
"""The only default that takes memory from pods."""
_POLICIES: Final = (
    (cpu.FILE, "cpu_manager_policy", "CPU manager"),
    (memory.FILE, "memory_manager_policy", "memory manager"),
)


class SettingsError(Exception):
    """The configuration cannot be read."""


def parse(text: str) -> KubeletSettings:
    """Return the settings in a configuration file, with the kubelet's defaults.

    Raises:
        SettingsError: it is no KubeletConfiguration, or a kubelet would not start with it.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"it is not YAML: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise SettingsError(f"it is no {KIND}")
    fields = {each.alias or name for name, each in KubeletSettings.model_fields.items()}
    given = {key: document[key] for key in sorted(fields & document.keys())}
    found = {key: value for key, value in given.items() if value is not None}
    found[_EVICTION] = _eviction(document)
    gates = document.get(_GATES)
    if isinstance(gates, dict):
        found[_GATES] = {gate: on for gate, on in gates.items() if gate in GATES}
    try:
        return KubeletSettings.model_validate(found)
    except ValidationError as error:
        raise SettingsError(yamlfile.describe(error.errors()[0])) from error


def in_force(
    settings: KubeletSettings, files: Mapping[str, bytes]
) -> tuple[KubeletSettings, list[str]]:
    """Return the settings with the policies of the checkpoints, and how these differ.

    A file that cannot be read is left out; who reads the state in it reports it.
    """
    changed: dict[str, Any] = {}
    differences = []
    for name, field, manager in _POLICIES:
        policy = _policy(files.get(name))
        configured = getattr(settings, field)
        if policy is not None and policy != configured:
            changed[field] = policy
            differences.append(
                f"the {manager} runs with the policy {policy!r} by {name}, and the configuration "
                f"has {configured!r}: {policy!r} is believed"
            )
    return settings.model_copy(update=changed), differences


def _eviction(document: Mapping[str, Any]) -> Mapping[str, str]:
    given = document.get(_EVICTION)
    if not isinstance(given, dict):
        return _DEFAULT_EVICTION
    return {**_DEFAULT_EVICTION, **given} if document.get(_MERGES) is True else given


def _policy(blob: bytes | None) -> str | None:
    if not blob:
        return None
    try:
        return checkpointfiles.read(blob).policy
    except CheckpointError:
        return None
