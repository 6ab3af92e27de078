"""The configuration of time-based shares: the source of past usage, and its window.

Part of `SchedulerConfiguration`. The defaults are KAI-Scheduler's (v0.17, usageDBConfig); without a
source, past usage is ignored.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from bindery.api.base import ApiModel


class UsageQueries(ApiModel):
    """The two PromQL expressions for one resource; each is summed over the window."""

    allocated: str = Field(min_length=1)
    """Amount that each queue holds: one series for each queue, including all queues below it."""
    capacity: str = Field(min_length=1)
    """Capacity of the cluster, in the same unit."""


def _default_queries() -> dict[str, UsageQueries]:
    return {
        resource: UsageQueries(
            allocated=f'max by (queue) (bindery_queue_allocated{{resource="{resource}"}})',
            capacity=f'max(bindery_capacity{{resource="{resource}"}})',
        )
        for resource in ("gpu", "cpu", "memory")
    }


class PrometheusConfiguration(ApiModel):
    """A Prometheus, or a server with the same query API."""

    address: str = Field(default="", pattern=r"^(https?://.+)?$")
    """URL such as http://prometheus.monitoring:9090; a path is kept."""
    queries: dict[str, UsageQueries] = Field(default_factory=_default_queries)
    """Queries by resource. The default queries read the scheduler's own metrics."""
    queue_label: str = "queue"
    """The label of `allocated` with the queue's name."""
    fetch_seconds: float = Field(default=60.0, gt=0)
    """Time between two queries."""
    staleness_seconds: float = Field(default=300.0, gt=0)
    """Age from which usage is stale: it is still used, with a warning. At least `fetch_seconds`."""
    query_timeout_seconds: float = Field(default=10.0, gt=0)
    """Maximum duration of a query."""
    resolution_seconds: float = Field(default=60.0, ge=1)
    """Time between the samples that are summed."""


class UsageConfiguration(ApiModel):
    """The effect of past usage on the division of resources over the quotas."""

    source: Literal["none", "record", "prometheus"] = "none"
    """`record`: the scheduler's own record, kept in a ConfigMap."""
    k_value: float = Field(default=1.0, ge=0)
    """Weight of past usage; 0: no effect."""
    window_seconds: float = Field(default=7 * 86400.0, ge=1)
    """Age above which usage is ignored."""
    half_life_seconds: float | None = Field(default=None, ge=1)
    """Age at which usage counts half. Unset: the whole window counts equally."""
    save_seconds: float = Field(default=60.0, gt=0)
    """Minimum time between two writes of the record."""
    prometheus: PrometheusConfiguration = PrometheusConfiguration()

    @model_validator(mode="after")
    def _prometheus_has_an_address(self) -> Self:
        if self.source == "prometheus" and not self.prometheus.address:
            raise ValueError("source prometheus needs prometheus.address")
        return self
