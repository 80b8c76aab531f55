"""The web page when something is missing, and behind HTTPS: what a browser shows, and may do."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from tests.harness.brokers import BrokerProcess
from tests.harness.browser import Browser, Page
from tests.harness.fleet import Fleet, Program
from tests.harness.secure import House
from tests.harness.shown import WITH_BROWSER, Shown, slow_fleet
from tests.harness.swarm import Swarm
from tests.system.test_uploads import GATED, MIB, lay_in_spool

pytestmark = WITH_BROWSER
JOB = 'model = "mlp"\nmode = "realistic"\nname = "waits"\nrequire_cuda = true'


FILTER = "getComputedStyle(document.querySelector('#main')).filter"


def _until_banner(page: Page, text: str) -> None:
    """Wait until a banner says so, with the time; the page is marked as old, its button dead."""
    page.until_text(text, ".banner")
    page.until("document.querySelector('.banner time').textContent.includes(':')", "since when")
    page.until(f"{FILTER} === 'grayscale(1)'", "no colours")
    page.until("document.querySelector('.button.danger').disabled", "no command to give")


def _until_live(page: Page) -> None:
    page.until_text("live", "header")
    page.until("![...document.querySelectorAll('.banner')].some(one => one.checkVisibility())")
    page.until(f"{FILTER} === 'none'")
    page.until("!document.querySelector('.button.danger').disabled")


def test_what_is_missing_is_said_until_it_is_back(
    tmp_path: Path, browser: Browser, new_broker: Callable[[str], BrokerProcess],
    make_fleet: Callable[[Path, str, Path], Fleet],
) -> None:  # fmt: skip
    broker = new_broker("embedded")
    fleet = make_fleet(tmp_path, broker.url, tmp_path)
    fleet.plan(JOB)
    coordinator = fleet.coordinator()
    shown = Shown(fleet, browser)
    fleet.programs.append(shown.program)
    page = browser.page()
    shown.log_in(page, f"/job/{fleet.until('waits', 'pending')['job_id']}")
    _until_live(page)

    coordinator.process.send_signal(signal.SIGSTOP)
    try:
        _until_banner(page, "The coordinator does not answer")
    finally:
        coordinator.process.send_signal(signal.SIGCONT)
    _until_live(page)

    coordinator.kill()
    _until_banner(page, "The coordinator is gone")
    coordinator.start()
    _until_live(page)

    broker.end(signal.SIGKILL)
    _until_banner(page, "The broker cannot be reached")
    late = browser.page()  # who comes meanwhile is told the same
    shown.log_in(late, "/jobs")
    late.until_text("The broker cannot be reached", ".banner")
    broker.start()
    _until_live(page)
    late.until_text("live", "header")
    assert page.complaints == []


# Of each table what its rows are of, by name, and how far each is from the one above it.
SEEN = """[...document.querySelectorAll(".ag-root-wrapper")].map((root) => {
  const rows = [...root.querySelectorAll(".ag-center-cols-container .ag-row")];
  const tops = rows.map((row) => Math.round(row.getBoundingClientRect().y)).sort((a, b) => a - b);
  const names = rows.map((row) => row.querySelector("a")?.innerText ?? "").sort();
  return [names, [...new Set(tops.slice(1).map((top, at) => top - tops[at]))]];
})"""


def _until_shown(page: Page, *tables: list[str]) -> None:
    """Wait until each table has these rows and no other, one below the other."""
    wanted = json.dumps([[names, [32] if len(names) > 1 else []] for names in tables])
    page.until(f"JSON.stringify({SEEN}) === JSON.stringify({wanted})", wanted)


def test_hosts_and_jobs_that_come_and_go_leave_no_hole(
    tmp_path: Path, browser: Browser, new_broker: Callable[[str], BrokerProcess]
) -> None:
    broker = new_broker("embedded")
    jobs = [f"gbt-{n:02}" for n in range(6)]
    with slow_fleet(tmp_path, broker.url, browser, hosts=1, jobs=6, names=["a"]) as shown:
        fleet = shown.fleet
        page = shown.page()
        _until_shown(page, jobs[:1], ["a"])
        over = threading.Event()
        more = Swarm(broker.url, fleet.root, 3, rng=random.Random(2), speed=0.05, names="bcd")
        thread = threading.Thread(target=more.run, args=(over.is_set,), daemon=True)
        thread.start()
        try:
            _until_shown(page, jobs[:4], [*"abcd"])
            fleet.cancel(jobs[0])
            _until_shown(page, jobs[1:5], [*"abcd"])
            broker.end(signal.SIGKILL)
            page.until_text("The broker cannot be reached", ".banner")
            page.until_text("4 of 4 online")
            broker.start()
            page.until_text("live", "header")
            fleet.cancel(jobs[1])
            _until_shown(page, jobs[2:], [*"abcd"])
        finally:
            over.set()
            thread.join(20)
        assert page.complaints == []


def test_the_timeline_asks_until_the_coordinator_has_answered(
    fleet: Fleet, browser: Browser
) -> None:
    fleet.plan(JOB)
    coordinator = fleet.coordinator()
    shown = Shown(fleet, browser)
    fleet.programs.append(shown.program)
    shown.page("/jobs").until_text("waits", ".ag-cell")
    coordinator.process.send_signal(signal.SIGSTOP)
    try:
        page = shown.page("/timeline")
        page.until("document.querySelector('[data-bars]')", "the chart")
        page.until_text("asking the coordinator …", ".empty")
        page.until_text("Asking the coordinator for the attempts", "[role=status]")
        assert "no job has begun" not in page.text()
    finally:
        coordinator.process.send_signal(signal.SIGCONT)
    page.until_text("no job has begun in this time", ".empty")
    page.until("!document.body.innerText.includes('sking the coordinator')", "the end of asking")


def test_every_page_says_how_much_room_a_result_waits_for(fleet: Fleet, browser: Browser) -> None:
    fleet.plan(GATED)
    coordinator = fleet.coordinator(reserve_bytes=1 << 40)
    lay_in_spool(fleet, "pi", fleet.until("big", "pending")["job_id"], MIB)
    fleet.agent("pi", wait=False)
    shown = Shown(fleet, browser)
    fleet.programs.append(shown.program)
    page = shown.page()
    page.until_text("The coordinator's disk is low")
    page.until_text("1 finished job waits for room on the coordinator's disk: it needs 1.0 MiB ")
    coordinator.stop()
    fleet.coordinator()
    fleet.until("big", "completed")
    page.until("!document.body.innerText.includes('disk is low')", "the end of the banner")
    assert page.complaints == []


def test_an_observer_over_tls_looks_and_does_no_more(
    tmp_path: Path, browser: Browser, make_fleet: Callable[[Path, str, Path], Fleet]
) -> None:
    house = House.make(tmp_path)
    fleet = make_fleet(tmp_path, "", tmp_path)
    broker = Program(
        "broker.embedded", ["--listen", "127.0.0.1:0", "--identity", str(house.broker)],
        dict(fleet.environment), tmp_path / "broker.log",
    )  # fmt: skip
    fleet.broker_url = f"mqtts://localhost:{broker.start()['port']}"
    fleet.environment["FLEET_BROKER"] = fleet.broker_url
    fleet.programs.append(broker)
    fleet.plan(JOB)
    fleet.environment["FLEET_IDENTITY"] = str(house.identity("coordinator"))
    fleet.coordinator()
    identity = {"FLEET_IDENTITY": str(house.identity("observer:dashboard"))}
    pair = [str(house.broker / f"broker.{end}") for end in ("crt", "key")]
    shown = Shown(
        fleet, browser, "--certificate", pair[0], "--key", pair[1], environment=identity
    )  # fmt: skip
    fleet.programs.append(shown.program)
    assert shown.url.startswith("https://")
    page = browser.page()
    page.trust_everybody()
    page.open(f"{shown.url}/jobs")
    page.until_text("waits", ".ag-cell")
    page.until_text("observer:dashboard · read only", "header")
    page.until_text("live", "header")
    page.open(f"{shown.url}/login")
    page.until_text("read only")
    assert page.run("document.querySelectorAll('input, button').length") == 0
    page.open(shown.url)
    page.until_text("no host is known yet")
    assert page.run("document.querySelectorAll('.button').length") == 0
    assert page.complaints == []
