"""What the web page draws, curves and timelines, in a headless Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from broker.protocol import messages as m
from broker.protocol.topics import Topics
from tests.harness.shown import WITH_BROWSER, Shown

pytestmark = WITH_BROWSER
FLEET = {"hosts": 3, "jobs": 20}


# What the tooltips of the timeline's bars say, each in lines.
TIPS = """(() => {
  const chart = getElement(Number(document.querySelector('[data-bars]').id.slice(1))).chart;
  const { series, tooltip } = chart.getOption();
  return series[0].data.map(value =>
    [...tooltip[0].formatter({ value }).children].map(line => line.textContent));
})()"""


def test_the_timeline_keeps_every_attempt_and_grows(shown: Shown) -> None:
    page = shown.page("/timeline")
    bars = "Number(document.querySelector('[data-bars]')?.dataset.bars)"
    before = page.until(f"{bars} > 2 && {bars}")
    job = shown.job("running")
    shown.fleet.requeue(job["job_id"])  # it is stopped, and begins again where there is room
    stopped = [job["name"], f"attempt {job['attempt']}, cancelled on {job['host']}"]
    told = f"{TIPS}.find(tip => tip[0] === '{job['name']}' && tip[1] === '{stopped[1]}')"
    tip = page.until(told, "the attempt that was stopped")
    assert re.search(r", \d+ s$", tip[2]), tip
    page.until(f"{bars} > {before}", "a bar more")
    other = shown.page("/timeline")
    other.until(f"document.querySelector('[data-bars]') && {told}", "the same in another browser")
    for one in (page, other):
        assert "did not tell" not in one.text()
        assert one.complaints == []


def test_a_wait_for_a_report_is_neither_told_nor_drawn_as_training(
    shown: Shown, client: Callable[..., Any]
) -> None:
    with shown.row(client, name="away-one", finished_at="2026-05-29T20:00:00Z", ran_s=61.0):
        page = shown.page("/timeline")
        chart = "getElement(document.querySelector('[data-bars]').id.slice(1)).chart"
        bars = f"{chart}.getOption().series[0].data"
        began = "Date.UTC(2026, 4, 28, 20)"
        page.until("Number(document.querySelector('[data-bars]')?.dataset.bars) > 0", "the bars")
        page.until(f"{bars}.some(([a, b]) => a === {began} && b === a + 61000)", "its bar")
        cell = f"{{started: {began}, finished: Date.now(), ran: 61000, state: 'completed'}}"
        assert page.run(f"fleet.cells.took({{data: {cell}}}).innerText") == "61 s"


def test_a_long_job_beside_short_ones_is_told_whole(
    shown: Shown, client: Callable[..., Any]
) -> None:
    with shown.row(client, name="long-one", state="running", finished_at=None) as somebody:
        page = shown.page()
        page.until_text("long-one", ".ag-cell")
        topic = somebody.topics.progress("gaming-pc-1", "e" * 64)
        for epoch in (1, 12455):
            said = m.Progress(attempt=1, epoch=epoch, epochs=30_000, val_loss=1 / epoch)
            somebody.client.publish(topic, m.encode(said))
        cells = "[...document.querySelectorAll('[col-id=epoch]')]"
        cell = f"{cells}.find(one => one.innerText === '12455/30000')"
        page.until(cell, "the epoch")
        whole = "one => one.scrollWidth <= one.clientWidth || !one.clientWidth"
        parts = f"[{cell}, ...{cell}.querySelectorAll('*')]"
        assert page.run(f"{parts}.every({whole})"), page.run(f"{cell}.outerHTML")
        assert "M" not in page.run("fleet.at(Date.UTC(2026, 10, 22, 18))").upper()
        page.open(f"{shown.url}/curves")
        page.until("document.querySelector('[data-across=share]')", "curves over shares")
        page.run("const one = document.getElementById('curve-across'); one.value = 'epoch';"
                 "one.dispatchEvent(new Event('change'))")  # fmt: skip
        page.until("document.querySelector('[data-across=epoch]')", "curves over epochs")


def test_the_use_of_a_host_that_was_heard_once_is_a_point_of_this_minute(
    shown: Shown, client: Callable[..., Any]
) -> None:
    topics = Topics(shown.fleet.root)
    attic = client(int(shown.fleet.broker_url.rpartition(":")[2]), f"attic-{shown.fleet.root}")
    status = m.Status(state="online", session="s", instance="i", boot_id="b")
    attic.publish(topics.status("attic"), m.encode(status), retain=True)
    try:
        page = shown.page("/")
        page.until_text("attic", ".ag-cell")
        page.open(f"{shown.url}/host/attic")
        page.until("document.querySelector('.chart[data-none]')", "that nothing was heard")
        beat = m.Heartbeat(session="s", instance="i", seq=1, ram_available_bytes=1, cpu_percent=7.0)
        attic.publish(topics.heartbeat("attic"), m.encode(beat))
        page.until("!document.querySelector('.chart[data-none]')", "its point")
        chart = "getElement(document.querySelector('.chart').id.slice(1)).chart"
        axis = f"{chart}.getModel().getComponent('xAxis').axis.scale.getExtent()"
        shown_min = page.until(f"(([from, to]) => (to - from) / 60e3)({axis})")
        assert 1 <= shown_min <= 2
        assert page.run(f"{chart}.getOption().series.every(one => one.showSymbol)")
    finally:
        attic.publish(topics.status("attic"), b"", retain=True)
