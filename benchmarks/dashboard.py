"""The dashboard: how long a page takes, and what its process uses, against a scheduler's.

Used by `__main__`, or alone: `python -m benchmarks.dashboard`; `pageprocess` has the processes.
What is timed is a request until its first byte, one after another, of a person who may see all and
of one who may see a tenth of the namespaces.
"""

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from statistics import quantiles
from typing import Annotated, Final
from urllib.parse import urlencode

import typer

from benchmarks import pageworlds
from benchmarks.pageprocess import LIMIT_S, LOOPBACK, PEOPLE, Page, page_process, scheduler_mb
from benchmarks.pageworlds import PageWorld
from benchmarks.usage import Usage

FIRST_BYTE_BAR_MS: Final = 300.0
"""95 of 100 requests of each page are to be faster."""
IDLE_BAR_PERCENT: Final = 5.0
"""Of a core, while no page is open."""
MEMORY_BAR_MB: Final = 100.0
"""More than a scheduler's process with the same cluster."""

_FORM: Final = "application/x-www-form-urlencoded"
_PAUSE_S: Final = 0.01
"""Between two requests."""
_QUESTIONS: Final = 3
"""How often each question is asked that fills an engine of its own."""
_MANIFEST: Final = """
apiVersion: scheduling.bindery.dev/v1alpha1
kind: PodGroup
metadata: {name: asked}
spec: {minMember: 1, queue: QUEUE}
---
apiVersion: v1
kind: Pod
metadata:
  name: asked-0
  annotations: {scheduling.bindery.dev/pod-group: asked}
spec:
  schedulerName: bindery
  containers:
  - name: train
    resources: {requests: {cpu: "8", nvidia.com/gpu: "1"}, limits: {nvidia.com/gpu: "1"}}
"""


@dataclass(frozen=True)
class Spans:
    """How long to measure, in seconds."""

    idle_s: float = 60.0
    looking_s: float = 150.0


@dataclass(frozen=True)
class Times:
    """The times until the first byte of some requests of one page, in milliseconds."""

    page: str
    planning: bool
    """Whether a plan was under way."""
    count: int
    p50: float
    p95: float
    worst: float


@dataclass(frozen=True)
class Lap:
    """What one size of a cluster gave. Memory is in units of 1,000,000 bytes."""

    world: PageWorld
    times: tuple[Times, ...]
    plan_s: float
    """Median seconds that a plan was under way."""
    idle_cpu_percent: float
    """Of a core, while no page is open."""
    page_mb: float
    """The most memory that the page's process has held."""
    scheduler_mb: float
    """The most that a process has held with the same cluster in a scheduler's engine."""


def paths_of(world: PageWorld) -> dict[str, str]:
    """Return what is asked for: the name of a page -> its path. Both people may see all of it."""
    last = world.gangs - 1
    waits = pageworlds.gang_name(last - last % pageworlds.TEAMS)  # one of the first team
    return {
        "overview": "/",
        "gangs that wait": "/gangs",
        "all gangs, the oldest first": "/gangs?show=all&sort=-age_s",
        "gangs, searched": "/gangs?show=all&q=gang-0001",
        "one gang": f"/gangs/{pageworlds.team(0)}/{waits}",
        "queues": "/queues",
        "one queue": f"/queues/{pageworlds.team(0)}",
        "nodes": "/nodes",
        "nodes, searched": "/nodes?q=node-0001",
        "one node": f"/nodes/{pageworlds.node_name(0)}",
        "promises": "/promises",
        "whatif, the form": "/whatif",
        "gangs as JSON": "/gangs.json?show=all&size=1000",
        "all gangs as CSV": "/gangs.csv?show=all",
        "all nodes as CSV": "/nodes.csv",
    }


