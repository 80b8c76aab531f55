"""Follows one job to its end, for `fleet run --wait`."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

from broker.errors import BadMessage
from broker.protocol.messages import JOB_ROW, AskShow, AskWhy, Progress, decode
from broker.protocol.topic_table import Kind
from broker.sentences import printable
from broker.system.machine import new_id
from coordinator.client.contact import Unreachable
from coordinator.jobs.set_aside import BELOW_CHANCE, main_metric, metric_words
from coordinator.ui.job_board import Board, note
from coordinator.ui.words import say, took

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient

FINAL: Final = frozenset({"completed", "failed", "cancelled"})
ASK_EVERY_S: Final = 10.0
MISSES: Final = 6  # questions without an answer, after which nobody is believed to be there
NOBODY: Final = "no coordinator answers; the job goes on without, and it is asked again"
AGAIN: Final = "the coordinator answers again"
_NUMBER: Final = re.compile(r"\d+")
# What comes next when a job is over: the verb, and what that does.
_NEXT: Final = {
    "completed": ("get", "fetches it"),
    "failed": ("logs", "shows its output"),
    "cancelled": ("requeue", "brings it back"),
}
Row = dict[str, Any]


def until_over(
    client: OperatorClient, job_id: str, *, quiet: bool, fetches: bool = False
) -> Row:  # fmt: skip
    """Return a job's row when the job is over; the client watches rows and progress.

    It ends with what came of the job, and with the next step unless the result is fetched anyway
    (`fetches`). Ctrl-C ends the waiting, not the job. Raises `Unreachable` when no coordinator
    answers for long.
    """
    try:
        with Board(quiet=quiet) as board:
            row = _Follower(client, job_id, board).follow()
    except KeyboardInterrupt:
        say("no longer waiting; the job stays", err=True)
        raise
    if not quiet:
        if row["state"] == "failed":
            say(printable(f"error: {row['error']}"), err=True)
        say(outcome(row, fetches=fetches))
    return row


class _Follower:
    """One job on a board."""

    def __init__(self, client: OperatorClient, job_id: str, board: Board) -> None:
        self._client = client
        self._job_id = job_id
        self._board = board
        self._row: Row = {}
        self._progress: dict[str, Progress] = {}
        self._misses = 0
        self._why = ""

    def follow(self) -> Row:
        """Return its row when it is over."""
        asked_s = 0.0
        while self._row.get("state") not in FINAL:
            if time.monotonic() - asked_s >= ASK_EVERY_S:
                asked_s = time.monotonic()
                self._ask()
                self._show()
            for topic, payload in self._client.messages(wait_s=1.0):
                if topic.job_id == self._job_id and payload:
                    self.hear(topic.kind, payload)
        return self._row

    def hear(self, kind: Kind, payload: bytes) -> None:
        """Take a message about the job."""
        if kind is Kind.PROGRESS:
            note(self._progress, self._job_id, payload)
        elif kind is Kind.JOB:
            try:
                heard = decode(JOB_ROW, payload).model_dump(mode="json")
            except BadMessage:
                return
            if not _is_behind(heard, self._row):
                self._row = heard
        self._show()

    def _show(self) -> None:
        if self._row and self._row["state"] not in FINAL:
            self._board.show([self._row], self._progress)

    def _ask(self) -> None:
        try:
            self._row = self._client.ask(AskShow(id=new_id(), job=self._job_id))
        except Unreachable:
            self._misses += 1
            if self._misses >= MISSES:
                raise
            self._progress.clear()  # it is old
            self.say(NOBODY)
            return
        if self._misses:
            self.say(AGAIN)
        self._misses = 0
        if self._row["state"] == "pending":
            self.say(_waits(self._client, self._row))

    def say(self, why: str) -> None:
        """Say why the job is pending, and once how to stop waiting; nothing that was said last."""
        gist = _NUMBER.sub("", why)  # of a count of seconds every word would be news
        if gist in {"", self._why}:
            return
        more = "" if self._why else "\nCtrl-C stops waiting, the job stays"
        self._why = gist
        self._board.say(f"{why}{more}")


def outcome(row: Row, *, fetches: bool = False) -> str:
    """Return in a line what came of a job that is over, and what comes next."""
    on = f" on {row['host']}" if row.get("host") else ""
    ran = f"trained for {said}" if (said := took(row)) else ""
    chance = BELOW_CHANCE if row.get("below_chance") else ""
    facts = ", ".join(filter(None, (ran, metric_words(row["metrics"]), chance)))
    line = f"{row['name']} {row['state']}{on}{': ' if facts else ''}{facts}"
    if not (fetches and row["state"] == "completed"):
        line += f"; `{_next(row)}` {_NEXT[row['state']][1]}"
    return printable(line)


def in_fields(row: Row) -> Row:
    """Return a row with what `outcome` says beyond it: `score`, `next`."""
    name = main_metric(row["metrics"])
    score = None if name is None else {"name": name, "value": row["metrics"][name]}
    return row | {"score": score, "next": _next(row)}


def _next(row: Row) -> str:
    return f"fleet {_NEXT[row['state']][0]} {row['name']}"


def _waits(client: OperatorClient, row: Row) -> str:
    """Return in a line why a job is pending; nothing where it is about to be assigned."""
    try:
        why = client.ask(AskWhy(id=new_id(), job=row["job_id"]))
    except Unreachable:
        return ""
    hosts = why["hosts"]
    if why["state"] != "pending" or any(host["eligible"] for host in hosts):
        return ""
    alike = {tuple(host["reasons"]) for host in hosts}
    if why["summary"] in {reason for reasons in alike for reason in reasons}:
        return f"it waits: {why['summary']}"
    if len(alike) == 1 and why["known"] == len(hosts):
        return f"it waits: {why['summary']}: {'; '.join(*alike)}"
    return f"it waits: {why['summary']}; `fleet why {row['name']}` has the reasons"


def _is_behind(row: Row, last: Row) -> bool:
    """Whether a row was published before what an answer has said meanwhile."""
    if not last or row["attempt"] != last["attempt"]:
        return bool(last) and row["attempt"] < last["attempt"]
    return last["state"] in FINAL or (row["state"], last["state"]) == ("claimed", "running")
