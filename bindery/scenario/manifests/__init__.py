"""Manifests as for kubectl, or a scenario, as objects of the cluster that they are submitted to.

`submission` reads the documents, `workloads` makes the pods and PodGroups of workloads, and
`defaulting` does what admission and other controllers would do. Nothing is sent to a server.
"""

from bindery.scenario.manifests.submission import Submission, Surroundings, read_documents
from bindery.scenario.manifests.workloads import Grouping

__all__ = ["Grouping", "Submission", "Surroundings", "read_documents"]
