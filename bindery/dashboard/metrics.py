"""The Prometheus series of the dashboard.

Written by `state` and `web`, served by `bindery.observability.health`. Labels never name objects.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

PICTURES: Final = Counter(
    "bindery_dashboard_pictures", "Pictures of the cluster that were planned."
)
PLAN_SECONDS: Final = Histogram(
    "bindery_dashboard_plan_seconds",
    "Time to plan one picture of the cluster, in a thread.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
LOOKERS: Final = Gauge(
    "bindery_dashboard_open_pages", "Pages that are open now and wait for a new picture."
)
SECONDS_BY_PAGE: Final = Histogram(
    "bindery_dashboard_request_seconds",
    "Time from a request to its answer, by page.",
    ["page"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 10),
)
SESSIONS: Final = Gauge("bindery_dashboard_sessions", "Sessions of people who are logged in.")
