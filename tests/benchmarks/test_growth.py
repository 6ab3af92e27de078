"""The tables of the growth of cycle times, from samples to the document."""

from pathlib import Path

import pytest

from benchmarks import growth, plot, report, results, summary
from benchmarks.room import CASES, Sample

SIZES = (500, 1000, 2000)
DOCUMENT = """before
<!-- measured: begin -->
old races
<!-- measured: end -->
<!-- measured-room: begin -->
old room
<!-- measured-room: end -->
after
"""


def measurements(wall_per_cpu: float = 1.0) -> list[results.Measurement]:
    """Return series that grow with the square of the size."""
    samples = [
        Sample(case.name, size, wall_per_cpu * size**2 / 1e6, size**2 / 1e6, float(size))
        for case in CASES
        for size in SIZES
    ]
    return list(summary.of_room(samples))


def test_the_exponent_is_the_power_of_the_size() -> None:
    series = growth.of(measurements(), growth.SECONDS)

    assert [each.series for each in series] == [case.name for case in CASES]
    assert series[0].exponent == pytest.approx(2.0, abs=1e-3)


def test_one_size_has_no_exponent() -> None:
    assert growth.Growth("one", {500: 1.0, 125: 0.1}).exponent is None


def test_a_target_is_reached_or_missed_only_at_its_size() -> None:
    found = {each.name: results.is_reached(each) for each in measurements()}

    assert found["full cycle with reclaim, 500 nodes"] is True
    assert found["full cycle with reclaim, 1000 nodes"] is None
    assert found["does not fit: a pinned pod on every node, 500 nodes"] is False
    with_bars = [case for case in CASES if case.bar_at in SIZES]
    assert sum(reached is not None for reached in found.values()) == len(with_bars)


def test_measurements_survive_writing_and_reading(tmp_path: Path) -> None:
    results.write(tmp_path / "bench.json", measurements())

    assert results.read(tmp_path / "bench.json") == measurements()


@pytest.mark.parametrize(("wall_per_cpu", "said"), [(1.0, "otherwise idle"), (2.0, "busy")])
def test_the_report_changes_only_its_own_section(
    tmp_path: Path, wall_per_cpu: float, said: str
) -> None:
    source, document = tmp_path / "bench.json", tmp_path / "cycles.md"
    results.write(source, measurements(wall_per_cpu))
    document.write_text(DOCUMENT, encoding="utf-8")

    report.main(source, folder=tmp_path)

    text = document.read_text(encoding="utf-8")
    assert "old races" in text
    assert "old room" not in text
    assert said in text
    assert "KAI publishes" in text
    assert (tmp_path / "growth-of-cycles.svg").stat().st_size > 0


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="measured-room: begin"):
        report.rewritten("nothing here", report.ROOM, "text")


def test_equal_numbers_give_equal_charts(tmp_path: Path) -> None:
    series = growth.of(measurements(), growth.SECONDS)

    plot.draw(tmp_path / "one.svg", series)
    plot.draw(tmp_path / "two.svg", series)

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
