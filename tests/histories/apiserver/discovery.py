"""Discovery: the paths that list the served groups and kinds."""

from collections.abc import Sequence
from typing import Any

from tests.histories.apiserver.kinds import Kind
from tests.histories.apiserver.refusals import no_such_path


def is_discovery(path: str) -> bool:
    """Whether `path` lists groups or kinds."""
    parts = path.strip("/").split("/")
    return path == "/apis" or (parts[0], len(parts)) in (("apis", 3), ("api", 2))


def discover(path: str, kinds: Sequence[Kind]) -> dict[str, Any]:
    """Return the document at `path`."""
    if path == "/apis":
        return _groups(kinds)
    parts = path.strip("/").split("/")
    wanted = "/".join(parts[1:])
    found = [kind for kind in kinds if kind.api_version == wanted]
    if not found or (parts[0] == "api") != ("/" not in wanted):
        raise no_such_path()
    entries = []
    for kind in found:
        names = [kind.plural, *(f"{kind.plural}/{each}" for each in sorted(kind.subresources))]
        entries += [
            {"name": name, "kind": kind.name, "namespaced": kind.namespaced} for name in names
        ]
    return {"kind": "APIResourceList", "groupVersion": wanted, "resources": entries}


def _groups(kinds: Sequence[Kind]) -> dict[str, Any]:
    versions: dict[str, list[str]] = {}
    for kind in kinds:
        if kind.group and kind.version not in versions.setdefault(kind.group, []):
            versions[kind.group].append(kind.version)
    groups = []
    for group, names in versions.items():
        listed = [{"groupVersion": f"{group}/{each}", "version": each} for each in names]
        groups.append({"name": group, "versions": listed, "preferredVersion": listed[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
