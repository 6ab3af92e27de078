"""The Prometheus metrics of a node's identity.

Written by `process` and `cloud`; served by `bindery.observability.health`.
"""

from prometheus_client import Counter, Gauge

EXPIRATION = Gauge(
    "bindery_nodeagent_certificate_expiration_timestamp_seconds",
    "Time at which the certificate of the node expires; 0 for none.",
    ["certificate"],
)
REQUESTS = Counter(
    "bindery_nodeagent_certificate_requests_total",
    "Requests for certificates of the node by how they ended.",
    ["certificate", "outcome"],
)
CLOUD_FAILURES = Counter(
    "bindery_nodeagent_cloud_failures_total",
    "Times that the cloud provider did not tell what it knows of the node.",
)
