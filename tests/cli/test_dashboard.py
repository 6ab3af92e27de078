"""`bindery dashboard open`: the printed address lets one browser in, and a signal ends it."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "scenarios" / "two-teams.yaml"
COMMAND = (sys.executable, "-P", "-m", "bindery.cli.main", "dashboard", "open", "--no-browser")
SECONDS = 60


@pytest.fixture
def running() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--file", str(EXAMPLE)], stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_the_printed_address_leads_to_the_pages(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    address = urlsplit(running.stdout.readline().strip())
    assert (address.hostname, address.path, address.query) == ("127.0.0.1", "/login", "")
    connection = http.client.HTTPConnection(address.netloc, timeout=SECONDS)

    form = urlencode({"token": address.fragment, "next": "/"})
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": f"http://{address.netloc}",
    }
    connection.request("POST", "/login", form, headers)
    answer = connection.getresponse()
    answer.read()
    cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
    connection.request("GET", "/queues.json", headers={"Cookie": cookie})
    page = json.loads(connection.getresponse().read())

    assert [row["name"] for row in page["listing"]["rows"]] == ["company", "research", "vision"]
    connection.close()
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=SECONDS) == 0


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, "--file", str(EXAMPLE), "--port", port],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"bindery: cannot listen on 127.0.0.1 port {port}")


def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("nodes: 1")
    done = subprocess.run(
        [*COMMAND, "--file", str(path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 2
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
