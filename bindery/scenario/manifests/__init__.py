"""Manifests as for kubectl, or a scenario, as objects of the cluster that they are submitted to.

`submission` reads the file, `podtemplates` makes the pods of workloads, and `defaulting` does what
admission and controllers would do. Nothing is sent to a server.
"""

from bindery.scenario.manifests.submission import Submission, read_documents, read_submission

__all__ = ["Submission", "read_documents", "read_submission"]
