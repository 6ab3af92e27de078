"""The configuration of time-based shares: where past usage is known from, and how far back.

Part of `SchedulerConfiguration`. The defaults are KAI-Scheduler's (v0.17, usageDBConfig); without a
source, what was used in the past counts for nothing.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from bindery.api.base import ApiModel


class UsageQueries(ApiModel):
    """The two PromQL expressions for one resource; each is summed over the window."""

    allocated: str = Field(min_length=1)
    """What each queue holds: one series a queue, all below it included."""
    capacity: str = Field(min_length=1)
    """What the cluster has, in the same unit."""


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
    """Such as http://prometheus.monitoring:9090; a path is kept."""
    queries: dict[str, UsageQueries] = Field(default_factory=_default_queries)
    """By resource. The default asks for what the scheduler itself exports."""
    queue_label: str = "queue"
    """The label of `allocated` that names the queue."""
    fetch_seconds: float = Field(default=60.0, gt=0)
    """The time between two queries."""
    staleness_seconds: float = Field(default=300.0, gt=0)
    """Usage that is older is still used, with a warning. At least `fetch_seconds`."""
    query_timeout_seconds: float = Field(default=10.0, gt=0)
    """How long one query may take."""
    resolution_seconds: float = Field(default=60.0, ge=1)
    """How far the samples are apart that are summed."""


class UsageConfiguration(ApiModel):
    """How past usage weighs on the division of what is over the quotas."""

    source: Literal["none", "record", "prometheus"] = "none"
    """`record`: the scheduler's own, kept in a ConfigMap."""
    k_value: float = Field(default=1.0, ge=0)
    """How strongly past usage counts; 0 is not at all."""
    window_seconds: float = Field(default=7 * 86400.0, ge=1)
    """What is older counts for nothing."""
    half_life_seconds: float | None = Field(default=None, ge=1)
    """After so long usage counts half. Unset: all of the window counts the same."""
    save_seconds: float = Field(default=60.0, gt=0)
    """The shortest time between two writes of the record."""
    prometheus: PrometheusConfiguration = PrometheusConfiguration()

    @model_validator(mode="after")
    def _prometheus_has_an_address(self) -> Self:
        if self.source == "prometheus" and not self.prometheus.address:
            raise ValueError("source prometheus needs prometheus.address")
        return self
