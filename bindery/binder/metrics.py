"""The Prometheus series of the binder.

Written by `api_server.reports`, `term` and `operator`, served by `bindery.observability.health`.
Labels have few values: outcomes, reasons and names of plugins; never names of objects.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from bindery.api.bindrequest import BindFailureReason

PODS: Final = Counter(
    "bindery_binder_pods",
    "Pods of finished requests by outcome: Bound or the failure reason.",
    ["outcome"],
)
for _reason in ("Bound", *BindFailureReason):
    PODS.labels(_reason)  # so that alerts see the first failure
BIND_REQUEST_SECONDS: Final = Histogram(
    "bindery_bindrequest_seconds",
    "Time from a request's creation (whole seconds, as Kubernetes stores it) to its outcome.",
    ["outcome", "queue"],
    buckets=(0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
)
ATTEMPTS: Final = Counter(
    "bindery_binder_attempts", "Attempts to carry out a Statement by how they ended.", ["verdict"]
)
IN_FLIGHT: Final = Gauge(
    "bindery_binder_statements_in_flight",
    "Statements that are being carried out or wait for their next attempt.",
)
PLUGIN_SECONDS: Final = Histogram(
    "bindery_binder_plugin_seconds",
    "Time of one step of a plugin for one pod by how it ended: Done, CutOff or the failure reason.",
    ["plugin", "step", "outcome"],
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300),
)
LEADING: Final = Gauge("bindery_binder_leading", "1 while this process binds, else 0.")
KOPF_STARTS: Final = Counter(
    "bindery_binder_operator_starts", "How often the kopf operator was started."
)
