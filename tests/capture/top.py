"""Makes docs/images/top.png: `fleet top` on a busy fleet of simulated hosts.

    python -m tests.capture.top [--hosts 20] [--jobs 300] [--wait 90] [-o docs/images/top.png]

runs a broker, a coordinator and a swarm, waits until there is something to see, and has chromium
draw what Textual shows. Without chromium the SVG is left beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from broker.system.settings import BrokerSettings
from coordinator.client.watcher import Watcher
from coordinator.top.app import Top
from tests.harness.brokers import embedded
from tests.harness.fleet import Program
from tests.harness.swarm_hosts import manifest

SIZE = (132, 38)


async def draw(url: str, wait_s: float) -> dict[str, str]:
    """Return the screen as SVG, dark and light, when the fleet has run for a while."""
    watcher = Watcher(BrokerSettings(url=url))
    watcher.start()
    try:
        app = Top(watcher)
        async with app.run_test(size=SIZE) as pilot:
            end_s = time.monotonic() + wait_s
            while time.monotonic() < end_s:
                await pilot.pause(0.5)
            dark = app.export_screenshot()
            await pilot.press("t")
            await pilot.pause(1.0)
            return {"dark": dark, "light": app.export_screenshot()}
    finally:
        await asyncio.to_thread(watcher.stop)


def photograph(svg: str, target: Path) -> None:
    """Write an SVG as PNG."""
    # Fonts from the network would make the picture depend on it.
    svg = re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    source = target.with_suffix(".svg")
    source.write_text(svg, "utf-8")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print(f"no chromium here; {source} is the picture")
        return
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None
    width, height = (round(float(one)) for one in found.groups())
    subprocess.run(
        [program, "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu",
         f"--window-size={width},{height}", f"--screenshot={target}", source.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    source.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--speed", type=float, default=3.0)
    parser.add_argument("--wait", type=float, default=90.0, help="seconds")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/images/top.png"))
    parser.add_argument("--light", type=Path, help="the same in light, there")
    given = parser.parse_args()
    broker = embedded()
    broker.start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = folder / "plan.toml"
        plan.write_text(manifest(given.jobs), "utf-8")
        coordinator = Program(
            "coordinator.service",
            ["--broker", broker.url, "--state", str(folder / "state"), "--manifest", str(plan)],
            {}, folder / "coordinator.log",
        )  # fmt: skip
        coordinator.start()
        swarm = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.swarm", "--broker", broker.url, "--hosts",
             str(given.hosts), "--speed", str(given.speed), "--asleep", "1", "--quiet", "1",
             "--fail-rate", "0.1"],
        )  # fmt: skip
        try:
            pictures = asyncio.run(draw(broker.url, given.wait))
        finally:
            swarm.terminate()
            swarm.wait(30)
            coordinator.stop()
            broker.end()
        photograph(pictures["dark"], given.out.resolve())
        if given.light is not None:
            photograph(pictures["light"], given.light.resolve())


if __name__ == "__main__":
    main()
