"""Write the objects of a live cluster as a scenario. Called by `bindery snapshot`; pure.

The objects stay as the API server has them, with the fields that this version does not know. Left
out are what planning never reads and what may be secret: environments, commands, configurations.
Invariant: a scheduler that starts on the written objects plans as one that starts on the given.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
import yaml

from bindery.api.configuration import SchedulerConfiguration
from bindery.scenario.fields import AnyObject
from bindery.scenario.hiding.hidden import hidden
from bindery.scheduler.history.place import HISTORY_NAME
from bindery.scheduler.model.images import normalized

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""It repeats the whole manifest, environments too."""
DROPPED: Final[Mapping[str, frozenset[str]]] = {
    "metadata": frozenset({"generateName", "managedFields", "selfLink"}),
    "pod": frozenset(
        {
            "automountServiceAccountToken",
            "dnsConfig",
            "dnsPolicy",
            "enableServiceLinks",
            "ephemeralContainers",
            "hostAliases",
            "hostname",
            "imagePullSecrets",
            "readinessGates",
            "securityContext",
            "serviceAccount",
            "serviceAccountName",
            "subdomain",
        }
    ),
    "container": frozenset(
        {
            "args",
            "command",
            "env",
            "envFrom",
            "imagePullPolicy",
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "securityContext",
            "startupProbe",
            "stdin",
            "stdinOnce",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "tty",
            "volumeDevices",
            "workingDir",
        }
    ),
    "container status": frozenset(
        {
            "containerID",
            "image",
            "imageID",
            "lastState",
            "ready",
            "restartCount",
            "started",
            "user",
            "volumeMounts",
        }
    ),
    "pod status": frozenset({"ephemeralContainerStatuses", "hostIP", "hostIPs", "podIP", "podIPs"}),
    "node": frozenset({"podCIDR", "podCIDRs", "providerID"}),
    "node status": frozenset(
        {
            "addresses",
            "config",
            "daemonEndpoints",
            "nodeInfo",
            "runtimeHandlers",
            "volumesAttached",
            "volumesInUse",
        }
    ),
    "volume source": frozenset({"nodePublishSecretRef", "secretRef", "volumeAttributes"}),
}
"""By part of an object: the fields that are left out."""
_SECRET_SOURCES: Final = frozenset({"configMap", "downwardAPI", "projected", "secret"})
"""Volumes with these sources are left out; no rule about nodes depends on them."""
_SECRET_KEY: Final = re.compile(r"secret(ref|name)$", re.IGNORECASE)
_IMAGE_KEYS: Final = frozenset({"image", "reference"})
"""Of a container, and of a volume that is an image."""
_UNPRINTABLE: Final = re.compile("[\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
"""What JSON may hold as it is, and YAML may not."""


def snapshot_text(
    objects: Sequence[AnyObject], configuration: SchedulerConfiguration, now: datetime
) -> str:
    """Return the scenario with `objects` and `configuration`: YAML, one object on a line."""
    scheduler = configuration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return _text(list(pruned(objects)), scheduler, now)


def hidden_snapshot_text(
    objects: Sequence[AnyObject], configuration: SchedulerConfiguration, now: datetime
) -> tuple[str, Mapping[str, str]]:
    """Return the scenario with pseudonyms in place of names, and pseudonym -> name.

    The history is left out: its messages and compressed text are full of names.
    """
    kept = [item for item in objects if not _is_history(item)]
    found = hidden(list(pruned(kept)), configuration)
    return _text(found.objects, found.scheduler, now), found.names


def _is_history(item: AnyObject) -> bool:
    name = str((item.get("metadata") or {}).get("name", ""))
    is_named = name == HISTORY_NAME or name.startswith(f"{HISTORY_NAME}-")
    return item.get("kind") == "ConfigMap" and is_named


def _text(objects: Sequence[AnyObject], scheduler: AnyObject, now: datetime) -> str:
    at = now.astimezone(UTC)
    head = {
        "name": f"snapshot of {at:%Y-%m-%d %H:%M:%S} UTC",
        "now": at.isoformat(timespec="microseconds"),
        "config": {"scheduler": scheduler},
    }
    lines = [yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=100)]
    lines += ["objects:\n", *map(_line, objects)] if objects else []
    return "".join(lines)


