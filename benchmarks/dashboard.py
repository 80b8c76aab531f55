"""The web page with a large fleet: how soon it is painted, and how soon it shows a message.

    python -m benchmarks.dashboard [--hosts 100] [--jobs 1000] [--opens 5] [--messages 50]

Everything is on this machine: the embedded broker, `fleet dashboard`, and a headless Chromium that
is driven by its own protocol. Hosts and jobs are messages of one client: rows of jobs, status and
capability retained, as a broker has them; and while it is measured, a heartbeat of every host and
a progress of every running job each ten seconds, as a fleet sends them.

*First paint* is the browser's own `first-contentful-paint`, in a window with nothing in its cache,
counted from the click; *table* is when the table of hosts, or of jobs, has its rows. An *update*
is the time from before a heartbeat, or a job's new row, is handed to the MQTT client until the
animation frame in which its cell in the table has the new text. *CPU* is what all of it together
has computed until the table was there, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

from benchmarks.common import cpu_s, percentile
from broker.client.link import Link, LinkSettings
from broker.client.mailbox import Mailbox, feed
from broker.protocol import messages as m
from broker.protocol.link_events import Connected, Incoming, LinkEvent, Outgoing
from broker.protocol.topics import Topics
from broker.system.address import parse_addresses
from tests.harness.brokers import embedded
from tests.harness.browser import Browser, Page
from tests.harness.fleet import Program
from tests.harness.swarm_hosts import Host, make_hosts

GIB = 1024**3
BEAT_S = 10.0
STATES = ("completed", "completed", "pending", "failed", "pending", "cancelled")
WATCH = """window.watch = (row, column, text) => new Promise(done => {
  const look = () => {
    const cell = document.querySelector(`.ag-row[row-id="${row}"] [col-id="${column}"]`);
    if (cell && cell.textContent.includes(text)) done(Date.now());
    else requestAnimationFrame(look);
  };
  look();
}); 1"""


class Voice:
    """One client that speaks for all hosts, and for the coordinator."""

    def __init__(self, url: str, hosts: int, jobs: int) -> None:
        """Connect, and say what a broker has retained of such a fleet."""
        self.topics = Topics("fleet")
        mailbox: Mailbox[LinkEvent] = Mailbox()
        asked = [(self.topics.operator_request("+/+"), 1)]
        settings = LinkSettings(parse_addresses(url), "voice", asked)
        put = feed(mailbox, self.topics)

        def hear(*events: LinkEvent) -> None:
            for event in events:
                if isinstance(event, Incoming):
                    self._refuse(event)
                else:
                    put(event)

        self._link = Link(settings, hear)
        self._link.start()
        while not any(isinstance(event, Connected) for event in mailbox.take(30.0)):
            pass
        self.hosts = make_hosts(hosts)
        self.rows = [self._row(number) for number in range(jobs)]
        status = m.Status(state="online", session="c", instance="c", boot_id="c")
        self.say(self.topics.coordinator_status(), status, retain=True)
        for host in self.hosts:
            self._born(host)
        for row in self.rows:
            self.say(self.topics.job(row.job_id), row, retain=True)

    def stop(self) -> None:
        """Disconnect."""
        self._link.stop()

    def say(self, topic: str, message: m.Wire, *, retain: bool = False) -> None:
        """Publish one message; wait where the client's queue is full."""
        while not self._link.publish(Outgoing(topic, m.encode(message), 1, retain=retain)):
            time.sleep(0.01)

    def _refuse(self, event: Incoming) -> None:
        """Answer, so that the page does not take the coordinator for silent."""
        request = m.decode(m.OPERATOR_REQUEST, event.payload)
        topic = event.topic.removesuffix("request") + "response"
        response = m.OperatorResponse(id=request.id, ok=False, message="a benchmark knows no more")
        self._link.publish(Outgoing(topic, m.encode(response), 1))

    def _row(self, number: int) -> m.JobRow:
        running = number < len(self.hosts)
        state = "running" if running else STATES[number % len(STATES)]
        host = self.hosts[number % len(self.hosts)].name
        ended = "2026-05-28T20:36:57Z" if state in {"completed", "failed", "cancelled"} else None
        return m.JobRow(
            job_id=f"{number:064x}", name=f"gbt-oracle-{number:04}", model="gbt", mode="oracle",
            state=state, priority=number % 5, attempt=1, host=None if state == "pending" else host,
            error="it ran out of memory" if state == "failed" else None,
            artifact_id=f"{number:064x}" if state == "completed" else None,
            metrics={"auroc": 0.9, "auroc_ci": [0.85, 0.95]} if state == "completed" else None,
            created_at="2026-05-28T20:16:57Z",
            started_at=None if state == "pending" else "2026-05-28T20:26:57Z", finished_at=ended,
        )  # fmt: skip

    def _born(self, host: Host) -> None:
        status = m.Status(state="online", session="s", instance="i", boot_id="b")
        self.say(self.topics.status(host.name), status, retain=True)
        self.say(self.topics.capability(host.name), m.Capability(
            session="s", instance="i", description=host.description, os="Linux 6.6",
            arch="x86_64", python="3.12.7", physical_cores=host.cores,
            ram_total_bytes=int(host.ram_gib * GIB), ram_available_bytes=GIB, gpus=host.gpus(),
        ), retain=True)  # fmt: skip
        self.beat(self.hosts.index(host), 10)

    def beat(self, number: int, cpu_percent: int) -> None:
        """Publish a heartbeat of one host, which is at its job."""
        host = self.hosts[number]
        host.seq += 1
        held = m.HeldJob(
            job_id=self.rows[number].job_id if hasattr(self, "rows") else "0" * 64,
            attempt=1, phase="running", progress=0.5,
        )  # fmt: skip
        self.say(self.topics.heartbeat(host.name), m.Heartbeat(
            session="s", instance="i", seq=host.seq, ram_available_bytes=GIB,
            cpu_percent=cpu_percent, gpus=host.gpus(), jobs=(held,),
        ))  # fmt: skip

    def progress(self, number: int, epoch: int) -> None:
        """Publish how far a host's job is."""
        news = m.Progress(attempt=1, epoch=epoch, epochs=500, val_loss=1 / (epoch + 1), eta_s=60)
        topic = self.topics.progress(self.hosts[number].name, self.rows[number].job_id)
        self.say(topic, news)

    def go_on(self, over: Event) -> None:
        """Be a fleet that is at work, evenly over the time, until it is over."""
        turn = 0
        while not over.wait(BEAT_S / len(self.hosts)):
            number = turn % len(self.hosts)
            if number:  # the first host is the one that is measured
                self.beat(number, 20 + turn % 60)
                self.progress(number, turn // len(self.hosts))
            turn += 1


def open_cold(browser: Browser, url: str, ready: str) -> tuple[float, float, float]:
    """Open a page in a new window; return ms to its first paint, to its table's rows, of CPU."""
    page = browser.page(1600, 1000)
    before_s = cpu_s(os.getpid())
    page.open(url)
    page.until(ready)
    cpu_ms = 1000 * (cpu_s(os.getpid()) - before_s)
    shown_ms = page.run("performance.now()")
    paints = page.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
    return float(paints), float(shown_ms), cpu_ms


def updates(page: Page, voice: Voice, count: int, *, jobs: bool) -> list[float]:
    """Return ms from message to cell, so many times."""
    found = []
    page.run(WATCH)
    for turn in range(count):
        if jobs:
            row = voice.rows[0]
            state = ("failed", "running")[turn % 2]
            changed = row.model_copy(
                update={"state": state, "error": "x" if state == "failed" else None}
            )
            page.run(f"window.seen = watch('{row.job_id}', 'state-state', '{state}'); 1")
            begun_s = time.time()
            voice.say(voice.topics.job(row.job_id), changed, retain=True)
        else:
            cpu = 30 + turn % 2
            page.run(f"window.seen = watch('{voice.hosts[0].name}', 'cpu-percent', '{cpu} %'); 1")
            begun_s = time.time()
            voice.beat(0, cpu)
        found.append(page.run("window.seen") - begun_s * 1000)
        time.sleep(random.uniform(0.05, 0.4))
    return found


def words(name: str, values: list[float]) -> str:
    """Return a line with median, 95th percentile and maximum."""
    middle, p95, most = (percentile(values, percent) for percent in (50, 95, 100))
    return f"{name:<26} p50 {middle:6.0f} ms   p95 {p95:6.0f} ms   max {most:6.0f} ms"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--opens", type=int, default=5)
    parser.add_argument("--messages", type=int, default=50)
    given = parser.parse_args()
    broker = embedded()
    broker.start()
    voice = Voice(broker.url, given.hosts, given.jobs)
    over = Event()
    thread = Thread(target=voice.go_on, args=(over,), daemon=True)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(
            "coordinator.cli", ["dashboard", "--listen", "127.0.0.1:0", "--read-only"],
            {**os.environ, "FLEET_BROKER": broker.url, "PYTHONUNBUFFERED": "1"},
            Path(folder) / "log",
        )  # fmt: skip
        program.start(wait=False)
        url = program.process.stdout.readline().decode().split()[-1]  # type: ignore[union-attr]
        browser = Browser()
        try:
            thread.start()
            _measure(browser, url, voice, given.opens, given.messages)
        finally:
            over.set()
            thread.join()
            voice.stop()
            browser.close()
            program.stop()
            broker.end()


def _measure(browser: Browser, url: str, voice: Voice, opens: int, messages: int) -> None:
    page = browser.page(1600, 1000)
    page.open(f"{url}jobs")
    page.until(f"document.body.innerText.includes('{len(voice.rows)} jobs')", "all jobs")
    browser.close_pages()
    print(f"{len(voice.hosts)} hosts, {len(voice.rows)} jobs, load {os.getloadavg()[0]:.1f}")
    for name, path, ready in (
        ("overview", "", "document.querySelectorAll('[col-id=cpu-percent] .bar').length > 5"),
        ("jobs", "jobs", "document.querySelectorAll('.ag-row .state').length > 10"),
    ):
        times = []
        for _ in range(opens):
            times.append(open_cold(browser, url + path, ready))
            browser.close_pages()
        print(words(f"{name}: first paint", [paint for paint, _, _ in times]))
        print(words(f"{name}: table", [shown for _, shown, _ in times]))
        print(words(f"{name}: CPU", [cpu for _, _, cpu in times]), flush=True)
    page = browser.page(1600, 1000)
    page.open(f"{url}jobs")
    first = f'.ag-row[row-id="{voice.rows[0].job_id}"]'
    page.until(f"document.querySelector('{first}')")
    print(words("jobs: update", updates(page, voice, messages, jobs=True)))
    page.open(url)
    page.until(f"document.querySelector('.ag-row[row-id=\"{voice.hosts[0].name}\"]')")
    print(words("overview: update", updates(page, voice, messages, jobs=False)))


if __name__ == "__main__":
    sys.exit(main())
