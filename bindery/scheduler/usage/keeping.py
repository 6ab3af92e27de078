"""Creates the usage keeper by the configuration. Called by `process.py`."""

from collections.abc import Callable

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder, ObjectReference
from bindery.scheduler.records.store import RecordStore
from bindery.scheduler.usage.keeper import NoKeeper, UsageKeeper, UsageProblems
from bindery.scheduler.usage.place import KEY, record_name
from bindery.scheduler.usage.prometheuskeeper import PrometheusKeeper
from bindery.scheduler.usage.record import UsageRecord
from bindery.scheduler.usage.recordkeeper import UsageRecordKeeper
from bindery.scheduler.usage.source import GivenUsage, PastUsage


def keeper(
    configuration: SchedulerConfiguration,
    past: PastUsage,
    client: Client,
    events: EventRecorder,
    clock: Callable[[], float],
) -> UsageKeeper:
    """Return the keeper for the source of `past`. `clock` returns seconds since the epoch.

    Events refer to the ConfigMap of the record, also for other sources.
    """
    name, namespace = record_name(configuration), configuration.leader_election.namespace
    problems = UsageProblems(events, ObjectReference("v1", "ConfigMap", namespace, name, ""))
    usage = configuration.usage
    if usage.source == "record" and isinstance(past.source, UsageRecord):
        store = RecordStore(client, name, namespace, KEY)
        return UsageRecordKeeper(past.source, store, problems, clock, usage.save_seconds)
    if usage.source == "prometheus" and isinstance(past.source, GivenUsage):
        return PrometheusKeeper(past.source, usage, problems, clock)
    return NoKeeper()
