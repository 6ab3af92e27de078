"""The Prometheus series of the traffic with the API server.

Filled by `bindery.kube`, served by `bindery.observability.health`. Labels have few values: verbs,
plurals, status codes; never names of objects.
"""

from typing import Final

from prometheus_client import Counter, Histogram

API_REQUESTS: Final = Counter(
    "bindery_api_requests",
    "Requests to the API server by verb, resource and HTTP code (`lost`: no answer came, "
    "`unreachable`: nothing was sent).",
    ["verb", "resource", "code"],
)
API_REQUEST_SECONDS: Final = Histogram(
    "bindery_api_request_seconds",
    "Time of one attempt, from the free connection to the end of the answer.",
    ["verb", "resource"],
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
WATCH_CHANGES: Final = Counter(
    "bindery_watch_changes", "Changes that watches delivered.", ["resource", "type"]
)
WATCH_RELISTS: Final = Counter(
    "bindery_watch_relists", "Full lists made by watches, the first included.", ["resource"]
)
WATCH_MALFORMED: Final = Counter(
    "bindery_watch_malformed", "Objects that did not decode.", ["resource"]
)
WATCH_ERRORS: Final = Counter(
    "bindery_watch_errors", "Changes whose handling raised an error.", ["resource"]
)
EVENTS_DROPPED: Final = Counter(
    "bindery_events_dropped", "Events that were not written, by type and reason.", ["type", "why"]
)
