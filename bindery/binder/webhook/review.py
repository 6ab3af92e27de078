"""Answers AdmissionReviews of pods by their keys and by plugins.

Pure; called by `server` for each request of the API server (admission.k8s.io/v1). A change is
refused for what it makes wrong, not for what was wrong before, so that nobody is kept from mending
or removing a pod. A plugin that breaks refuses nothing: its trouble is a warning to the user, and
the scheduler checks again.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from bindery.api.mistakes import mistaken_keys
from bindery.binder.plugins.interface import (
    BinderPlugin,
    MutatesPods,
    PodManifest,
    ValidatesPods,
)

_log: Final = structlog.get_logger(__name__)

_API_VERSION: Final = "admission.k8s.io/v1"
Review = dict[str, Any]


class MalformedReviewError(Exception):
    """The body is not an AdmissionReview of a pod."""


@dataclass(frozen=True)
class Plugins:
    """The configured plugins, in their order."""

    all: Sequence[BinderPlugin]
    scheduler_name: str
    """Pods of other schedulers are let through untouched, whatever the API server sends."""

    def validate(self, body: bytes) -> Review:
        """Return the answer to a review: refused with every reason, or allowed.

        Raises:
            MalformedReviewError: it cannot be read.
        """
        request = _request(body)
        problems = _new_mistakes(request) if self._is_ours(request) else []
        warnings: list[str] = []
        for plugin in self._for(request):
            if isinstance(plugin, ValidatesPods):
                try:
                    problems += _new_problems(plugin, request)
                except Exception as error:  # whatever a third party's plugin raises
                    warnings.append(_broken(plugin, "validate", error))
        if not problems:
            return _answer(request, allowed=True, warnings=warnings)
        status = {"code": 422, "reason": "Invalid", "message": "; ".join(problems)}
        return _answer(request, allowed=False, warnings=warnings, status=status)

    def mutate(self, body: bytes) -> Review:
        """Return the answer to a review: allowed, with the changes that plugins make.

        Raises:
            MalformedReviewError: it cannot be read.
        """
        request = _request(body)
        pod: PodManifest = request["object"]
        warnings: list[str] = []
        for plugin in self._for(request):
            if isinstance(plugin, MutatesPods):
                try:
                    pod = plugin.mutate(pod)
                except Exception as error:  # whatever a third party's plugin raises
                    warnings.append(_broken(plugin, "mutate", error))
        patch = changes(request["object"], pod)
        if not patch:
            return _answer(request, allowed=True, warnings=warnings)
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        return _answer(
            request, allowed=True, warnings=warnings, patchType="JSONPatch", patch=encoded
        )

    def _for(self, request: Mapping[str, Any]) -> Sequence[BinderPlugin]:
        return self.all if self._is_ours(request) else ()

    def _is_ours(self, request: Mapping[str, Any]) -> bool:
        spec = request["object"].get("spec") or {}
        return bool(spec.get("schedulerName") == self.scheduler_name)


def changes(old: PodManifest, new: PodManifest) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) from `old` to `new`, as deep as both are objects."""
    return list(_changes(old, new, ""))


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Any:
    for key in sorted({*old, *new}):
        here = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in new:
            yield {"op": "remove", "path": here}
        elif key not in old:
            yield {"op": "add", "path": here, "value": new[key]}
        elif isinstance(old[key], Mapping) and isinstance(new[key], Mapping):
            yield from _changes(old[key], new[key], here)
        elif old[key] != new[key]:
            yield {"op": "replace", "path": here, "value": new[key]}


def _request(body: bytes) -> Review:
    try:
        request = json.loads(body)["request"]
        is_sound = isinstance(request["uid"], str) and isinstance(request["object"], dict)
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedReviewError(f"not an AdmissionReview of a pod: {error}") from error
    if not is_sound:
        raise MalformedReviewError("not an AdmissionReview of a pod: it has no uid or no object")
    return dict(request)


def _new_problems(plugin: ValidatesPods, request: Mapping[str, Any]) -> list[str]:
    problems, old = plugin.validate(request["object"]), request.get("oldObject")
    if not problems or not isinstance(old, dict):
        return problems
    known = plugin.validate(old)
    return [problem for problem in problems if problem not in known]


def _new_mistakes(request: Mapping[str, Any]) -> list[str]:
    """Return the problems of keys that are new on the pod."""
    known = _mistakes(request.get("oldObject"))
    return [problem for problem in _mistakes(request["object"]) if problem not in known]


def _mistakes(pod: object) -> list[str]:
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    if not isinstance(metadata, dict):
        return []
    return mistaken_keys(metadata.get("annotations") or {}, metadata.get("labels") or {})


def _answer(request: Mapping[str, Any], *, allowed: bool, **more: Any) -> Review:
    response = {"uid": request["uid"], "allowed": allowed, **more}
    response = {name: value for name, value in response.items() if value != []}
    return {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}


def _broken(plugin: BinderPlugin, step: str, error: Exception) -> str:
    _log.exception("a plugin failed unexpectedly", plugin=plugin.name, step=step)
    return f"plugin {plugin.name} could not {step} the pod: {type(error).__name__}: {error}"[:250]
