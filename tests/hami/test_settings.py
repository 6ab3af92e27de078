"""The settings of the binder's plugin hami, and what HAMi's own settings mean to it."""

import pytest

from bindery.binder.plugins.hami.places import default_expire_s
from bindery.binder.plugins.hami.plugin import Hami, HamiArguments


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 300.0),
        ({"HAMI_NODELOCK_EXPIRE": ""}, 300.0),
        ({"HAMI_NODELOCK_EXPIRE": "10m"}, 600.0),
        ({"HAMI_NODELOCK_EXPIRE": "1m30.5s"}, 90.5),
    ],
)
def test_locks_expire_by_default_when_hamis_environment_says(
    environment: dict[str, str], seconds: float
) -> None:
    assert default_expire_s(environment) == seconds


@pytest.mark.parametrize("text", ["5", "soon", "-5m", "0s", "5 m"])
def test_an_environment_that_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="HAMI_NODELOCK_EXPIRE"):
        default_expire_s({"HAMI_NODELOCK_EXPIRE": text})


@pytest.mark.parametrize(
    ("arguments", "variable", "seconds"),
    [
        ({}, "10m", 600.0),
        ({"expireSeconds": 7}, "10m", 7.0),
        ({}, "soon", 300.0),
    ],
)
def test_the_plugins_own_setting_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, float], variable: str, seconds: float
) -> None:
    monkeypatch.setenv("HAMI_NODELOCK_EXPIRE", variable)
    plugin = Hami(HamiArguments.model_validate(arguments))

    assert plugin.expire_s == seconds