def measure(world: PageWorld, spans: Spans, report: Callable[[str], None]) -> Lap:
    """Measure the dashboard of `world`.

    Raises:
        RuntimeError: a page was not answered with 200.
        TimeoutError: the pages do not answer.
    """
    most_mb = scheduler_mb(world)
    report(f"{world}: a scheduler holds {most_mb:.0f} MB")
    with page_process(world) as page:
        browser = Browser(page.port)
        for token in PEOPLE:
            browser.first_byte_ms("/", token)  # waits for the first plan
        idle_cpu = _idle_percent(page.pid, spans.idle_s)
        report(f"{world}: {idle_cpu:.2f} % of a core while no page is open")
        found, plans = _looked(page, browser, paths_of(world), spans.looking_s)
        found |= _asked(browser, world)
        page_mb = Usage.of(page.pid).peak_mb
    plan_s = sorted(plans)[len(plans) // 2] if plans else 0.0
    report(f"{world}: {page_mb:.0f} MB, {len(plans)} plans of {plan_s:.1f} s")
    return Lap(world, tuple(_times(found)), plan_s, idle_cpu, page_mb, most_mb)


# -- the people ------------------------------------------------------------------------------------


class Browser:
    """Asks for pages over one connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=LIMIT_S)

    def first_byte_ms(self, path: str, token: str, sent: Mapping[str, str] | None = None) -> float:
        """Ask for a page; return the milliseconds until the answer begins.

        `sent`: the fields of a form that is posted; None: the page is read.

        Raises:
            RuntimeError: the answer is none.
        """
        begun_s = time.perf_counter()
        headers = {"Authorization": f"Bearer {token}"}
        if sent is None:
            self._connection.request("GET", path, headers=headers)
        else:
            headers |= {"Sec-Fetch-Site": "same-origin", "Content-Type": _FORM}
            self._connection.request("POST", path, urlencode(sent), headers)
        answer = self._connection.getresponse()
        taken_s = time.perf_counter() - begun_s
        answer.read()
        if answer.status not in (HTTPStatus.OK, HTTPStatus.SEE_OTHER):
            raise RuntimeError(f"{path} for the {token}: {answer.status}")
        return taken_s * 1000


Found = dict[tuple[str, bool], list[float]]
"""The page, and whether a plan was under way -> milliseconds."""


def _looked(
    page: Page, browser: Browser, paths: Mapping[str, str], span_s: float
) -> tuple[Found, Sequence[float]]:
    """Ask for all pages in turns, while one page is open and learns of each plan."""
    page.plans.clear()
    found: Found = {}
    events = http.client.HTTPConnection(LOOPBACK, page.port, timeout=LIMIT_S)
    events.request("GET", "/events", headers={"Authorization": "Bearer auditor"})
    stream = events.getresponse()
    reading = threading.Thread(target=_read, args=(stream,), daemon=True)
    reading.start()
    end_s, rounds = time.monotonic() + span_s, 0
    while time.monotonic() < end_s or not rounds:
        rounds += 1
        for name, path in paths.items():
            for token in PEOPLE:
                was_planning = page.began_s is not None
                taken_ms = browser.first_byte_ms(path, token)
                key = (name, was_planning or page.began_s is not None)
                found.setdefault(key, []).append(taken_ms)
                time.sleep(_PAUSE_S)
    return found, list(page.plans)


def _asked(browser: Browser, world: PageWorld) -> Found:
    """Ask what would help some gangs that wait, and what a manifest would do."""
    last, team = world.gangs - 1, pageworlds.team(0)
    waits = last - last % pageworlds.TEAMS  # one of the first team
    most = max(1, min(_QUESTIONS, (waits - world.running) // pageworlds.TEAMS))
    gangs = [pageworlds.gang_name(waits - number * pageworlds.TEAMS) for number in range(most)]
    form = {"manifest": _MANIFEST.replace("QUEUE", team), "namespace": team}
    found: Found = {}
    for name in gangs:
        path = f"/gangs/{team}/{name}/help"
        for page, asked in (("help of a gang", path), ("its answer", f"{path}.json")):
            found.setdefault((page, False), []).append(browser.first_byte_ms(asked, "auditor"))
    # The page first: the answer to a program comes when that of the page is there.
    whatif = ("whatif, a manifest", False)
    found[whatif] = [browser.first_byte_ms("/whatif", "auditor", form)]
    browser.first_byte_ms("/whatif.json", "auditor", form)
    found["an answer of whatif", False] = [
        browser.first_byte_ms("/whatif.json", "auditor", form) for _ in range(_QUESTIONS)
    ]
    return found


def _read(stream: http.client.HTTPResponse) -> None:
    """Read events until the process ends."""
    try:
        while stream.read1():
            pass
    except (OSError, http.client.HTTPException):
        return


def _times(found: Found) -> Iterator[Times]:
    for (page, planning), times in sorted(found.items(), key=lambda each: each[0][1]):
        cuts = quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
        yield Times(page, planning, len(times), cuts[49], cuts[94], max(times))


def _idle_percent(pid: int, span_s: float) -> float:
    before_s, begun_s = Usage.of(pid).cpu_s, time.monotonic()
    time.sleep(span_s)
    return 100 * (Usage.of(pid).cpu_s - before_s) / (time.monotonic() - begun_s)


# -- the table -------------------------------------------------------------------------------------


def table(lap: Lap) -> str:
    """Return the times of `lap` in Markdown."""
    quiet = {each.page: each for each in lap.times if not each.planning}
    busy = {each.page: each for each in lap.times if each.planning}
    rows = [
        "| page | p50 | p95 | worst | while a plan runs: p50 | p95 | worst |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for page, times in quiet.items():
        planning = _cells(busy[page]) if page in busy else ("", "", "")
        rows.append(f"| {page} | {' | '.join((*_cells(times), *planning))} |")
    return "\n".join(rows)


def figures(lap: Lap) -> str:
    """Return the other figures of `lap` in Markdown."""
    idle = f"{lap.idle_cpu_percent:.1f} % | {IDLE_BAR_PERCENT:.0f} %"
    memory = f"{lap.page_mb:,.0f} MB | {lap.scheduler_mb + MEMORY_BAR_MB:,.0f} MB"
    beside = f"a scheduler's process with the same cluster: {lap.scheduler_mb:,.0f} MB"
    rows = (
        "| | Measured | To reach |",
        "|---|--:|--:|",
        f"| CPU while no page is open, of one core | {idle} |",
        f"| peak memory; {beside} | {memory} |",
        f"| a plan, beside requests one after another | {lap.plan_s:.1f} s | |",
    )
    return "\n".join(rows)


def _cells(times: Times) -> tuple[str, str, str]:
    return f"{times.p50:.0f}", f"{times.p95:.0f}", f"{times.worst:.0f}"


def main(
    nodes: Annotated[int, typer.Option(min=1)] = 5_000,
    pods: Annotated[int, typer.Option(min=1000)] = 50_000,
    idle: Annotated[float, typer.Option(help="Seconds without a person.")] = Spans.idle_s,
    looking: Annotated[float, typer.Option(help="Seconds with people.")] = Spans.looking_s,
) -> None:
    """Measure the dashboard and print the tables in Markdown; milliseconds to the first byte."""
    lap = measure(PageWorld(nodes, pods), Spans(idle, looking), print)
    print(f"{figures(lap)}\n\n{table(lap)}")


if __name__ == "__main__":
    typer.run(main)