def pruned(objects: Sequence[AnyObject]) -> Iterator[AnyObject]:
    """Yield `objects` without the fields that are left out, and without images that no pod uses."""
    used = {
        normalized(name)
        for item in objects
        if item.get("kind") != "Node"
        for name in _images(item.get("spec"))
    }
    for item in objects:
        kept = {key: _pruned(value) for key, value in item.items()}
        changes: dict[str, Any] = {"metadata": _metadata}
        if item.get("kind") == "Pod":
            changes["status"] = _pod_status
        elif item.get("kind") == "Node":
            changes |= {"spec": _node_spec, "status": partial(_node_status, used=used)}
        elif item.get("kind") == "StorageClass":
            kept.pop("parameters", None)
        for key, change in changes.items():
            if isinstance(kept.get(key), dict):
                kept[key] = change(kept[key])
        yield kept


def _line(item: AnyObject) -> str:
    text = msgspec.json.encode(item).decode("utf-8", "replace")
    return f"- {_UNPRINTABLE.sub(_escaped, text)}\n"


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _without(value: Any, part: str) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in value.items() if key not in DROPPED[part]}


def _pruned(value: Any) -> Any:
    """Return `value` with each spec of a pod in it pruned, and without references to secrets."""
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {
        key: _pruned(each)
        for key, each in value.items()
        if not _SECRET_KEY.search(key) and key not in DROPPED["volume source"]
    }
    return _pod_spec(found) if isinstance(found.get("containers"), list) else found


def _node_spec(spec: AnyObject) -> AnyObject:
    kept: AnyObject = _without(spec, "node")
    return kept


def _metadata(meta: AnyObject) -> AnyObject:
    kept: AnyObject = _without(meta, "metadata")
    annotations = kept.get("annotations")
    if isinstance(annotations, dict) and _LAST_APPLIED in annotations:
        kept["annotations"] = {k: v for k, v in annotations.items() if k != _LAST_APPLIED}
    return kept


def _images(value: Any) -> Iterator[str]:
    """Yield the images of containers and volumes, also of templates of pods."""
    if isinstance(value, list):
        for each in value:
            yield from _images(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in _IMAGE_KEYS and isinstance(each, str):
                yield each
            elif isinstance(each, dict | list):
                yield from _images(each)


def _pod_spec(spec: AnyObject) -> AnyObject:
    kept: AnyObject = _without(spec, "pod")
    for key in ("containers", "initContainers"):
        if isinstance(kept.get(key), list):
            kept[key] = [_container(each) for each in kept[key]]
    if isinstance(kept.get("volumes"), list):
        kept["volumes"] = [each for each in kept["volumes"] if not _is_secret(each)]
    return kept


def _container(container: Any) -> Any:
    kept = _without(container, "container")
    if isinstance(kept, dict) and isinstance(kept.get("volumeMounts"), list):
        options = "bindMountOptions"
        mounts = [{options: m[options]} for m in kept["volumeMounts"] if _has(m, options)]
        kept["volumeMounts"] = mounts
        if not mounts:
            del kept["volumeMounts"]
    return kept


def _has(value: Any, key: str) -> bool:
    return isinstance(value, dict) and bool(value.get(key))


def _is_secret(volume: Any) -> bool:
    return isinstance(volume, dict) and not _SECRET_SOURCES.isdisjoint(volume)


def _pod_status(status: AnyObject) -> AnyObject:
    kept: AnyObject = _without(status, "pod status")
    for key in ("containerStatuses", "initContainerStatuses"):
        if isinstance(kept.get(key), list):
            kept[key] = [_container_status(each) for each in kept[key]]
    return kept


def _container_status(status: Any) -> Any:
    kept = _without(status, "container status")
    if isinstance(kept, dict) and isinstance(kept.get("state"), dict):
        kept["state"] = {key: each for key, each in kept["state"].items() if key == "waiting"}
    return kept


def _node_status(status: AnyObject, used: set[str]) -> AnyObject:
    kept: AnyObject = _without(status, "node status")
    if isinstance(kept.get("images"), list):
        kept["images"] = [each for each in kept["images"] if _is_used(each, used)]
    return kept


def _is_used(image: Any, used: set[str]) -> bool:
    names = image.get("names") if isinstance(image, dict) else None
    return any(isinstance(name, str) and normalized(name) in used for name in names or ())
