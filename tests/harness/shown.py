"""A fleet's web page as a process, and somebody at a browser who presses its buttons."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from broker.protocol import messages as m
from broker.protocol.topics import Topics
from coordinator.client.program_push import Pushed, push
from coordinator.ui.progress import transfer
from tests.harness.browser import Browser, Page, find_chromium
from tests.harness.fleet import Fleet, Program
from tests.harness.mirrored import told_row
from tests.harness.swarm import Swarm
from tests.harness.waiting import wait_until

PROGRAM: Final = """
name = "{name}"
command = ["python", "train.py"]
description = "finds shapes in pictures"
[parameters]
lr = {{ type = "number", minimum = 0.0, maximum = 1.0, description = "the step size" }}
epochs = {{ type = "integer", minimum = 1, default = 5 }}
[inputs]
weights = "a network of the same layers"
"""
PASSWORD = "a password for the tests"  # noqa: S105 - of a fleet that lives a minute

# The marks of every test that opens the web page.
WITH_BROWSER: Final = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("nicegui") is None,
        reason="the extra of the web page is not installed",
    ),
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium on this machine"),
    pytest.mark.usefixtures("windows"),
]

# A question grows from nothing when it opens: whether it has.
GROWN: Final = """(() => {
  const asked = document.querySelector(".q-dialog");
  const moving = asked.getAnimations({ subtree: true }).length;
  return !moving && asked.querySelector("#confirm").getBoundingClientRect().width > 0;
})()"""


class Somebody(NamedTuple):
    client: Any
    topics: Topics


class Shown:
    """A fleet, its dashboard, and a browser."""

    def __init__(
        self, fleet: Fleet, browser: Browser, *options: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.fleet, self.browser = fleet, browser
        password = fleet.tmp / "password"
        password.write_text(PASSWORD, "utf-8")
        password.chmod(0o600)
        self.program = Program(
            "coordinator.cli",
            ["dashboard", "--listen", "127.0.0.1:0", "--password-file", str(password), *options],
            {**fleet.environment, "PYTHONUNBUFFERED": "1", **(environment or {})},
            fleet.tmp / "dashboard.log",
        )
        self.program.start(wait=False)
        assert self.program.process.stdout is not None
        line = self.program.process.stdout.readline().decode()
        found = re.search(r"https?://\S+", line)
        assert found, f"{line!r}\n{self.program.said()}"
        self.url = found[0].rstrip("/")

    def page(self, path: str = "/", **options: Any) -> Page:
        """A new browser window at a page."""
        page = self.browser.page(**options)
        page.open(self.url + path)
        return page

    def log_in(self, page: Page, path: str = "/") -> None:
        """Give the password, as a person would."""
        page.open(f"{self.url}/login?next={path}")
        page.until("document.activeElement?.id === 'password'")
        page.type(PASSWORD)
        page.run("window.stale = true; 1")
        page.click("button", "Log in")
        page.until("!window.stale && document.readyState === 'complete'")
        page.until_text("Log out")

    def ask(self, page: Page, text: str, inside: str = "button") -> None:
        """Press a button that asks; wait until the question stands, whole, with the focus on no."""
        page.click(inside, text)
        page.until(GROWN, "the question in its full size")
        page.until("document.activeElement?.innerText === 'No, leave it'", "the focus on no")

    def confirm(self, page: Page) -> None:
        """Press the button of the question that does it."""
        page.click("#confirm")

    def listen(self, connect: Callable[..., Any]) -> Callable[[str], dict[str, Any]]:
        """Hear what is asked of the coordinator; `connect` is the fixture `client`.

        What is returned waits for the next request of a type, and returns that.
        """
        ear = connect(int(self.fleet.broker_url.rpartition(":")[2]), f"ear-{self.fleet.root}")
        ear.subscribe(f"{self.fleet.root}/operator/#")

        def heard(kind: str) -> dict[str, Any]:
            while True:
                asked: dict[str, Any] = json.loads(ear.next()[1])
                if asked.get("type") == kind:
                    return asked

        return heard

    @contextmanager
    def row(self, connect: Callable[..., Any], **more: Any) -> Iterator[Somebody]:
        """Publish the row of a job that the ledger does not have, until the end."""
        topics = Topics(self.fleet.root)
        row = told_row(**{
            "job_id": "e" * 64, "state": "completed", "host": "gaming-pc-1",
            "created_at": "2026-05-28T20:00:00Z", "started_at": "2026-05-28T20:00:00Z",
            "finished_at": "2026-05-28T20:01:00Z",
        } | more)  # fmt: skip
        # The dashboard does not keep a row that it hears before the coordinator's list.
        self.page("/jobs?text=big-one").until_text("big-one", ".ag-cell")
        port = int(self.fleet.broker_url.rpartition(":")[2])
        client = connect(port, f"somebody-{self.fleet.root}")
        client.publish(topics.job(row.job_id), m.encode(row), retain=True)
        try:
            yield Somebody(client, topics)
        finally:
            client.publish(topics.job(row.job_id), b"", retain=True)

    def pushes(self, name: str) -> Pushed:
        """Somebody pushes a program that ends at once."""
        folder = self.fleet.tmp / name
        folder.mkdir(exist_ok=True)
        (folder / "program.toml").write_text(PROGRAM.format(name=name), "utf-8")
        (folder / "train.py").write_text("", "utf-8")
        return push(self.fleet.another_client, folder, transfer)

    def job(self, state: str) -> dict[str, Any]:
        """A job in a state, waited for."""
        return wait_until(lambda: self.fleet.client.list_jobs([state]), f"no job is {state}")[0]


@contextmanager
def slow_fleet(
    tmp: Path, broker_url: str, browser: Browser, *, hosts: int, jobs: int,
    names: Sequence[str] = (),
) -> Iterator[Shown]:  # fmt: skip
    """Simulated hosts that train `gbt-00` and so on, slowly; none of them can take `big-one`."""
    fleet = Fleet(tmp, broker_url, tmp)
    fleet.plan(
        *(f'model = "gbt"\nmode = "oracle"\nname = "gbt-{n:02}"\nseed = {n}' for n in range(jobs)),
        'model = "mlp"\nmode = "realistic"\nname = "big-one"\nrequire_cuda = true\n'
        "min_vram_gib = 900",
        top='name = "forty trees"\n[hosts.lab-ws-1]\ndescription = "beside the window"',
    )
    fleet.coordinator()
    over = threading.Event()
    swarm = Swarm(
        broker_url, fleet.root, hosts, rng=random.Random(1), speed=0.05, beat_s=1.0,
        fail_rate=0.0, names=names,
    )  # fmt: skip
    thread = threading.Thread(target=swarm.run, args=(over.is_set,), daemon=True)
    thread.start()
    made = Shown(fleet, browser)
    fleet.programs.append(made.program)
    try:
        yield made
    finally:
        over.set()
        thread.join(20)
        fleet.close()
