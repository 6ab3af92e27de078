"""The scheduler's configuration file: mistakes end the start with file, line and key."""

import asyncio
import textwrap
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.yamlfile import FileError
from bindery.scheduler import configuration
from bindery.scheduler.commit import metrics
from bindery.scheduler.configuration import ConfigurationFile, load

HEAD = """\
apiVersion: scheduling.bindery.dev/v1alpha1
kind: SchedulerConfiguration
"""


@pytest.mark.parametrize(
    ("body", "line", "text"),
    [
        ("cycleSecond: 2", 3, "cycleSecond: unknown key"),
        ("cycleSeconds: soon", 3, "cycleSeconds: "),
        ("cycleSeconds: 0", 3, "cycleSeconds: "),
        ("nodePool: a\nbindRequest:\n  maxPods: 501", 5, "bindRequest.maxPods: "),
        ("actions:\n- allocate\n- reclaimm", 5, "actions[1]: there is no action reclaimm; did you"),
        (
            "plugins:\n- name: gang\n- name: gagn",
            5,
            "plugins[1].name: there is no plugin gagn; ",
        ),
        ("plugins:\n- name: gang\n  arguments: {x: 1}", 5, "plugins[0].arguments.x: plugin gang: "),
        ("plugins:\n- name: gang\n- name: gang", 3, "a plugin is named twice"),
        ("plugins:\n- {}", 4, "plugins[0].name: this key is required"),
        ("---\nkind: SchedulerConfiguration", 1, "one document expected, 2 found"),
        ("a: [", 4, "not YAML"),
    ],
)
def test_a_mistake_is_reported_with_file_line_and_key(
    tmp_path: Path, body: str, line: int, text: str
) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(f"{HEAD}{body}\n")

    with pytest.raises(FileError) as caught:
        load(path)

    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert text in caught.value.message


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.yaml:1: cannot be read"):
        ConfigurationFile(tmp_path / "none.yaml")


def test_the_defaults_apply_without_a_file() -> None:
    assert ConfigurationFile(None).current == SchedulerConfiguration()


def test_the_values_of_a_file_are_used(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    body = """\
        cycleSeconds: 0.5
        plugins:
        - name: gang
        - name: nodeplacement
          arguments: {gpu: spread}
        """
    path.write_text(HEAD + textwrap.dedent(body))

    read = load(path)

    assert read.cycle_seconds == 0.5
    assert [plugin.name for plugin in read.plugins] == ["gang", "nodeplacement"]


async def test_a_changed_file_is_used_and_an_invalid_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = asyncio.Event()
    monkeypatch.setattr(configuration, "POLL_S", 0.01)
    monkeypatch.setattr(metrics.CONFIGURATION_ERRORS, "inc", noted.set)
    path = tmp_path / "scheduler.yaml"
    path.write_text(f"{HEAD}cycleSeconds: 1\n")
    file = ConfigurationFile(path)
    changes = file.changes()

    async with asyncio.timeout(20):
        path.write_text(f"{HEAD}cycleSeconds: never\n")
        coming = asyncio.ensure_future(anext(changes))
        await noted.wait()
        assert not coming.done()
        assert "cycleSeconds" in file.problem
        assert REGISTRY.get_sample_value("bindery_configuration_unusable") == 1
        path.write_text(f"{HEAD}cycleSeconds: 3\nnodePool: other\n")
        new = await coming

    assert new.cycle_seconds == 3
    assert new.node_pool == ""
    assert file.current is new
    assert file.problem == ""
    assert REGISTRY.get_sample_value("bindery_configuration_unusable") == 0


async def test_a_temporarily_missing_file_is_reported_once_and_cleared_on_its_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "POLL_S", 0.01)
    path = tmp_path / "scheduler.yaml"
    path.write_text(f"{HEAD}cycleSeconds: 3\n")
    reports: asyncio.Queue[None] = asyncio.Queue()
    monkeypatch.setattr(metrics.CONFIGURATION_ERRORS, "inc", lambda: reports.put_nowait(None))
    file = ConfigurationFile(path)

    async with asyncio.timeout(20):
        path.unlink()
        coming = asyncio.ensure_future(anext(file.changes()))
        await reports.get()
        assert str(path) in file.problem
        await asyncio.sleep(0.1)
        assert not coming.done()
        path.write_text(f"{HEAD}cycleSeconds: 3\n")
        await coming

    assert file.problem == ""
    assert reports.empty(), "one report, however often the file was looked for"
