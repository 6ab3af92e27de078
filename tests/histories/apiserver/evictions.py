"""The `eviction` subresource, with disruption budgets."""

from collections.abc import Mapping
from typing import Any, Final

from tests.histories.apiserver.calls import Call
from tests.histories.apiserver.deletion import Deleter, check_preconditions
from tests.histories.apiserver.kinds import Kind
from tests.histories.apiserver.pods import set_condition
from tests.histories.apiserver.refusals import (
    NotModelledError,
    Refusal,
    bad_request,
    forbidden,
    not_found,
)
from tests.histories.apiserver.selectors import selects
from tests.histories.apiserver.store import Key, Plain, Store, Version, Writer
from tests.histories.apiserver.times import stamp

_VIOLATION: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_TARGET: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_MOST_DISRUPTED: Final = 2000


class Evictions:
    """Evicts pods."""

    def __init__(self, store: Store, deleter: Deleter, budgets: Kind) -> None:
        self._store = store
        self._deleter = deleter
        self._budgets = budgets

    def evict(self, call: Call, now_s: float) -> None:
        """Carry out an eviction, or refuse it."""
        pods, key = call.place.kind, call.key
        body = call.object()
        name = (body.get("metadata") or {}).get("name")
        if name != call.place.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = body.get("deleteOptions") or {}
        is_dry = call.is_dry or bool(options.get("dryRun"))
        if (options.get("preconditions") or {}).get("resourceVersion"):
            raise NotModelledError("an eviction of one resourceVersion")
        stored = self._store.get(pods, key)
        if stored is None:
            raise not_found("pods", call.place.name)
        writer = Writer(call.caller, "create", "eviction")
        pod = stored.object
        if not _needs_no_budget(pod):
            found = self._matching(pod)
            if len(found) > 1:
                text = "This pod has more than one PodDisruptionBudget, which the eviction"
                raise Refusal(500, "", f"{text} subresource does not support.")
            preconditions = options.get("preconditions") or {}
            is_other = preconditions.get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]
            # For an unhealthy pod Kubernetes first tries without the budget, and then with it.
            if found and (is_other or not _is_unhealthy_and_free(pod, found[0][1].object)):
                self._count(*found[0], call.place.name, writer, now_s, is_dry=is_dry)
        # After the budget has been charged, as in Kubernetes.
        check_preconditions(pods, stored, options.get("preconditions") or {})
        if is_dry:
            return
        marked = stored.copy()
        if set_condition(marked, _TARGET, stamp(now_s)):
            self._store.put(pods, key, marked, writer)
        rest = {name: value for name, value in options.items() if name != "preconditions"}
        self._deleter.delete(pods, key, rest, writer, now_s)

    def _matching(self, pod: Mapping[str, Any]) -> list[tuple[Key, Version]]:
        meta = pod["metadata"]
        return [
            (key, budget)
            for key, budget in sorted(self._store.of(self._budgets).objects.items())
            if key[0] == meta["namespace"]
            and selects(budget.object["spec"].get("selector"), meta.get("labels") or {})
        ]

    def _count(
        self, key: Key, budget: Version, pod: str, writer: Writer, now_s: float, *, is_dry: bool
    ) -> None:
        new = budget.copy()
        status, name = new["status"], key[1]
        allowed = status.get("disruptionsAllowed", 0)
        if status.get("observedGeneration", 0) < new["metadata"].get("generation", 0):
            raise _throttled(
                f"The disruption budget {name} is still being processed by the server.", 10
            )
        if allowed < 0:
            raise forbidden(self._budgets.qualified, name, "pdb disruptions allowed is negative")
        if len(status.get("disruptedPods") or {}) > _MOST_DISRUPTED:
            text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
            raise forbidden(self._budgets.qualified, name, text)
        if allowed == 0:
            needed, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            raise _throttled(
                f"The disruption budget {name} needs {needed} healthy pods and has {current} "
                "currently",
                None,
            )
        if is_dry:
            return
        status["disruptionsAllowed"] = allowed - 1
        status.setdefault("disruptedPods", {})[pod] = stamp(now_s)
        if allowed == 1:
            _set_insufficient(new, stamp(now_s))
        self._store.put(self._budgets, key, new, writer)


def _set_insufficient(budget: Plain, at: str) -> None:
    conditions = budget["status"].setdefault("conditions", [])
    found = next((each for each in conditions if each["type"] == "DisruptionAllowed"), None)
    if found is None:
        found = {"type": "DisruptionAllowed"}
        conditions.append(found)
    if found.get("status") != "False":
        found["lastTransitionTime"] = at
    found.pop("message", None)
    found |= {
        "status": "False",
        "reason": "InsufficientPods",
    }
    if budget["status"].get("observedGeneration"):
        found["observedGeneration"] = budget["status"]["observedGeneration"]


def _needs_no_budget(pod: Mapping[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) or pod["status"].get("phase") in (
        "Succeeded",
        "Failed",
        "Pending",
    )


def _is_unhealthy_and_free(pod: Mapping[str, Any], budget: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget["status"]
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _throttled(message: str, wait_s: int | None) -> Refusal:
    details: Plain = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    if wait_s is not None:
        details["retryAfterSeconds"] = wait_s
    return Refusal(429, "TooManyRequests", _VIOLATION, details=details)
