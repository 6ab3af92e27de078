"""Chooses who looks after past usage, by the configuration. Called by `process.py`."""

from collections.abc import Callable
from typing import Final

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.events import EventRecorder, ObjectReference
from bindery.scheduler.usage.keeper import Complaints, NoKeeper, UsageKeeper
from bindery.scheduler.usage.prometheuskeeper import PrometheusKeeper
from bindery.scheduler.usage.record import UsageRecord
from bindery.scheduler.usage.recordkeeper import RecordKeeper
from bindery.scheduler.usage.source import GivenUsage, PastUsage
from bindery.scheduler.usage.store import RecordStore

RECORD_NAME: Final = "bindery-usage"


def keeper(
    configuration: SchedulerConfiguration,
    past: PastUsage,
    client: Client,
    events: EventRecorder,
    clock: Callable[[], float],
) -> UsageKeeper:
    """Return the keeper for the source of `past`. `clock`: seconds since the epoch.

    Events are about the ConfigMap of the record, also where usage comes from elsewhere.
    """
    name, namespace = record_name(configuration), configuration.leader_election.namespace
    complaints = Complaints(events, ObjectReference("v1", "ConfigMap", namespace, name, ""))
    usage = configuration.usage
    if usage.source == "record" and isinstance(past.source, UsageRecord):
        store = RecordStore(client, name, namespace)
        return RecordKeeper(past.source, store, complaints, clock, usage.save_seconds)
    if usage.source == "prometheus" and isinstance(past.source, GivenUsage):
        return PrometheusKeeper(past.source, usage, complaints, clock)
    return NoKeeper()


def record_name(configuration: SchedulerConfiguration) -> str:
    """Return the name of the ConfigMap that holds the record of the configured node pool."""
    pool = configuration.node_pool
    return f"{RECORD_NAME}-{pool}" if pool else RECORD_NAME
