"""The Prometheus metrics of the agent beside a kubelet.

Written by `exporter`; served by `bindery.observability.health`.
"""

from prometheus_client import Counter, Gauge

REPORTS = Counter("bindery_beside_reports_total", "NodeResourceTopologies that were written.")
REPORT_AGE = Gauge(
    "bindery_beside_report_age_seconds",
    "Seconds since the written report was last found to be that of the node.",
)
PROBLEMS = Gauge(
    "bindery_beside_problems",
    "1 while something cannot be read or contradicts itself, by what was read.",
    ["source"],
)
ERRORS = Counter(
    "bindery_beside_errors_total",
    "Times that something could not be read or contradicted itself, by what was read.",
    ["source"],
)
