"""Who may do what in the web page, in a headless Chromium; the ledger is looked at afterwards."""

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
from broker.system.machine import new_id
from tests.harness.browser import Browser
from tests.harness.fleet import Fleet
from tests.harness.shown import PASSWORD, WITH_BROWSER, Shown, slow_fleet

pytestmark = WITH_BROWSER
WORKERS, JOBS = 6, 20


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, system_broker: str, browser: Browser
) -> Iterator[Shown]:
    """Six simulated hosts that train slowly, some forty jobs."""
    tmp = tmp_path_factory.mktemp("fleet")
    with slow_fleet(tmp, system_broker, browser, hosts=WORKERS, jobs=JOBS) as made:
        yield made


def _answer(url: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
    try:
        request = Request(url, data=data, headers=headers)  # noqa: S310 - our own address
        with urlopen(request, timeout=30) as answer:  # noqa: S310 - likewise
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


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
    page.click(".q-radio", "3 hours")
    page.click(".q-checkbox")
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
    page.until_text("log in first", ".q-notification")
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
