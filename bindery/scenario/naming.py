"""The names by which a scenario knows its pods and jobs.

Used by `checks` and `cluster`. Pure. Invariant: the pods of jobs have names of their own; one that
is given as an object is called namespace/name if another pod has its name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from bindery.kube.objects.resources import POD_GROUPS, PODS
from bindery.scenario.fields import expand
from bindery.scenario.format import ObjectName, Scenario
from bindery.scenario.jobs import ScenarioJob


def pod_names(job: ScenarioJob) -> list[str]:
    """Return the names of all pods of `job`, over all jobs that it stands for."""
    return [
        f"{name}-{index}" for name in expand(job.name, job.count) for index in range(job.pod_count)
    ]


def pod_keys(scenario: Scenario) -> Mapping[tuple[str, str], str]:
    """Return namespace and name of each given pod -> the name by which the scenario knows it."""
    taken = (name for job in scenario.all_jobs() for name in pod_names(job))
    return _keys(scenario.objects_of(PODS), taken)


def group_keys(scenario: Scenario) -> Mapping[tuple[str, str], str]:
    """Return namespace and name of each given PodGroup -> the name of the job."""
    taken = (name for job in scenario.all_jobs() for name in expand(job.name, job.count))
    return _keys(scenario.objects_of(POD_GROUPS), taken)


def _keys(given: list[ObjectName], taken: Iterable[str]) -> dict[tuple[str, str], str]:
    counts = Counter([*taken, *(each.name for each in given)])
    return {
        (each.namespace, each.name): each.name
        if counts[each.name] == 1
        else f"{each.namespace}/{each.name}"
        for each in given
    }
