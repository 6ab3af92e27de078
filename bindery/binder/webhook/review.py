"""Reviews pods: checks their keys, and calls plugins.

Pure; called by `server` for each request of the API server (admission.k8s.io/v1). A change is
refused only for new problems, so that users can always repair or remove a pod. A plugin that raises
an exception refuses nothing: the user gets a warning, and the scheduler checks again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from bindery.binder.plugins.interface import BinderPlugin, MutatesPods, PodManifest, ValidatesPods
from bindery.binder.webhook.answers import Review, answer, request_in, verdict
from bindery.binder.webhook.applicants import mistakes_of_pod, part
from bindery.binder.webhook.changes import patch

_log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Plugins:
    """The configured plugins, in their order."""

    all: Sequence[BinderPlugin]
    scheduler_name: str
    """Pods of other schedulers are admitted without a check, whatever the API server sends."""

    def validate(self, body: bytes) -> Review:
        """Return the answer to a review: refused with every reason, or allowed.

        Raises:
            MalformedReviewError: `body` cannot be read.
        """
        request = request_in(body)
        problems = _new_mistakes(request) if self._is_ours(request) else []
        warnings: list[str] = []
        for plugin in self._for(request):
            if isinstance(plugin, ValidatesPods):
                try:
                    problems += _new_problems(plugin, request)
                except Exception as error:  # any exception of a third party's plugin
                    warnings.append(_broken(plugin, "validate", error))
        # Two plugins may have the same rule.
        return verdict(request, list(dict.fromkeys(problems)), warnings)

    def mutate(self, body: bytes) -> Review:
        """Return the answer to a review: allowed, with the changes of the plugins.

        Raises:
            MalformedReviewError: `body` cannot be read.
        """
        request = request_in(body)
        pod: PodManifest = request["object"]
        warnings: list[str] = []
        for plugin in self._for(request):
            if isinstance(plugin, MutatesPods):
                try:
                    pod = plugin.mutate(pod)
                except Exception as error:  # any exception of a third party's plugin
                    warnings.append(_broken(plugin, "mutate", error))
        return answer(request, allowed=True, warnings=warnings, **patch(request["object"], pod))

    def _for(self, request: Mapping[str, Any]) -> Sequence[BinderPlugin]:
        return self.all if self._is_ours(request) else ()

    def _is_ours(self, request: Mapping[str, Any]) -> bool:
        spec = request["object"].get("spec") or {}
        return bool(spec.get("schedulerName") == self.scheduler_name)


def _new_problems(plugin: ValidatesPods, request: Mapping[str, Any]) -> list[str]:
    problems, old = plugin.validate(request["object"]), request.get("oldObject")
    if not problems or not isinstance(old, dict):
        return problems
    known = plugin.validate(old)
    return [problem for problem in problems if problem not in known]


def _new_mistakes(request: Mapping[str, Any]) -> list[str]:
    """Return the new problems of keys and values on the pod."""
    known = _mistakes(request.get("oldObject"))
    return [problem for problem in _mistakes(request["object"]) if problem not in known]


def _mistakes(pod: object) -> list[str]:
    return mistakes_of_pod(part(pod, "metadata")) if isinstance(pod, dict) else []


def _broken(plugin: BinderPlugin, step: str, error: Exception) -> str:
    _log.exception("a plugin failed unexpectedly", plugin=plugin.name, step=step)
    return f"plugin {plugin.name} could not {step} the pod: {type(error).__name__}: {error}"[:250]
