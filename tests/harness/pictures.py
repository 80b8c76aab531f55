"""The pictures of the web page and of `fleet top` in docs/images, of a busy fleet:

    python -m tests.harness.pictures [--out docs/images] [--all DIR]

A broker, a coordinator, eighteen simulated hosts and one real agent, which trains one real model so
that there is a report to show. `--all` saves every page in both widths, light and dark, to look at.
Needs Chromium, and Pillow to make the files small.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import threading
import time
from pathlib import Path

from PIL import Image

from broker.system.settings import BrokerSettings
from coordinator.client.watcher import Watcher
from coordinator.top.app import Top
from tests.harness.brokers import embedded
from tests.harness.browser import Browser, Page
from tests.harness.fleet import Fleet, Program
from tests.harness.swarm import Swarm
from tests.harness.swarm_hosts import manifest

REAL = """
[[jobs]]
name = "gbt-oracle"
model = "gbt"
mode = "oracle"
priority = 99
allowed_hosts = ["desk"]
hyper.epochs = 60
n_resamples = 200
"""
READY = {
    "overview": "document.querySelectorAll('.ag-row .bar').length > 5",
    "jobs": "document.querySelectorAll('.ag-row .state').length > 5",
    "curves": "Number(document.querySelector('[data-series]')?.dataset.series) > 5",
    "timeline": "Number(document.querySelector('[data-bars]')?.dataset.bars) > 10",
    "job": "document.querySelector('.log')?.innerText.includes('epoch')",
    "pending": "document.querySelector('td')",
    "report": "document.querySelector('iframe.report')",
    "host": "document.querySelector('.nicegui-echart path')",
    "login": "document.querySelector('#password')",
}
BOTTOM = "Math.ceil(document.getElementById('main').getBoundingClientRect().bottom + scrollY)"
MAX_BYTES = 190_000
WIDTHS = ((1280, 800), (390, 844))


def small(path: Path) -> None:
    """Make a picture's file small, and where that is not enough give it fewer colours."""
    with Image.open(path) as picture:
        plain = picture.convert("RGB")
    plain.save(path, optimize=True)
    if path.stat().st_size > MAX_BYTES:
        plain.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def save(page: Page, url: str, name: str, path: Path, *, whole: bool) -> None:
    """Open a page and save what it looks like."""
    page.open(url)
    page.until(READY[name], f"{name} to be drawn")
    width, height = page.run("[window.innerWidth, window.innerHeight]")
    if name == "report":
        # A frame beyond the window is not in a picture of the whole: the window grows instead.
        page.resize(width, 2800)
    time.sleep(2.5)  # what is drawn when it is all there: charts, the frame
    if name == "report":
        page.resize(width, page.run(BOTTOM))
        time.sleep(0.5)
    page.picture(path, whole=whole and name != "report")
    page.resize(width, height)
    small(path)
    print(path, f"{path.stat().st_size / 1024:.0f} kB", flush=True)


def save_top(fleet: Fleet, url: str, browser: Browser, path: Path) -> None:
    """Save what `fleet top` looks like in a window of 130 columns."""

    async def drawn() -> str:
        async with Top(watcher).run_test(size=(130, 38)) as pilot:
            await pilot.pause(3.0)
            return pilot.app.export_screenshot(title="fleet top")

    watcher = Watcher(BrokerSettings(url=url, topic_root=fleet.root))
    watcher.start()
    try:
        svg = asyncio.run(drawn())
    finally:
        watcher.stop()
    svg = svg.replace(fleet.root, "fleet" + "&#160;" * (len(fleet.root) - len("fleet")))
    page = browser.page(1629, 1005)
    page.run(f"document.body.style.margin = 0; document.body.innerHTML = {json.dumps(svg)}; 1")
    time.sleep(1.0)
    page.picture(path)
    small(path)


def paths(fleet: Fleet) -> dict[str, str]:
    """The address of each page; the jobs are those that there are."""
    running = fleet.client.list_jobs(["running"])
    slow = ("attic", "media", "laptop")  # hosts that are still at it when their turn comes
    long = next((row for row in reversed(running) if row["host"].startswith(slow)), running[0])
    pending = next(
        row for row in fleet.client.list_jobs(["pending"]) if "transformer" in row["name"]
    )
    done = next(row for row in fleet.client.list_jobs(["completed"]) if row["host"] == "desk")
    return {
        "overview": "/", "jobs": "/jobs", "curves": "/curves", "timeline": "/timeline",
        "job": f"/job/{long['job_id']}", "pending": f"/job/{pending['job_id']}",
        "report": f"/job/{done['job_id']}", "host": "/host/lab-ws-1", "login": "/login",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--all", type=Path, help="every page, width and colour, to look at")
    parser.add_argument("--data", type=Path, required=True, help="folder of prepared data")
    parser.add_argument("--wait", type=float, default=90.0, help="seconds of training before")
    given = parser.parse_args()
    broker = embedded()
    broker.start()
    over = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), broker.url, given.data)
        fleet.manifest.write_text(manifest(120) + REAL, "utf-8")
        browser = Browser()
        try:
            fleet.coordinator()
            swarm = Swarm(broker.url, fleet.root, 18, rng=random.Random(4), speed=2.0,
                          fail_rate=0.08, asleep=1, quiet=1)  # fmt: skip
            threading.Thread(target=swarm.run, args=(over.is_set,), daemon=True).start()
            fleet.agent("desk")
            dashboard = Program(
                "coordinator.cli", ["dashboard", "--listen", "127.0.0.1:0"],
                fleet.environment | {"PYTHONUNBUFFERED": "1"}, Path(folder) / "dashboard.log",
            )  # fmt: skip
            fleet.programs.append(dashboard)
            dashboard.start(wait=False)
            url = dashboard.process.stdout.readline().decode().split()[-1].rstrip("/")  # type: ignore[union-attr]
            fleet.until("gbt-oracle", "completed")
            time.sleep(given.wait)
            _save_all(browser, url, paths(fleet), given.out, given.all)
            save_top(fleet, broker.url, browser, (given.all or given.out) / "top.png")
        finally:
            over.set()
            browser.close()
            fleet.close()
            broker.end()


def _save_all(
    browser: Browser, url: str, where: dict[str, str], out: Path, everything: Path | None
) -> None:
    if everything is not None:
        everything.mkdir(parents=True, exist_ok=True)
        for width, height in WIDTHS:
            for dark in (False, True):
                page = browser.page(width, height, dark=dark)
                for name, path in where.items():
                    colour = "dark" if dark else "light"
                    target = everything / f"{name}-{width}-{colour}.png"
                    save(page, url + path, name, target, whole=width < 600)
        return
    out.mkdir(parents=True, exist_ok=True)
    page = browser.page(1280, 800)
    for name in ("job", "overview", "jobs", "curves", "timeline", "pending", "host", "report"):
        save(page, url + where[name], name, out / f"dashboard-{name}.png", whole=False)
    dark = browser.page(1280, 800, dark=True)
    save(dark, url + "/", "overview", out / "dashboard-dark.png", whole=False)
    phone = browser.page(390, 844)
    save(phone, url + "/", "overview", out / "dashboard-phone.png", whole=False)


if __name__ == "__main__":
    main()
