"""Misspelt names of plugins and actions."""

import pytest

from bindery.api.configuration import DEFAULT_ACTIONS, DEFAULT_PLUGINS
from bindery.api.spelling import no_such


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gpu_sharing", "gpusharing"),
        ("gpu-sharing", "gpusharing"),
        ("gpuSharing", "gpusharing"),
        ("GpuSharing", "gpusharing"),
        ("gpusharin", "gpusharing"),
        ("node_lock", "hami"),
        ("nodeLock", "hami"),
        ("HAMi", "hami"),
        ("pod_affinity", "podaffinity"),
        ("InterPodAffinity", "podaffinity"),
        ("PodTopologySpread", "topologyspread"),
        ("fair-share", "fairshare"),
        ("DRA", "dra"),
    ],
)
def test_the_plugin_of_a_misspelt_name_is_suggested(written: str, meant: str) -> None:
    error = no_such("plugin", written, DEFAULT_PLUGINS)

    assert error == f"there is no plugin {written}; did you mean {meant}?"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("stale_gang_eviction", "stalegangeviction"),
        ("staleGangEviction", "stalegangeviction"),
        ("run_time_limit", "runtimelimit"),
        ("runTimeLimit", "runtimelimit"),
        ("Reclaim", "reclaim"),
        ("alocate", "allocate"),
    ],
)
def test_the_action_of_a_misspelt_name_is_suggested(written: str, meant: str) -> None:
    error = no_such("action", written, DEFAULT_ACTIONS)

    assert error == f"there is no action {written}; did you mean {meant}?"


def test_all_names_are_listed_for_a_name_that_resembles_none() -> None:
    assert no_such("plugin", "zzz", ["b", "a"]) == "there is no plugin zzz; known: a, b"
    assert no_such("plugin", "zzz", []) == "there is no plugin zzz; known: none"


def test_an_existing_name_is_suggested_for_a_former_name() -> None:
    assert no_such("plugin", "node_lock", ["numa"]) == "there is no plugin node_lock; known: numa"
