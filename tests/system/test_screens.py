"""The words of every screen of the command line, on one small fleet.

Other tests look at codes and figures. In `screens/*.txt` what varies is masked; a file that is
missing is written, and the test fails.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming, Outgoing
from broker.protocol.topics import Topics
from tests.harness.coordinator import Host, spec
from tests.harness.peer import Peer
from tests.harness.shell import DATA, Coordinator, ledgers_closed, reports
from tests.harness.verbs import verb

__all__ = ["ledgers_closed"]
FOLDER: Final = Path(__file__).with_name("screens")
SCREENS: Final = {
    "status": "status",
    "list": "list",
    "workers": "workers",
    "show-completed": "show done",
    "why-running": "why runs",
    "why-pending": "why big",
    "why-failed": "why broken",
    "plan": "plan",
    "stats": "stats",
    "events": "events",
    "drain": "drain pi",
    "cancel": "cancel runs --yes",
    "unknown-job": "show nothing",
}
MASKS: Final = (
    (r"\b(\d{4}-)?\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?(\.\d+Z)?)?|\b\d\d:\d\d(:\d\d)?\b", "<time>"),
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) <time>", "<time>"),  # shortly before midnight
    (r"\b[0-9a-f]{12,64}\b", "<id>"),
    (r"\b\d+(\.\d+)? (s|min|h|d)\b( \d+ (s|min|h)\b)?", "<span>"),
    (r"127\.0\.0\.1:\d+", "<address>"),
    (r" {2,}", "  "),
    (r"(  |last seen )(now|<span>)( ago)?\b", r"\1<ago>"),
    ("─+", "───"),
)


class Today(Coordinator):
    """One whose clock is right, as those of the verbs are."""

    skew_s = time.time() - 1.8e9


def fleet(folder: Path) -> Coordinator:
    """One job of each state, and hosts that are online, drained, and gone."""
    # The peer's thread asks the ledger that this one has opened, while this one waits.
    connect = functools.partial(sqlite3.connect, check_same_thread=False)
    with mock.patch.object(sqlite3, "connect", connect):
        made = Today(
            folder, spec("done", 9), spec("broken", 8, retries=0), spec("runs", 7),
            spec("big", min_ram_gib=900.0), spec("waits", require_cuda=True),
        )  # fmt: skip
    pi, attic, gone = (Host(made, name) for name in ("pi", "attic", "gone"))  # type: ignore[arg-type]
    pi.joins()
    reports(pi, pi.runs("done"), DATA, metrics={"auroc": 0.91, "epochs": 5, "ap": None}, ran_s=40.0)
    pi.reports(m.Failed, pi.runs("broken"), error="no column 'x'", exit_code=2, transient=False)
    job = pi.runs("runs")
    progress = m.Progress(attempt=1, epoch=3, epochs=10, train_loss=0.5, val_loss=0.6, eta_s=70.0)
    pi.says(made.topics.progress("pi", job.job_id), progress)
    pi.beats((job.job_id, 1, "running"))
    attic.joins(gpus=(m.Gpu(index=0, name="RTX A5000", vram_total_bytes=24 * 2**30),))
    made.asks(m.AskDrain(id="d", host="attic"))
    gone.joins(data_id=None)
    gone.status("offline", "goodbye")
    made.files()
    return made


@contextlib.contextmanager
def served(coordinator: Coordinator, url: str, root: str) -> Iterator[dict[str, str]]:
    """Answer operators at a broker with what a coordinator says; their environment."""
    topics = Topics(root)

    def answer(request: Any, client: str) -> list[Outgoing]:
        coordinator.answers()
        topic = coordinator.topics.operator_request(client)
        coordinator.handle(Incoming(topic, m.encode(request)))
        coordinator.files()
        return [
            Outgoing(topics.operator_response(client), m.encode(one))
            for one in coordinator.answers()
        ]

    peer = Peer(url, topics, answer)
    peer.start()
    try:
        yield {"FLEET_BROKER": url, "FLEET_TOPIC_ROOT": root, "COLUMNS": "160"}
    finally:
        peer.stop()


def screens(folder: Path, url: str, root: str) -> Iterator[tuple[str, str]]:
    """Yield each screen's name and words; those on standard error stand after the others."""
    with served(fleet(folder), url, root) as environment:
        for name, words in SCREENS.items():
            done = verb(*words.split(), environment=environment)
            yield name, masked(f"$ fleet {words}\n{done.stdout}{done.stderr}")


def masked(text: str) -> str:
    """Replace what is another at each run."""
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.mark.words
@pytest.mark.smoke
def test_every_screen_has_its_words(tmp_path: Path, system_broker: str, topic_root: str) -> None:
    """A change of words is seen here, and nowhere else."""
    told = dict(screens(tmp_path, system_broker, topic_root))
    for name, text in told.items():
        if not (path := FOLDER / f"{name}.txt").exists():
            path.write_text(text, "utf-8")
            pytest.fail(f"{path.name} was missing, and is written now")
        assert text == path.read_text("utf-8"), name
