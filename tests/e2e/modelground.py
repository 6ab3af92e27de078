"""The state in which a comparison of the model with a real API server begins."""

from collections.abc import Mapping
from typing import Final

from tests.e2e.modelcalls import MERGE, NAMESPACES, PARTIAL
from tests.e2e.modelcomparison import Asked, Sides
from tests.histories.apiserver.kinds import Kind

_NOT_ALONE: Final = ("leases", "configmaps")
"""Kinds of which the real server has objects of its own, in other namespaces."""


def prepare(sides: Sides, kinds: Mapping[str, Kind]) -> None:
    """Delete the objects of earlier runs, create the namespaces of pods, and open watches."""
    for kind in sorted(kinds.values(), key=lambda each: each.plural == "namespaces"):
        _clear(sides, kind)
    for namespace in NAMESPACES:
        sides.ask(Asked("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}))
        account = {"metadata": {"name": "default"}}
        sides.ask(Asked("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account))
    for plural, kind in kinds.items():
        root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        inside = f"/namespaces/{NAMESPACES[0]}" if plural in _NOT_ALONE else ""
        path = f"{root}{inside}/{plural}"
        sides.watch(path)
        if plural == "pods":
            sides.watch(path, "fieldSelector=spec.nodeName%3D,status.phase!%3DFailed")
            sides.watch(f"/api/v1/namespaces/{NAMESPACES[1]}/pods", "labelSelector=app%3Da")
            sides.watch(path, accept=PARTIAL)
        if plural == "queues":
            sides.watch(path, "labelSelector=app%20in%20(a,b)", accept=PARTIAL)


def _clear(sides: Sides, kind: Kind) -> None:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    _, listed = sides.real.handle(Asked("GET", f"{root}/{kind.plural}"))
    for each in listed["items"]:
        meta = each["metadata"]
        namespace = meta.get("namespace", "")
        place = namespace if kind.namespaced else meta["name"]
        is_theirs = place.startswith(("kube-", "system-", "default"))
        if is_theirs:
            continue
        inside = f"/namespaces/{namespace}" if namespace else ""
        if inside:  # nothing can be changed in a namespace that is gone
            sides.real.handle(
                Asked("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            )
        path = f"{root}{inside}/{kind.plural}/{meta['name']}"
        sides.real.handle(Asked("PATCH", path, {"metadata": {"finalizers": None}}, MERGE))
        sides.real.handle(Asked("DELETE", path, {"gracePeriodSeconds": 0}))
        if kind.plural == "namespaces":
            ended = {**each, "spec": {}}
            ended["metadata"] = {"name": meta["name"]}
            sides.real.handle(
                Asked("PUT", f"{path}/finalize", {**ended, "kind": "Namespace", "apiVersion": "v1"})
            )
