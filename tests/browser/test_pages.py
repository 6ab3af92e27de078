"""Each page in a real browser: what is readable, at both widths, light and dark, by keyboard."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog

from tests.browser.conftest import BUSY, opened
from tests.browser.visiting import SCHEMES, WIDTHS, Scheme, Visitor
from tests.sizes import sample

PAGES = {
    "overview": "/",
    "gangs": "/gangs",
    "gang-that-waits": "/gangs/language/pretrain-large",
    "help": "/gangs/language/pretrain-large/help",
    "gang-with-stages": "/gangs/serving/evaluate",
    "queues": "/queues",
    "queue": "/queues/research",
    "nodes": "/nodes",
    "node": "/nodes/a0",
    "promises": "/promises",
    "whatif": "/whatif",
}


def answer(*words: str) -> Any:
    """Return what a command answers about the busy cluster."""
    command = [sys.executable, "-m", "bindery.cli.main", *words, f"--file={BUSY}", "-o", "json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.parametrize(("width", "scheme"), sample(3, product(WIDTHS, SCHEMES)))
def test_each_page_is_complete_and_keeps_no_person_out(
    visitor: Visitor, tmp_path: Path, width: int, scheme: Scheme
) -> None:
    problems = {}
    with visitor.window(width, scheme) as visit:
        for name, path in PAGES.items():
            visit.go(path)
            visit.page.screenshot(path=tmp_path / f"{name}-{width}-{scheme}.png", full_page=True)
            assert visit.page.locator("h1").count() == 1
            found = visit.barriers()
            if visit.overflow() > 0:
                found.append(f"{visit.overflow()} pixels wider than the window")
            if found:
                problems[name] = found
        visit.check()

    assert problems == {}


def test_a_waiting_gang_shows_its_reason_its_place_and_what_would_help(visitor: Visitor) -> None:
    explained = answer("explain", "pretrain-large", "-n", "language")
    with visitor.window() as visit:
        visit.go(PAGES["gang-that-waits"])
        facts = visit.text("#facts")

    assert explained["reason"] in facts
    assert " ".join(explained["message"].split()) in facts
    assert f"Place {explained['position']['place']} of {explained['position']['of']}" in facts


def test_each_queue_has_the_share_that_the_command_shows(visitor: Visitor) -> None:
    rows = {each["name"]: each for each in answer("queues")["queues"]}
    with visitor.window() as visit:
        visit.go(PAGES["queues"])
        shown = {}
        for row in visit.page.locator("#tree tbody tr").all():
            cells = row.locator("td")
            name = row.locator("a.name").inner_text()
            shown[name] = tuple(cells.nth(index).inner_text() for index in (1, 2))

    assert len(shown) == len(rows)
    for name, (held, fair) in shown.items():
        gpu = rows[name]["resources"]["gpu"]
        assert float(held) == pytest.approx(float(gpu["allocated"]), abs=0.051), name
        assert float(fair) == pytest.approx(float(gpu["fairShare"]), abs=0.051), name


def test_the_map_names_each_state_in_words(visitor: Visitor) -> None:
    with visitor.window() as visit:
        visit.go(PAGES["nodes"])
        tiles = {
            tile.locator(".tile-name").inner_text(): tile.get_attribute("title") or ""
            for tile in visit.page.locator("a.tile").all()
        }

    assert len(tiles) == 42
    for name, words in {
        "a0": "Full; 8 of 8 GPUs",
        "b3": "Shared GPUs",
        "c-dead": "Sick",
        "c-drained": "Cordoned",
        "c6": "Being freed",
    }.items():
        assert words in tiles[name]


def test_the_pages_are_reached_and_left_by_keyboard_alone(visitor: Visitor) -> None:
    with visitor.window() as visit:
        visit.go("/")
        keyboard = visit.page.keyboard
        keyboard.press("Tab")
        focused = "document.activeElement.textContent.trim()"
        assert visit.page.evaluate(focused) == "Skip to the content"
        reached = set()
        for _ in range(60):
            keyboard.press("Tab")
            reached.add(visit.page.evaluate(focused))
            if visit.page.evaluate(focused) == "Gangs":
                outline = visit.page.evaluate(
                    "getComputedStyle(document.activeElement).outlineStyle"
                )
                keyboard.press("Enter")
                break
        visit.page.wait_for_url(visitor.origin + "/gangs")
        assert outline != "none"
        visit.page.locator("#gangs a.name").first.focus()
        keyboard.press("Enter")
        visit.page.wait_for_url(visitor.origin + "/gangs/**")
        assert visit.page.locator("h1").inner_text()
        visit.check()


def test_a_table_is_searched_and_sorted_by_the_server(visitor: Visitor) -> None:
    with visitor.window() as visit:
        visit.go("/gangs?show=all")
        visit.page.locator("input[type=search]").fill("pretrain-l")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**q=pretrain-l**")
        rows = visit.page.locator("#gangs tbody tr")

        assert rows.count() == 1
        assert "pretrain-large" in rows.first.inner_text()
        visit.check()


def test_whatif_answers_for_a_manifest_that_is_pasted_in(visitor: Visitor) -> None:
    manifest = (Path(__file__).parents[2] / "examples" / "gang.yaml").read_text()
    with visitor.window() as visit:
        visit.go("/whatif")
        visit.page.locator("textarea").fill(manifest)
        visit.page.locator("main form button[type=submit]").first.click()
        visit.page.wait_for_load_state("load")
        visit.wait_for_answer()

        assert "gang" in visit.text()
        assert visit.page.locator("h1").inner_text()
        visit.check()


def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "\u202eevil", "\x1b[31mred", "n" * 253, "'\"><img src=x>"]
    objects = [
        {
            "apiVersion": "scheduling.bindery.dev/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"minMember": 1, "queue": name},
        }
        for name in names
    ]
    file = tmp_path / "hostile.yaml"
    file.write_text(json.dumps({"name": "hostile", "nodes": [{"name": "n"}], "objects": objects}))
    with opened(file) as address, Visitor(browser, address).window(400) as visit:
        alerts: list[str] = []

        def refuse(dialog: Dialog) -> None:
            alerts.append(dialog.message)
            dialog.dismiss()

        visit.page.on("dialog", refuse)
        visit.go("/gangs?show=all")
        text = visit.text()

        assert "<script>alert(1)</script>" in text
        assert "n" * 100 in text
        assert visit.page.locator("main img").count() == 0
        assert visit.overflow() == 0
        links = visit.page.locator("#gangs a.name").all()
        paths = [link.get_attribute("href") or "" for link in links]
        assert len(paths) == len(names)
        for path in paths:
            visit.go(path)
            assert visit.page.locator("h1").count() == 1
        assert alerts == []
        visit.check()
