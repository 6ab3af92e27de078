"""Finds names in the spec of a queue that do not exist in the cluster, and impossible values.

Pure; called by `queues`. A rule for a misspelt resource limits nothing, and a misspelt namespace
may not use the queue. The objects may also be created later, so unknown names cause only warnings.
"""

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from bindery.api.gpus import DEFAULT_GPU_RESOURCES, GpuResources
from bindery.api.names import GPU_MODEL_LABEL, GPU_RESOURCE, LABEL_KEY, LABEL_VALUE
from bindery.binder.webhook.answers import Manifest
from bindery.binder.webhook.applicants import part
from bindery.binder.webhook.directory import Directory

_SHORT_GPU: Final = "gpu"
_ANY_CLASS: Final = "*"
_WELL_KNOWN: Final = frozenset(
    {"cpu", "memory", "pods", "ephemeral-storage", _SHORT_GPU, *DEFAULT_GPU_RESOURCES}
)
_HUGE_PAGES: Final = "hugepages-"
_DRA: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resources of DeviceClasses; no node reports them (KEP-5004)."""
_SIMILAR: Final = 0.6
"""Ratio of `difflib.SequenceMatcher` from which a name counts as misspelt."""
_MOST_NAMED: Final = 5
_MOST_PRIORITY: Final = 10**9
"""As for PriorityClasses."""
_GPUS: Final = GpuResources()


def impossible(spec: Manifest) -> Iterator[str]:
    """Yield the values in the spec of a queue that can never be valid."""
    if {_SHORT_GPU, GPU_RESOURCE} <= part(spec, "resources").keys():
        yield f"spec.resources: {_SHORT_GPU} and {GPU_RESOURCE} are the same resource"
    for model in part(spec, "models"):
        if not LABEL_VALUE.fullmatch(model):
            yield f"spec.models: {model!r} is no value of the label {GPU_MODEL_LABEL}"
    priority = spec.get("priority")
    if isinstance(priority, int) and abs(priority) > _MOST_PRIORITY:
        yield f"spec.priority: {priority} is beyond {_MOST_PRIORITY} or -{_MOST_PRIORITY}"
    for place, rule in _namespace_rules(spec).items():
        for label in part(part(rule, "selector"), "matchLabels"):
            if not LABEL_KEY.fullmatch(label):
                yield f"{place}.selector.matchLabels: {label!r} is no key of a label"


def unknown_names(spec: Manifest, directory: Directory) -> Iterator[str]:
    """Yield one sentence for each field of a queue's spec with a name that does not exist."""
    yield from _resources(part(spec, "resources"), directory)
    yield from _models(part(spec, "models"), directory)
    classes = part(spec, "priorityClasses")
    known = directory.priority_classes() | {_ANY_CLASS}
    yield from _missing("spec.priorityClasses", "PriorityClass", classes, known.__contains__)
    for place, rule in _namespace_rules(spec).items():
        names = rule.get("names")
        given = names if isinstance(names, list) else []
        listed = [each for each in given if isinstance(each, str)]
        yield from _missing(f"{place}.names", "namespace", listed, directory.has_namespace)


def _namespace_rules(spec: Manifest) -> dict[str, Manifest]:
    """Return the rules of a queue that name or select namespaces, by their path in the spec."""
    classes = part(spec, "priorityClasses")
    return {
        "spec.namespaces": part(spec, "namespaces"),
        "spec.nonPreemptible": part(spec, "nonPreemptible"),
        **{f"spec.priorityClasses.{name}": part(classes, name) for name in classes},
    }


def _resources(rules: Iterable[str], directory: Directory) -> Iterator[str]:
    reported = directory.resources()
    for name in rules:
        if name in reported or _is_well_known(name):
            continue
        yield (
            f"spec.resources.{name}: no node reports {name}, so its rule has no effect"
            f"{_advice(name, _WELL_KNOWN | reported)}"
        )


def _is_well_known(name: str) -> bool:
    is_gpu = name in _WELL_KNOWN or _GPUS.gpus_of(name) > 0
    return is_gpu or name.startswith((_HUGE_PAGES, _DRA))


def _models(rules: Iterable[str], directory: Directory) -> Iterator[str]:
    models = directory.gpu_models()
    for name in rules:
        if name not in models:
            yield (
                f"spec.models.{name}: no node has the label {GPU_MODEL_LABEL}={name}, so its rule "
                f"has no effect{_advice(name, models)}"
            )


def _missing(
    place: str, kind: str, names: Iterable[str], exists: Callable[[str], bool]
) -> Iterator[str]:
    gone = [name for name in dict.fromkeys(names) if not exists(name)]
    if not gone:
        return
    more = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
    shown = ", ".join(gone[:_MOST_NAMED])
    plural = "es" if kind.endswith("s") else "s"
    verb = "does" if len(gone) == 1 else "do"
    yield f"{place}: {kind}{plural if len(gone) > 1 else ''} {shown}{more} {verb} not exist"


def _advice(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, sorted(known), n=1, cutoff=_SIMILAR)
    return f": did you mean {close[0]}?" if close else ""
