"""Short jobs while every connection is struck and programs are killed: each trains in one place."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tests.chaos import journal

from .campaign import Campaign, Report, Strike

TRAINER: Final = Path(__file__).with_name("trainer.py")
AHEAD: Final = 10  # strikes that may come before the first job is over
LEASE_S: Final = 3.0  # a job takes 1 to 5 s, one in ten 8 to 12: leases run out while it does
BEYOND_KEEPALIVE_S: Final = (32.0, 42.0)  # a keepalive of 20 s, and half of that again


@dataclass
class KillReport(Report):
    """What came of it, with what the trainers themselves have noted."""

    trainers: int = 0
    resumed: int = 0
    at_once: list[str] = field(default_factory=list)
    started_twice: list[str] = field(default_factory=list)

    def is_good(self) -> bool:
        """Whether besides no job was trained twice at once, and every strike was dealt."""
        dealt = sum(self.strikes.values()) >= self.wanted
        return super().is_good() and dealt and not (self.at_once or self.started_twice)

    def lines(self) -> list[str]:
        return [
            *super().lines(),
            f"trainers   {self.trainers} started, {self.resumed} of them from a checkpoint",
            f"at once    {len(self.at_once)} {self.at_once[:5] or ''}",
            f"repeated   {len(self.started_twice)} {self.started_twice[:5] or ''}",
        ]


class Kills(Campaign):
    """A campaign with trainers of seconds, and strikes at one connection each."""

    report: KillReport

    def _report(self, broker: str, jobs: int, seed: int) -> Report:
        return KillReport(broker, jobs, seed)

    def _leases(self) -> dict[str, float]:
        return {"stale_after_s": LEASE_S, "sleep_grace_s": LEASE_S}

    def _trainers(self, host: str) -> str:
        words = [sys.executable, "-I", "-S", str(TRAINER), str(self._journal), host]
        return (
            f"[trainers.seconds]\ncommand = {json.dumps(words)}\nresumable = true\n"
            "telemetry = true\n"
            'schema = {type = "object", properties = {}}\n'
        )

    def _job(self, number: int) -> str:
        return (
            f'name = "job{number:03}"\nmodel = "seconds"\nmode = "oracle"\nseed = {number}\n'
            "retries = 100"
        )

    @property
    def _journal(self) -> Path:
        return self._folder / "journal.jsonl"

    def _most_strikes(self) -> float:
        """Return as large a share as of the jobs that are over, and some: it goes on for all."""
        return AHEAD + self.report.wanted * self._over() / self.report.jobs

    def _kinds(self) -> list[Strike]:
        return [
            ("RST", 5, partial(self._end_links, reset=True)),
            ("FIN", 5, partial(self._end_links, reset=False)),
            ("refused", 6, self._refuse),
            ("stalled", 4, partial(self._hold_up, (1.0, 6.0))),
            ("stalled beyond the keepalive", 1, partial(self._hold_up, BEYOND_KEEPALIVE_S)),
            ("cable pulled", 2 if self._namespace else 0, self._pull_the_cable),
            ("SIGKILL agent", 4, partial(self._end_agent, signal.SIGKILL)),
            ("SIGKILL coordinator", 2, self._kill_coordinator),
            ("SIGKILL broker", 1, self._kill_broker),
        ]

    def _aim(self) -> str | None:
        """Choose a program whose connection is not struck already."""
        free = [name for name in self._links if f"link of {name}" not in self._busy]
        return self._rng.choice(free) if free else None

    def _end_links(self, *, reset: bool) -> str | None:
        if (name := self._aim()) is None:
            return None
        link = self._links[name]
        (link.reset if reset else link.cut)()
        return name

    def _refuse(self) -> str | None:
        if (name := self._aim()) is None:
            return None
        link = self._links[name]
        link.refuse()
        return self._hit(f"link of {name}", self._rng.uniform(0.5, 8.0), link.take)

    def _hold_up(self, for_s: tuple[float, float]) -> str | None:
        if (name := self._aim()) is None:
            return None
        link = self._links[name]
        link.stall()
        return self._hit(f"link of {name}", self._rng.uniform(*for_s), link.flow)

    def _judge(self) -> None:
        super()._judge()
        report, lives = self.report, journal.read(self._journal)
        report.trainers = len(lives)
        report.resumed = sum(life.begun_step > 0 for life in lives)
        report.at_once = journal.at_once(lives)
        report.started_twice = journal.started_twice(lives)
