"""Who may do what in the web page, in a headless Chromium; the ledger is looked at afterwards."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from broker.protocol import messages as m
from broker.system.machine import new_id
from tests.harness.browser import Browser, Page
from tests.harness.fleet import Fleet
from tests.harness.shown import PASSWORD, WITH_BROWSER, Shown

pytestmark = WITH_BROWSER
FLEET = {"hosts": 6, "jobs": 20}


def _answer(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=30) as answer:  # noqa: S310 - our own address
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_connections_that_say_nothing_lock_nobody_out(shown: Shown) -> None:
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
    """There is no button to press; a wrong password leads back to where it is asked for."""
    page = shown.page(f"/job/{shown.job('running')['job_id']}")
    page.until_text("epoch", ".log")
    page.until_text("assigned", "table")
    assert page.run("document.querySelectorAll('.danger').length") == 0
    assert "Log in" in page.text("header")
    page.open(f"{shown.url}/login?next=//evil.example")
    page.until("document.activeElement?.id === 'password'")
    page.type("not the password")
    page.click("button", "Log in")
    page.until_text("That is not the password.")
    assert page.run("document.cookie") == ""
    assert page.run("document.querySelector('[name=next]').value") == "/"


def test_a_running_job_is_cancelled_and_requeued_once_somebody_says_yes(shown: Shown) -> None:
    job = shown.job("running")
    page = shown.browser.page()
    shown.log_in(page, f"/job/{job['job_id']}")
    for verb, loss in (("Requeue", f"on {job['host']}, and begins"), ("Cancel", "its work is thr")):
        shown.ask(page, verb)
        page.until_text(loss, ".dialog")
        page.click(".dialog button", "No, leave it")
        page.until("!document.querySelector('.dialog')")
    assert shown.fleet.show(job["job_id"])["state"] == "running"
    shown.ask(page, "Cancel")
    shown.confirm(page)
    shown.fleet.until(job["name"], "cancelled")
    page.until_text("cancelled", ".state.big")
    page.until_text("operator:local", "table")
    shown.ask(page, "Requeue")
    shown.confirm(page)
    page.until("document.querySelector('.state.big').innerText !== 'cancelled'")
    events = shown.fleet.show(job["job_id"])["events"]
    said = [(event["event"], event["who"]) for event in events]
    assert {("cancelled", "operator:local"), ("requeued", "operator:local")} <= {*said}
    assert page.complaints == []


def _barred(shown: Shown, host: str) -> Any:
    hosts = {row["host"]: row for row in shown.fleet.client.list_workers()}
    return hosts[host]["barred"]


def _resume(shown: Shown, page: Page, host: str) -> None:
    shown.ask(page, "Resume")
    shown.confirm(page)
    page.until("![...document.querySelectorAll('.warn')].some(one => one.checkVisibility())")
    assert _barred(shown, host) == []


def test_a_host_is_drained_and_resumed(shown: Shown) -> None:
    page = shown.browser.page()
    shown.log_in(page, "/host/lab-ws-1")
    shown.ask(page, "Drain")
    page.until_text("no new jobs until somebody resumes", ".dialog")
    page.key("Tab", 9)
    page.until("document.activeElement?.id === 'confirm'")
    page.key("Enter", 13)
    page.until_text("drained by operator:local", ".warn")
    page.until_text("drained", ".state.big")
    assert _barred(shown, "lab-ws-1")[0]["who"] == "operator:local"
    _resume(shown, page, "lab-ws-1")


def test_a_host_is_snoozed_for_as_long_as_is_chosen(
    shown: Shown, client: Callable[..., Any]
) -> None:
    page, heard = shown.browser.page(), shown.listen(client)
    shown.log_in(page, "/host/laptop-1")
    shown.ask(page, "Snooze")
    page.click(".q-radio", "3 hours")
    page.click(".q-checkbox")
    shown.confirm(page)
    page.until_text("snoozed until", ".warn")
    asked = heard("snooze")
    assert asked["now"] is True
    assert 0 < asked["expires_at"] - time.time() < 60, "nobody is surprised an hour later"
    (snoozed,) = _barred(shown, "laptop-1")
    assert (snoozed["code"], snoozed["who"]) == ("snoozed", "operator:local")
    left_s = datetime.fromisoformat(snoozed["until"]).timestamp() - time.time()
    assert 2.9 * 3600 < left_s <= 3 * 3600
    _resume(shown, page, "laptop-1")


def test_the_fleet_is_paused_and_goes_on(shown: Shown) -> None:
    page, visitor = shown.browser.page(), shown.page("/jobs")
    shown.log_in(page)
    shown.ask(page, "Pause the fleet")
    shown.confirm(page)
    page.until_text("the fleet was paused by operator:local", ".banner")
    visitor.until_text("`fleet pause --off` lifts it", ".banner")
    assert visitor.run("document.querySelectorAll('.button').length") == 0
    paused = shown.fleet.client.ask(m.AskStatus(id=new_id()))["paused"]
    assert paused["who"] == "operator:local"
    shown.ask(page, "Give jobs out again", ".banner button")
    shown.confirm(page)
    gone = "![...document.querySelectorAll('.banner')].some(one => one.checkVisibility())"
    page.until(gone, "the banner to go")
    visitor.until(gone, "the banner to go")
    assert shown.fleet.client.ask(m.AskStatus(id=new_id()))["paused"] is None


def test_a_logout_in_one_window_ends_the_other_windows_rights(shown: Shown) -> None:
    job = shown.job("running")
    page = shown.browser.page()
    shown.log_in(page, f"/job/{job['job_id']}")
    shown.ask(page, "Cancel")
    page.until_text("its work is thrown away", ".dialog")
    page.run("void fetch('/logout', {method: 'POST'})")
    shown.confirm(page)
    page.until_text("log in first", ".q-notification")
    assert shown.fleet.show(job["job_id"])["state"] == "running"


def test_read_only_is_read_only(shown: Shown) -> None:
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
