"""The settings of the binder's plugin hami, and its use of HAMi's own settings."""

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
def test_the_default_expiry_of_locks_is_from_hamis_environment(
    environment: dict[str, str], seconds: float
) -> None:
    assert default_expire_s(environment) == seconds


@pytest.mark.parametrize("text", ["5", "soon", "-5m", "0s", "5 m"])
def test_an_invalid_duration_in_the_environment_is_named(text: str) -> None:
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
def test_the_setting_of_the_plugin_precedes_the_environment(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, float], variable: str, seconds: float
) -> None:
    monkeypatch.setenv("HAMI_NODELOCK_EXPIRE", variable)
    plugin = Hami(HamiArguments.model_validate(arguments))

    assert plugin.expire_s == seconds
