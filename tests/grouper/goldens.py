"""Golden files: the owners and the pods of one kind, and the PodGroups that they become.

Shorthands: `owner: Kind/name` instead of an owner reference; `count` of a pod writes `{i}` from 0
and `{j}` from 1 into its strings. The first letters of a UID are a digest of `Kind/name`.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bindery.grouper.table import Group, PodFacts, pod_facts

FOLDER = Path(__file__).with_name("golden")
NAMESPACE = "team-a"


@dataclass(frozen=True)
class Golden:
    owners: dict[str, dict[str, Any]]
    pods: list[PodFacts]
    groups: list[dict[str, Any]]
    problems: list[str]
    wanted: list[str]


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_golden(name: str) -> Golden:
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    objects = [completed(item) for item in content["objects"]]
    pods = [pod for item in content["pods"] for pod in replicas(item)]
    kinds = {f"{item['kind']}/{item['metadata']['name']}": item for item in objects}
    kinds |= {f"Pod/{pod['metadata']['name']}": pod for pod in pods}
    for item in (*objects, *pods):
        refer(item, kinds)
    return Golden(
        owners={item["metadata"]["uid"]: item for item in objects},
        pods=[pod_facts(pod) for pod in pods],
        groups=content.get("groups", []),
        problems=content.get("problems", []),
        wanted=content.get("wanted", []),
    )


def uid_of(kind: str, name: str) -> str:
    return hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()[:8] + f"-{kind}-{name}"


def shown(group: Group) -> dict[str, Any]:
    """Return a PodGroup as golden files have it."""
    written = group.to_object()
    metadata: Any = written["metadata"]
    found = {
        "name": group.name,
        "owner": str(group.owner),
        "spec": written["spec"],
        "sources": dict(sorted(group.sources.items())),
        "pods": len(group.pods),
    }
    labels = {key: value for key, value in metadata["labels"].items() if "made-by" not in key}
    return {**found, "labels": labels} if labels else found


def completed(item: dict[str, Any]) -> dict[str, Any]:
    metadata = item["metadata"]
    metadata["namespace"] = NAMESPACE
    metadata["uid"] = uid_of(item["kind"], metadata["name"])
    return item


def replicas(item: dict[str, Any]) -> list[dict[str, Any]]:
    count = item.pop("count", 1)
    return [pod_of(filled(item, i), i) for i in range(count)]


def pod_of(item: dict[str, Any], index: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        key: item[key] for key in ("name", "labels", "annotations") if key in item
    }
    metadata["creationTimestamp"] = item.get("created", f"2026-01-01T00:00:{index:02}Z")
    spec = {"schedulerName": "bindery", **item.get("spec", {})}
    status = {"phase": item.get("phase", "Pending")}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}
    return completed({**pod, "owner": item["owner"]} if "owner" in item else pod)


def filled(value: Any, index: int) -> Any:
    if isinstance(value, dict):
        return {key: filled(each, index) for key, each in value.items()}
    if isinstance(value, str):
        return value.replace("{i}", str(index)).replace("{j}", str(index + 1))
    return value


def refer(item: dict[str, Any], kinds: dict[str, dict[str, Any]]) -> None:
    """Write the owner reference of `item`, which stands as `owner: Kind/name`."""
    owner = item.pop("owner", None)
    if owner is not None:
        above = kinds[owner]
        item["metadata"]["ownerReferences"] = [
            {
                "apiVersion": above["apiVersion"],
                "kind": above["kind"],
                "name": above["metadata"]["name"],
                "uid": above["metadata"]["uid"],
                "controller": True,
            }
        ]
