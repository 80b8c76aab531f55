"""The web page in a headless Chromium, on a real broker, coordinator and (simulated) hosts.

The tests click, and look at the ledger afterwards.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from broker.protocol import messages as m
from broker.protocol.topics import Topics
from broker.system.machine import new_id
from tests.harness.browser import Browser
from tests.harness.fleet import Fleet
from tests.harness.shown import PASSWORD, WITH_BROWSER, Shown, slow_fleet

pytestmark = WITH_BROWSER
EVIL = "<img src=x onerror=\"window.hurt='yes'\">`${window.hurt='yes'}`</script>"
PAGES = ("/", "/jobs", "/curves", "/timeline")
WORKERS, JOBS = 6, 40


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, system_broker: str, browser: Browser
) -> Iterator[Shown]:
    """Six simulated hosts that train slowly, some forty jobs."""
    tmp = tmp_path_factory.mktemp("fleet")
    with slow_fleet(tmp, system_broker, browser, hosts=WORKERS, jobs=JOBS) as made:
        yield made


def test_the_overview_shows_the_fleet_and_follows_it(shown: Shown) -> None:
    """Without a word to anybody else than the page's own host."""
    page = shown.page()
    page.until_text("gaming-pc-1")
    page.until_text(f"{WORKERS} of {WORKERS} online")
    page.until("document.querySelectorAll('.bar .fill').length > 4")
    running = shown.job("running")
    before = page.text(".tile[href='/jobs?state=cancelled'] .number")
    shown.fleet.cancel(running["job_id"])
    page.until(
        "document.querySelector(\".tile[href='/jobs?state=cancelled'] .number\").innerText === "
        f"'{int(before) + 1}'",
        "the number of cancelled jobs",
    )
    for path in PAGES:
        page.open(shown.url + path)
        page.until("document.querySelector('[data-ready], [data-series], [data-bars]')")
    assert page.elsewhere == []
    assert page.complaints == []
    cell = "{job_id: '', jobs: 0, ending: true, online: true}"
    assert page.run(f"fleet.cells.current({{data: {cell}}}).textContent") == "ending"
    cell = "{value: 'completed', data: {state: 'completed', chance: 'below chance: so'}}"
    said = page.run(f"(node => [node.textContent, node.title])(fleet.cells.state({cell}))")
    assert said == ["below chance", "completed, below chance: so"]


def test_every_page_has_the_plans_name_and_follows_it(shown: Shown) -> None:
    """It is in the header; a reload that changes nothing else is told as well."""
    page = shown.page("/jobs")
    page.until_text("forty trees", "header")
    manifest = shown.fleet.manifest
    before = manifest.read_text("utf-8")
    try:
        manifest.write_text(before.replace("forty trees", "<b>forty</b> trees"), "utf-8")
        shown.fleet.reload()
        page.until_text("<b>forty</b> trees", "header")
    finally:
        manifest.write_text(before, "utf-8")
        shown.fleet.reload()
    page.until_text("forty trees", "header")


