"""The benchmark of the binder alone: its requests, its report, and that all laps work."""

from pathlib import Path

import pytest

from benchmarks import binder, report, results, summary
from benchmarks.binder import Found, Rounds, Sizes
from benchmarks.binding import bind_requests
from benchmarks.bindingworlds import HamiDevices, Placed, World
from benchmarks.commits import Delays
from benchmarks.races import Lap
from fakes.haminodes import HamiDevicePlugins, Prompt

SIZES = Sizes(nodes=20, pods=100, gang_size=10, runs=3)
SMALL = Sizes(
    nodes=20, pods=50, gang_size=10, runs=1, locked=10, commits=8, waiting=4, settle_s=0.0
)


def placed(count: int, world: World) -> list[Placed]:
    return [Placed(n, f"pod-{n}", f"uid-{n}", world.node_of(n)) for n in range(count)]


def laps(*rates: float) -> list[Lap]:
    return [Lap(100, 0.1, 100 / rate, {}) for rate in rates]


def test_each_gang_is_one_bind_request_with_the_data_of_its_pods() -> None:
    pods = placed(25, World())

    requests = list(bind_requests(pods, [{"pluginData": {"x": n}} for n in range(25)], 10))

    statements = [statement for each in requests for statement in each["spec"]["statements"]]
    assert [len(statement["pods"]) for statement in statements] == [10, 10, 5]
    assert len({request["metadata"]["name"] for request in requests}) == 3
    last = statements[2]["pods"][-1]
    assert (last["podUID"], last["selectedNode"]) == ("uid-24", "node-00000")
    assert last["pluginData"] == {"x": 24}


@pytest.mark.parametrize("plugins", [HamiDevicePlugins, Prompt])
def test_consecutive_pods_of_a_gang_lock_different_nodes(
    plugins: type[HamiDevicePlugins | Prompt],
) -> None:
    pods = placed(20, HamiDevices(10, plugins))

    assert len({pod.node for pod in pods[:10]}) == 10
    assert [pod.node for pod in pods[:10]] == [pod.node for pod in pods[10:]]


def test_percentiles_are_within_the_measured_range() -> None:
    delays = Delays(tuple(n / 100 for n in range(101)))

    assert delays.p50_s == pytest.approx(0.5)
    assert delays.p99_s == pytest.approx(0.99)
    assert Delays((0.1, 0.2)).p99_s < 0.2


def test_rates_are_compared_with_the_bare_client_of_the_same_size() -> None:
    found = Found(
        laps={
            binder.PLAIN: laps(80, 90, 85),
            binder.BARE: laps(100, 90, 110),
            binder.WITH_PLUGINS["volumes"]: laps(10),
            binder.FEW_BARE: laps(40),
            binder.HAND_OVERS: laps(39),
        }
    )
    measured = {each.name: each for each in summary.of_binder(found, SIZES)}

    plain = measured["binder alone, plain: against a bare client"]
    assert (plain.value, plain.baseline, results.is_reached(plain)) == (85, 100, True)
    assert measured["binder alone, volumes, 20 pods: against a bare client"].ratio == 0.25
    assert results.is_reached(measured["lock hand-overs on one node"]) is False


@pytest.mark.parametrize(("waiting_s", "reached"), [(0.3, True), (0.5, False)])
def test_delays_with_waiting_requests_are_compared_with_idle_delays(
    waiting_s: float, reached: bool
) -> None:
    sizes = Sizes(nodes=20, pods=100, gang_size=10, runs=1)
    found = Found(
        delays={
            binder.IDLE: [Delays((0.2, 0.2)), Delays((9.0, 9.0)), Delays((0.2, 0.2))],
            binder.WAITING: [Delays((waiting_s, waiting_s))],
        }
    )
    measured = {each.name: each for each in summary.of_binder(found, sizes)}

    bar = measured["commit to bound, p99: while 200 requests wait on volumes"]
    assert (bar.baseline, results.is_reached(bar)) == (0.2, reached)


def test_unmeasured_values_are_omitted() -> None:
    assert list(summary.of_binder(Found(), SIZES)) == []
    alone = summary.of_binder(Found(laps={binder.PLAIN: laps(80)}), SIZES)
    assert [(each.value, each.ratio) for each in alone] == [(80, None)]


def test_the_report_has_a_separate_table_for_the_binder(tmp_path: Path) -> None:
    source = tmp_path / "bench.json"
    found = Found(laps={binder.PLAIN: laps(80), binder.BARE: laps(100)})
    results.write(source, list(summary.of_binder(found, SIZES)))
    sections = (report.NUMBERS, report.BINDER, report.ROOM)
    for name in sections:
        old = f"<!-- {name}: begin -->\nold {name}\n<!-- {name}: end -->\n"
        (tmp_path / report.PAGES[name]).write_text(old, encoding="utf-8")

    report.main(source, folder=tmp_path)

    text = "".join((tmp_path / report.PAGES[name]).read_text(encoding="utf-8") for name in sections)
    assert [f"old {name}\n" in text for name in sections] == [True, False, True]
    assert "| binder alone, plain: against a bare client | 80 | pods/s | 100 | 0.8 |" in text


@pytest.mark.long("the races are of the sample")
@pytest.mark.e2e
@pytest.mark.timeout(900)
async def test_every_lap_binds_all_its_pods_at_a_small_size() -> None:
    found = await Rounds(SMALL, print, None).run(lambda _: True)

    bound = {name: standing.laps[0].pods for name, standing in found.standings.items()}
    assert bound == {
        binder.PLAIN: 50,
        binder.BARE: 50,
        binder.FEW_BARE: 10,
        **dict.fromkeys(binder.WITH_PLUGINS.values(), 10),
        binder.HAND_OVERS: 10,
        binder.HANDSHAKES: 10,
    }
    counts = {name: len(delays[0].seconds) for name, delays in found.delays.items()}
    assert counts == dict.fromkeys((binder.IDLE, binder.WAITING), 8)
