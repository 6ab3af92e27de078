"""The table of kinds and its interpreter: objects in, PodGroups out. Pure.

`load` reads the rows, `plan` interprets them. A row defines how the pods of one kind become gangs;
docs/workloads.md describes its keys.
"""

from bindery.grouper.table.asked import Surroundings
from bindery.grouper.table.facts import KubeObject, PodFacts, Reference, pod_facts
from bindery.grouper.table.groups import Group, GroupPlan, Problem, ProblemReason, WantedObject
from bindery.grouper.table.loading import Table, load
from bindery.grouper.table.planning import plan

__all__ = [
    "Group",
    "GroupPlan",
    "KubeObject",
    "PodFacts",
    "Problem",
    "ProblemReason",
    "Reference",
    "Surroundings",
    "Table",
    "WantedObject",
    "load",
    "plan",
    "pod_facts",
]