def test_connections_that_say_nothing_lock_nobody_out(shown: Shown) -> None:
    """Nor do requests that never end; they are ended soon, and an open page stays connected."""
    page = shown.page()
    page.until_text("gaming-pc-1")
    where = urlsplit(shown.url)
    begun = (b"", b"GET / HTTP/1.1\r\nHost:", b"POST /login HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
    silent = []
    try:
        for number in range(505):
            silent.append(socket.create_connection((where.hostname, where.port), 20))
            silent[-1].sendall(begun[number % len(begun)])
        assert urlopen(shown.url, timeout=20).status == 200  # noqa: S310
        for one in silent:
            with contextlib.suppress(ConnectionResetError):
                one.settimeout(30)
                while one.recv(1024):  # what a refusal says
                    pass
    finally:
        for one in silent:
            one.close()
    assert page.run("window.socket.connected") is True
    assert urlopen(shown.url, timeout=20).status == 200  # noqa: S310


def test_who_has_not_logged_in_may_look_and_nothing_else(shown: Shown) -> None:
    """There is no button to press, and the page says how to get one."""
    job = shown.job("running")
    page = shown.page(f"/job/{job['job_id']}")
    page.until_text("epoch", ".log")
    page.until_text("assigned", "table")
    assert page.run("document.querySelectorAll('.danger').length") == 0
    assert "Log in" in page.text("header")
    assert shown.fleet.show(job["job_id"])["state"] == "running"


def test_a_running_job_is_cancelled_by_two_clicks_and_requeued_by_two(shown: Shown) -> None:
    """The ledger says so, and who it was; the page shows it by itself."""
    job = shown.job("running")
    page = shown.browser.page()
    shown.log_in(page, f"/job/{job['job_id']}")
    shown.ask(page, "Cancel")
    page.until_text("its work is thrown away", ".dialog")
    shown.confirm(page)
    shown.until_ledger(job["job_id"], "cancelled", page)
    page.until_text("cancelled", ".state.big")
    page.until_text("operator:local", "table")
    shown.ask(page, "Requeue")
    shown.confirm(page)
    page.until("document.querySelector('.state.big').innerText !== 'cancelled'")
    events = shown.fleet.show(job["job_id"])["events"]
    said = [(event["event"], event["who"]) for event in events]
    assert ("cancelled", "operator:local") in said
    assert ("requeued", "operator:local") in said
    assert page.complaints == []


def test_who_says_no_changes_nothing_and_may_say_yes_at_once(shown: Shown) -> None:
    """The question goes, the job goes on; the next question is a new one."""
    job = shown.job("running")
    page = shown.browser.page()
    shown.log_in(page, f"/job/{job['job_id']}")
    shown.ask(page, "Cancel")
    page.click(".dialog button", "No, leave it")
    page.until("!document.querySelector('.dialog')")
    assert shown.fleet.show(job["job_id"])["state"] == "running"
    shown.ask(page, "Requeue")
    page.until_text(f"on {job['host']}, and begins again", ".dialog")
    page.click(".dialog button", "No, leave it")
    page.until("!document.querySelector('.dialog')")
    shown.ask(page, "Cancel")
    shown.confirm(page)
    shown.until_ledger(job["job_id"], "cancelled", page)


def test_a_host_has_its_description_in_the_manifest(shown: Shown) -> None:
    """Among what it is; of what it may do nothing is said."""
    page = shown.page("/host/lab-ws-1")
    page.until_text("beside the window", "[aria-label='What it is']")
    page.until_text("says nothing of it but what it is.", "[aria-label='What it may do']")


def test_a_host_is_drained_and_resumed(shown: Shown) -> None:
    """With a dialog each, and with the keyboard alone."""
    page = shown.browser.page()
    shown.log_in(page, "/host/lab-ws-1")
    shown.ask(page, "Drain")
    page.until_text("no new jobs until somebody resumes", ".dialog")
    page.key("Tab", 9)
    page.until("document.activeElement?.id === 'confirm'")
    page.key("Enter", 13)
    page.until_text("drained by operator:local", ".warn")
    page.until_text("drained", ".state.big")
    hosts = {row["host"]: row for row in shown.fleet.client.list_workers()}
    assert "drained by operator:local" in hosts["lab-ws-1"]["barred"][0]
    shown.ask(page, "Resume")
    shown.confirm(page)
    page.until("![...document.querySelectorAll('.warn')].some(one => one.checkVisibility())")
    hosts = {row["host"]: row for row in shown.fleet.client.list_workers()}
    assert hosts["lab-ws-1"]["barred"] == []


def test_a_host_is_snoozed_for_as_long_as_is_chosen(
    shown: Shown, client: Callable[..., Any]
) -> None:
    """And gives back what runs, if that is ticked; `Resume` ends it."""
    page, heard = shown.browser.page(), shown.listen(client)
    shown.log_in(page, "/host/laptop-1")
    shown.ask(page, "Snooze")
    page.click(".choices label", "3 hours")
    page.click(".tick")
    shown.confirm(page)
    page.until_text("snoozed until", ".warn")
    assert heard("snooze")["now"] is True
    hosts = {row["host"]: row for row in shown.fleet.client.list_workers()}
    said = re.search(r"snoozed until (.+) UTC by operator:local", hosts["laptop-1"]["snoozed"])
    assert said, hosts["laptop-1"]
    left_s = datetime.fromisoformat(f"{said[1]}+00:00").timestamp() - time.time()
    assert 2.9 * 3600 < left_s <= 3 * 3600
    shown.ask(page, "Resume")
    shown.confirm(page)
    page.until("![...document.querySelectorAll('.warn')].some(one => one.checkVisibility())")
    hosts = {row["host"]: row for row in shown.fleet.client.list_workers()}
    assert hosts["laptop-1"]["snoozed"] == ""


def test_the_fleet_is_paused_and_goes_on(shown: Shown) -> None:
    """Every open page says so, to those as well who may only look."""
    page, visitor = shown.browser.page(), shown.page("/jobs")
    shown.log_in(page)
    shown.ask(page, "Pause the fleet")
    shown.confirm(page)
    page.until_text("the fleet was paused by operator:local", ".band")
    visitor.until_text("`fleet pause --off` lifts it", ".band")
    assert visitor.run("document.querySelectorAll('.button').length") == 0
    assert "paused by operator:local" in shown.fleet.client.ask(m.AskStatus(id=new_id()))["paused"]
    shown.ask(page, "Give jobs out again", ".band button")
    shown.confirm(page)
    gone = "![...document.querySelectorAll('.band')].some(one => one.checkVisibility())"
    page.until(gone, "the band to go")
    visitor.until(gone, "the band to go")
    assert shown.fleet.client.ask(m.AskStatus(id=new_id()))["paused"] == ""


def test_a_logout_in_one_window_ends_the_other_windows_rights(shown: Shown) -> None:
    """A page that is still open, with a button still on it, does nothing any more."""
    job = shown.job("running")
    page = shown.browser.page()
    shown.log_in(page, f"/job/{job['job_id']}")
    shown.ask(page, "Cancel")
    page.until_text("its work is thrown away", ".dialog")
    page.run("void fetch('/logout', {method: 'POST'})")
    shown.confirm(page)
    page.until_text("log in first", "#notice")
    assert shown.fleet.show(job["job_id"])["state"] == "running"


def test_a_wrong_password_lets_nobody_in(shown: Shown) -> None:
    """And leads back to where it is asked for."""
    page = shown.page("/login?next=//evil.example")
    page.until("document.activeElement?.id === 'password'")
    page.type("not the password")
    page.click("button", "Log in")
    page.until_text("That is not the password.")
    assert page.run("document.cookie") == ""
    assert page.run("document.querySelector('[name=next]').value") == "/"


def test_words_from_the_wire_are_shown_as_words(shown: Shown, client: Callable[..., Any]) -> None:
    """Whatever is in a name, an error, or a line of output: no script of it runs, on any page."""
    fleet, topics = shown.fleet, Topics(shown.fleet.root)
    port = int(fleet.broker_url.rpartition(":")[2])
    somebody = client(port, f"evil-{fleet.root}")
    held = shown.job("running")
    bad_id = "e" * 64
    row = m.JobRow(
        job_id=bad_id, name=EVIL, model=EVIL, mode=EVIL, state="failed", priority=0, attempt=1,
        host="../" + EVIL, error=EVIL, artifact_id=None,
        metrics={":evil": 1.0, "auroc": 0.5}, created_at=EVIL,
        started_at="2026-05-28T20:26:57Z", finished_at="2026-05-28T20:46:57Z",
    )  # fmt: skip
    somebody.publish(topics.job(bad_id), m.encode(row), retain=True)
    try:
        page = shown.page("/jobs?text=onerror")
        page.until_text(EVIL, ".ag-cell")
        said = f"{held['attempt']}.99999 {EVIL}"
        somebody.publish(topics.log(held["host"], held["job_id"]), said.encode())
        for path in ("/", "/timeline", f"/job/{bad_id}", f"/job/{held['job_id']}"):
            page.open(shown.url + path)
            page.until("document.querySelector('[data-ready], [data-bars], .log')")
        page.until_text(EVIL, ".log")
        page.open(f"{shown.url}/job/{bad_id}")
        page.until_text(EVIL, "h1")
        assert page.run("window.hurt ?? 'no'") == "no"
        assert page.run("document.querySelectorAll('img[src=x]').length") == 0
    finally:
        somebody.publish(topics.job(bad_id), b"", retain=True)


def test_a_metric_with_its_interval_is_whole_and_an_orphan_is_told_from_its_namesake(
    shown: Shown, client: Callable[..., Any]
) -> None:
    """Where all other columns are shown as well, and empty."""
    port = int(shown.fleet.broker_url.rpartition(":")[2])
    somebody = client(port, f"orphan-{shown.fleet.root}")
    topics, orphan = Topics(shown.fleet.root), "0e" * 32
    row = m.JobRow(
        job_id=orphan, name="gbt-00", model="gbt", mode="oracle", state="completed", priority=0,
        attempt=1, host="lab-ws-1", artifact_id=None, error=None, in_plan=False,
        metrics={"auroc": 0.811503, "auroc_ci": [0.9012, 0.9712]},
        created_at="2026-05-28T20:26:57Z", started_at="2026-05-28T20:26:57Z",
        finished_at="2026-05-28T20:46:57Z",
    )  # fmt: skip
    somebody.publish(topics.job(orphan), m.encode(row), retain=True)
    try:
        page = shown.page("/jobs?text=gbt-00", width=1200)
        page.until_text("0.901\N{EN DASH}0.971", ".ag-cell[col-id=value-metric]")
        page.until_text("0.812", ".ag-cell[col-id=value-metric]")  # not rounded twice
        cut = (
            "(cell => { const inside = document.createRange(); inside.selectNodeContents(cell); "
            "return inside.getBoundingClientRect().right > cell.getBoundingClientRect().right; })"
        )
        cells = "[...document.querySelectorAll('.ag-cell[col-id=value-metric]')]"
        for width in (1200, 1250, 1300):
            page.resize(width, 800)
            page.until(f"window.innerWidth === {width} && !{cells}.some({cut})")
        names = "[...document.querySelectorAll('.ag-row .ag-cell[col-id=name-job]')]"
        page.until(f"{names}.length === 2")
        said = page.run(f"{names}.map(one => one.innerText).join('; ')")
        assert sorted(said.split("; ")) == ["gbt-00", "orphaned gbt-00"]
    finally:
        somebody.publish(topics.job(orphan), b"", retain=True)


def test_what_runs_is_the_first_row_of_the_jobs_and_what_is_over_is_not(shown: Shown) -> None:
    """By the ledger's order a job that is cancelled stands among those that wait."""
    over = shown.job("running")
    shown.fleet.cancel(over["job_id"])
    page = shown.page("/jobs")
    cell = 'document.querySelector(\'.ag-row[row-index="0"] [col-id="{}"]\')?.innerText'
    page.until(f"{cell.format('state-state')} === 'running'", "the first row to be of what runs")
    over = shown.job("running")
    page.until_text(over["name"])
    shown.fleet.cancel(over["job_id"])
    page.until(f"{cell.format('name-job')} !== '{over['name']}'", "the row to go down")
    assert page.complaints == []


def test_jobs_are_filtered_searched_and_sorted(shown: Shown) -> None:
    """What is chosen stands in the address, so that it can be sent to somebody."""
    page = shown.page("/jobs")
    page.until_text(f"{JOBS + 1} jobs", "#shown-jobs")
    page.run("document.querySelector('input[type=search]').focus(); 1")
    page.type("big")
    page.until_text(f"1 of {JOBS + 1} jobs", "#shown-jobs")
    assert page.run("location.search") == "?text=big"
    page.open(f"{shown.url}/jobs?state=pending&model=gbt")
    page.until_text(f" of {JOBS + 1} jobs", "#shown-jobs")
    states = "[...document.querySelectorAll('.ag-row .state')].map(one => one.innerText)"
    page.until(f"{states}.length > 3 && {states}.every(one => one === 'pending')")
    page.open(f"{shown.url}/jobs")
    names = "[...document.querySelectorAll('.ag-row:not(.ag-opacity-zero) [col-id=name-job] a')]"
    page.until(f"{names}.length > 5")
    page.click(".ag-header-cell-text", "Job")
    page.click(".ag-header-cell-text", "Job")
    page.until(
        "document.querySelector('.ag-row[row-index=\"0\"] a')?.innerText === 'gbt-39'",
        "the last name first",
    )


def test_a_pending_job_says_why(shown: Shown) -> None:
    """Host by host, in the words of `fleet why`."""
    job = next(row for row in shown.fleet.client.list_jobs(["pending"]) if row["name"] == "big-one")
    page = shown.page(f"/job/{job['job_id']}")
    page.until_text("Why it waits", "h2")
    page.until_text("needs CUDA; this host has none", "table")
    page.until_text("if min_vram_gib were", "ul li")


def test_a_job_that_no_host_can_run_is_marked_as_long_as_it_waits(shown: Shown) -> None:
    """On the overview, which leads to it, among the jobs and on its page, in words."""
    page, other = shown.page(), shown.page()
    page.click(".warn a", "1 job that no host can run")
    page.until_text(f"1 of {JOBS + 1} jobs", "#shown-jobs")
    assert page.run("location.search") == "?state=unplaceable"
    page.until_text("no host can run it", ".ag-row .state")
    page.click(".ag-row a", "big-one")
    page.until_text("no host can run it", ".head")
    shown.fleet.cancel("big-one")
    page.until("!document.querySelector('.head').innerText.includes('no host')")
    other.until("!document.querySelector('.warn').checkVisibility()", "the note to go")
    shown.fleet.requeue("big-one")
    other.until_text("1 job that no host can run", ".warn")
    page.until_text("no host can run it", ".head")


def test_a_job_that_waits_for_drained_hosts_says_so_until_one_is_resumed(shown: Shown) -> None:
    """Among the jobs, where it can be looked for, and on its page."""
    hosts = [row["host"] for row in shown.fleet.client.list_workers()]
    for host in hosts:
        shown.fleet.client.ask(m.AskDrain(id=new_id(), host=host))
    try:
        page = shown.page("/jobs?state=pending&text=fleet+resume")
        words = "waits for `fleet resume` of attic-pi-1, attic-pi-2, "
        page.until_text("awaits resume", ".ag-row .state")
        assert page.run("document.querySelector('.ag-row .state').title").startswith(words)
        page.click(".ag-row a")
        page.until_text(words, ".head")
    finally:
        for host in hosts:
            shown.fleet.client.ask(m.AskResume(id=new_id(), host=host))
    page.until("!document.querySelector('.head').innerText.includes('waits for')")


@pytest.mark.parametrize("path", ["/job/{name}", "/jobs/{name}", "/job/{start}"])
def test_a_job_is_found_by_its_name_and_by_the_start_of_its_id(shown: Shown, path: str) -> None:
    """Nobody types 64 digits; the address that one has then is the whole one."""
    job = next(row for row in shown.fleet.client.list_jobs() if row["name"] == "big-one")
    typed = shown.url + path.format(name="big-one", start=job["job_id"][:12])
    with urlopen(typed) as answer:  # noqa: S310 - ours
        assert (answer.status, answer.url) == (200, f"{shown.url}/job/{job['job_id']}")


def test_an_address_that_is_none_leads_back(shown: Shown) -> None:
    """In words of ours, with the bar; and programs see a 404."""
    page = shown.page("/jbos")
    page.until_text("No such page", "h1")
    page.click("a", "The overview")
    page.until_text("gaming-pc-1")
    said = page.run("fetch('/jbos').then(answer => answer.status)")
    assert said == 404


def test_the_table_of_hosts_is_as_high_as_its_rows(shown: Shown) -> None:
    """Few hosts leave no empty room below them."""
    page = shown.page()
    page.until_text(f"{WORKERS} of {WORKERS} online")
    last = "[...document.querySelectorAll('section[aria-label=Hosts] .ag-row')].at(-1)"
    page.until(
        "(() => { const card = document.querySelector('section[aria-label=Hosts]');"
        f" const row = {last}; return row && card.getBoundingClientRect().bottom"
        " - Math.max(...[...card.querySelectorAll('.ag-row')].map("
        "one => one.getBoundingClientRect().bottom)) < 20; })()",
        "no empty room",
    )


def test_what_is_said_of_an_empty_table_goes_when_rows_come(shown: Shown) -> None:
    """A screen reader would find `nothing runs now` above what runs."""
    page = shown.page()
    page.until_text("gaming-pc-1")
    page.run(
        "window.card = document.querySelector('section[aria-label=\"Running now\"]');"
        "window.api = getElement(Number(card.querySelector('[data-ready]').id.slice(1))).api;"
        "window.rows = []; api.forEachNode(one => rows.push(one.data));"
        "api.applyTransaction({remove: rows}); 0"
    )
    page.until("card.innerText.includes('nothing runs now')")
    page.run("api.applyTransaction({add: rows}); 0")
    page.until("!card.innerText.includes('nothing runs now')")


@pytest.mark.parametrize("path", [*PAGES, "/login", "/host/gaming-pc-1", "/job"])
def test_nothing_is_cut_off_on_a_phone(shown: Shown, path: str) -> None:
    """At 360 pixels no page is wider than the window."""
    if path == "/job":
        path = f"/job/{shown.job('running')['job_id']}"
    page = shown.page(path, width=360, height=740)
    page.until("document.querySelector('h1')")
    page.until("document.documentElement.scrollWidth <= 360", f"{path} to fit")


def test_a_word_that_is_wider_than_a_phone_is_broken(
    shown: Shown, client: Callable[..., Any]
) -> None:
    """Such as the id of a job, or a file that is called by it."""
    topics, key = Topics(shown.fleet.root), "e" * 64
    somebody = client(int(shown.fleet.broker_url.rpartition(":")[2]), f"wide-{shown.fleet.root}")
    row = m.JobRow(
        job_id=key, name="wide-one", model="gbt", mode="oracle", state="completed", priority=0,
        attempt=1, host="gaming-pc-1", error=None, artifact_id="5a" * 32, metrics=None,
        created_at="2026-05-28T20:00:00Z", started_at="2026-05-28T20:00:00Z",
        finished_at="2026-05-28T20:01:00Z",
    )  # fmt: skip
    somebody.publish(topics.job(key), m.encode(row), retain=True)
    try:
        page = shown.page(f"/job/{key}", width=360, height=740)
        page.until_text("did not tell more", ".warn")
        page.until_text(key, ".warn")
        assert page.run("[window.innerWidth, document.documentElement.scrollWidth]") == [360, 360]
    finally:
        somebody.publish(topics.job(key), b"", retain=True)


@pytest.mark.parametrize("path", [*PAGES, "/login", "/host/gaming-pc-1", "/job"])
def test_a_screen_reader_finds_its_way(shown: Shown, path: str) -> None:
    """One heading of the first rank, one main part, a name on everything that can be used."""
    if path == "/job":
        path = f"/job/{shown.job('running')['job_id']}"
    page = shown.page(path)
    page.until("document.querySelector('[data-ready], [data-series], [data-bars], .log, .login')")
    nodes = page.accessible()
    assert sum(node["role"] == "main" for node in nodes) == 1
    headings = [node for node in nodes if node["role"] == "heading" and node.get("level") == 1]
    assert len(headings) == 1
    assert headings[0]["name"]
    usable = {"button", "link", "textbox", "searchbox", "combobox", "checkbox", "grid", "table"}
    unnamed = [node for node in nodes if node["role"] in usable and not node["name"]]
    assert unnamed == []
    if path != "/login":
        page.key("Tab", 9)
        assert page.run("document.activeElement.innerText") == "Skip to the page"
    if path in {"/", "/jobs"}:
        titles = [node["name"] for node in nodes if node["role"] == "columnheader"]
        assert "State" in titles
        assert any(node["role"] == "status" for node in nodes)


def test_colours_follow_the_system_and_a_switch(shown: Shown) -> None:
    """What is chosen stays, and text stands out from its ground in either."""
    page = shown.page(dark=True)
    page.until("document.body.classList.contains('body--dark')")
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    page.dark(on=False)
    page.until("!document.body.classList.contains('body--dark')")
    assert page.run("getComputedStyle(document.body).backgroundColor") != ground
    page.click("#theme")  # from the system's to light
    page.click("#theme")  # to dark
    page.until("document.body.classList.contains('body--dark')")
    page.open(f"{shown.url}/jobs")
    page.until("document.body.classList.contains('body--dark')")
    for name in ("light", "dark"):
        page.run(f"Quasar.Dark.set({json.dumps(name == 'dark')}); 1")
        assert page.run(CONTRAST) == [], name


# Pairs of our colours that stand out from each other by less than WCAG 2's AA asks of text.
CONTRAST = """(() => {
  const style = getComputedStyle(document.body);
  const light = (name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    const part = (at) => {
      const value = parseInt(hex.slice(at, at + 2), 16) / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4);
  };
  const inks = ["ink", "dim", "accent", "pending", "claimed", "running", "completed", "failed",
    "cancelled", "lost", "released"];
  const found = [];
  for (const ink of inks) for (const ground of ["ground", "raised", "hover"]) {
    const both = [light("--" + ink), light("--" + ground)].sort((a, b) => b - a);
    const ratio = (both[0] + 0.05) / (both[1] + 0.05);
    if (ratio < 4.5) found.push(`${ink} on ${ground}: ${ratio.toFixed(2)}`);
  }
  return found;
})()"""


def _answer(url: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
    try:
        request = Request(url, data=data, headers=headers)  # noqa: S310 - our own address
        with urlopen(request, timeout=30) as answer:  # noqa: S310 - likewise
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_another_site_gets_nothing(shown: Shown) -> None:
    """Not by a name of its own that points here, not from its own pages, not by a websocket."""
    code, words = _answer(shown.url, Host="evil.example")
    assert (code, "--name evil.example" in words) == (403, True)
    assert _answer(shown.url)[0] == 200
    port = shown.url.rpartition(":")[2]
    assert _answer(shown.url, Host=f"localhost:{port}")[0] == 200
    assert _answer(f"{shown.url}/logout", b"", Origin="https://evil.example")[0] == 403
    assert _answer(f"{shown.url}/logout", b"")[0] == 403
    url = shown.url.replace("http", "ws") + "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    connect(url, origin=Origin(shown.url), proxy=None).close()
    with pytest.raises(InvalidStatus, match="403"):
        connect(url, origin=Origin("https://evil.example"), proxy=None)


def test_a_result_is_shown_and_its_artifact_comes_whole(
    fleet: Fleet, browser: Browser, short: str, tmp_path: Path
) -> None:
    """A real training: metrics with intervals, the loss, the report's own page, the download."""
    fleet.plan(short)
    fleet.coordinator()
    agent = fleet.agent()
    row = fleet.until("gbt-oracle", "completed")
    shown = Shown(fleet, browser)
    fleet.programs.append(shown.program)
    page = shown.page(f"/job/{row['job_id']}")
    page.until_text("95 % interval", "th")
    page.until("document.querySelector('iframe.report')", "the report")
    page.until("Number(document.querySelector('[data-series]')?.dataset.series) === 2", "the loss")
    code, words = _answer(f"{shown.url}/report/{row['artifact_id']}")
    assert (code, "<svg" in words) == (200, True)
    alone = page.run("document.querySelector('a.alone').href")
    assert alone == f"{shown.url}/report/{row['artifact_id']}"
    sha256 = page.run(
        "fetch(document.querySelector('a[download]').href).then(it => it.arrayBuffer())"
        ".then(it => crypto.subtle.digest('SHA-256', it)).then(it => "
        "[...new Uint8Array(it)].map(one => one.toString(16).padStart(2, '0')).join(''))"
    )
    assert sha256 == row["artifact_id"]
    agent.end(signal.SIGTERM)
    fleet.requeue("gbt-oracle")
    page.until_text("requeued", "table")
    link = f"a[download][href$='/artifact/{row['job_id']}/1']"
    page.until(f"document.querySelector(\"{link}\")?.textContent.includes('kept until')")
    sizes = page.run(
        f'fetch(document.querySelector("{link}").href).then(async it => [it.status, '
        "it.headers.get('x-artifact-sha256'), it.headers.get('content-disposition')])"
    )
    name = 'attachment; filename="gbt-oracle-attempt-1.tar.zst"'
    assert sizes == [200, row["artifact_id"], name]
    assert _answer(f"{shown.url}/artifact/{row['job_id']}/2")[0] == 404
    assert page.complaints == []
    assert shown.program.end(signal.SIGTERM) == 0
    assert "Traceback" not in shown.program.said()


def test_read_only_is_read_only(shown: Shown) -> None:
    """Nobody can log in where nobody may do anything, with the right password neither."""
    other = Shown(shown.fleet, shown.browser, "--read-only")
    try:
        page = other.page("/login")
        page.until_text("read only")
        answer = page.run(
            f"fetch('/login', {{method: 'POST', body: new URLSearchParams({{password: "
            f"{json.dumps(PASSWORD)}}})}}).then(it => it.status)"
        )
        assert answer == 403
        page.open(other.url)
        page.until_text("read only", "header")
    finally:
        assert other.program.end(signal.SIGINT) == 0


def test_what_is_private_shows_nothing_without_the_password(shown: Shown) -> None:
    """Neither a page nor a websocket nor an artifact."""
    other = Shown(shown.fleet, shown.browser, "--private")
    try:
        page = other.page("/jobs")
        page.until_text("Log in", "h1")
        assert page.run("location.pathname") == "/login"
        assert "Look without" not in page.text()
        assert "gaming-pc" not in _answer(f"{other.url}/artifact/{'a' * 64}")[1]
        other.log_in(page, "/jobs")
        page.until_text("gbt-", ".ag-cell")
        page.run("void fetch('/logout', {method: 'POST'})")  # in another window
        page.until("location.pathname === '/login'", "the page to end with its session")
        assert page.run("location.search") == "?next=/jobs"
    finally:
        other.program.end(signal.SIGTERM)
