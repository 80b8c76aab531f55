"""One job: how it is, why it waits, its output, its losses, its report, its history."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from nicegui import background_tasks, ui
from starlette.responses import RedirectResponse

from broker.errors import FleetError
from broker.protocol.messages import AskCancel, AskCurves, AskRequeue, AskShow, AskWhy
from broker.system.machine import new_id
from coordinator.client.rows import HELD, NO_HOST, Row, meant
from coordinator.jobs.causes import in_words, set_aside
from coordinator.jobs.curve import Curve, curves_of, of
from coordinator.jobs.result_words import kept_words
from coordinator.ui.facts import Moment
from coordinator.ui.job_view import counted, how_far, trainer
from coordinator.web.frame import Site, Visit, frame, not_found
from coordinator.web.hub import News
from coordinator.web.pages.curves_page import news_of
from coordinator.web.pages.job_parts import (
    WAIT,
    ReportPart,
    Tail,
    host_of,
    show_asked,
    show_history,
    show_result,
    show_why,
)
from coordinator.web.parts import Facts, Tag, call, card

JOB_ID: Final = re.compile(r"[0-9a-f]{64}")
MAX_TEXT: Final = 100
# What changes more than the facts.
MOVES: Final = ("state", "attempt", "host", "unplaceable", "waits")
OPEN: Final = HELD | {"pending"}


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/jobs/{text}")
    def named(text: str) -> RedirectResponse:
        return RedirectResponse(f"/job/{quote(text, safe='')}")

    @ui.page("/job/{job_id}")
    def job(job_id: str) -> RedirectResponse | None:
        visit = site.visit()
        rows = site.hub.tables.jobs.rows
        row = rows.get(job_id) if JOB_ID.fullmatch(job_id) else None
        if row is None and (found := meant(rows.values(), job_id[:MAX_TEXT])):
            one = found[0]["id"] if len(found) == 1 else ""
            return RedirectResponse(f"/job/{one}" if one else f"/jobs?text={quote(job_id)}")
        with frame(visit, row["name"] if row else "No such job", "/jobs"):
            if row is None:
                text = "It may have left the ledger, or the address is not whole."
                not_found(visit, "No such job", text, "All jobs", "/jobs")
            else:
                _Page(site, visit, row)
        return None


class _Page:
    def __init__(self, site: Site, visit: Visit, row: Row) -> None:
        self.site, self.visit, self.row = site, visit, row
        self.job_id: str = row["id"]
        self._curve: Curve | None = None
        self._keep_s: float | None = None
        self._asking = asyncio.Lock()  # answers are shown in the order of the questions
        with Tag("div", classes="head"):
            Tag("h1", self.row["name"])
            self._state = Tag("span", "", "state big", role="status", aria_live="polite")
            self._hopeless = Tag("span", NO_HOST, "bad", role="status")
            Tag("span", "", "grow")
            self._buttons = Tag("div", classes="filters")
        self._note = Tag("p", "", "warn")
        self._why = card("Why it waits")
        with Tag("div", classes="columns"):
            with Tag("div"):
                with card("About"):
                    self._facts = Facts()
                self._metrics = card("Result")
                self._history = card("History")
            with Tag("div"):
                with card("Loss") as self._losses:
                    self._chart = ui.echart({}, renderer="svg").classes("chart")
                with card("Output") as self._output:
                    self._tail = Tail(self.site, self.visit, self.job_id)
                self._asked = card("What was asked for")
        self._report = ReportPart(self.site, self.visit, self.job_id, self._on_report)
        for told_later in (self._why, self._history):
            with told_later:
                Tag("p", WAIT, "note")
        for shown_later in (self._asked, self._losses):
            shown_later.set_visibility(False)
        self._tell_row(moved=True)
        self._tell_curve()
        background_tasks.create(self._ask())
        self.visit.follow(self._on_news)

    def _on_news(self, news: News) -> None:
        if self.job_id in news.jobs.remove:
            self._note.say("this job has left the ledger")
        self._tell_curve()
        row = self.site.hub.tables.jobs.rows.get(self.job_id)
        if row is None or row is self.row:
            return
        moved = any(row[name] != self.row[name] for name in MOVES)
        self.row = row
        self._tell_row(moved=moved)
        if moved:
            background_tasks.create(self._ask())

    # What the row tells

    def _tell_row(self, *, moved: bool) -> None:
        row = self.row
        self._state.set_text(row["state"])
        word = f"{row['state']} tone-warn" if row["mark"] else row["state"]
        self._state.classes(replace=f"state big {word}")
        self._hopeless.say(row["waits"] or row["marked"] or (NO_HOST if row["unplaceable"] else ""))
        self._facts.tell({
            "Host": host_of(row),
            "Progress": ", ".join(how_far(row)),
            "Ends": Moment(row["ends"], "ahead"),
            **dict([trainer(row)]),
            "Attempt": row["attempt"] or "none yet",
            "Priority": row["priority"],
            "Began": Moment(row["started"]),
            "Ended": Moment(row["finished"]),
            "Added": Moment(row["created"]),
            "Id": self.job_id,
        })  # fmt: skip
        if not moved:
            return
        self._note.say("" if row["planned"] else "This job is no longer in the manifest.")
        self._tell_buttons()
        waits = row["state"] == "pending"
        self._why.set_visibility(waits)
        self._output.set_visibility(not waits)
        self._metrics.set_visibility(False)
        self._tail.is_live = row["state"] in HELD

    def _tell_buttons(self) -> None:
        row = self.row
        self._buttons.clear()
        with self._buttons:
            if row["artifact"] and row["state"] == "completed":
                Tag("a", "Download the artifact", "button", href=f"/artifact/{self.job_id}",
                    download="")  # fmt: skip
            if self.visit.may_act() and row["state"] in OPEN:
                self.visit.act_button("Cancel", self._cancel, "button danger")
            if self.visit.may_act() and row["state"] != "pending":
                self.visit.act_button("Requeue", self._requeue)

    def _cancel(self) -> None:
        row = self.row
        text = f"{row['name']} is {row['state']}"
        if row["state"] in HELD:
            text += f" on {row['host']}. It is stopped there, and its work is thrown away."
        else:
            text += ". It will not be carried out until somebody requeues it."
        command = AskCancel(id=new_id(), job=self.job_id)
        self.visit.confirm("Cancel this job?", text, "Cancel the job", command)

    def _requeue(self) -> None:
        row, told = self.row, self.site.hub.seen.jobs.get(self.job_id)
        result = (told.metrics, told.artifact_id) if told else (None, None)
        lost = in_words(set_aside(row["state"], row["host"], row["share"], *result))
        text = f"{row['name']} is {row['state']}. It goes back into the queue"
        text += f"; {lost}." if lost else "."
        if lost and row["state"] == "completed":
            kept = f" {kept_words(self._keep_s)}" if self._keep_s else " for a while"
            text += f" The history has it to download{kept}."
        command = AskRequeue(id=new_id(), job=self.job_id)
        self.visit.confirm("Requeue this job?", text, "Requeue the job", command)

    # What the coordinator tells

    async def _ask(self) -> None:
        """Ask for the history, and for what else the job's state gives reason to."""
        ask = self.site.hub.ask
        async with self._asking:
            try:
                shown = await ask(AskShow(id=new_id(), job=self.job_id))
                waits = self.row["state"] == "pending"
                why = await ask(AskWhy(id=new_id(), job=self.job_id)) if waits else None
                await self._ask_curve()
            except FleetError as error:
                self._note.say(f"The coordinator did not tell more: {error}")
                return
            if not self.visit.client.is_deleted:
                self._tell_shown(shown, why)

    def _tell_shown(self, shown: dict[str, Any], why: dict[str, Any] | None) -> None:
        self._keep_s = shown.get("keep_results_s")
        show_history(self._history, self.job_id, shown)
        show_asked(self._asked, shown)
        self._facts.tell({"Counted": counted(shown), "Asked by": shown["submitted_by"]})
        if why is not None:
            show_why(self._why, why)
        show_result(self._metrics, shown)
        self._report.show(shown)

    # The losses

    def _tell_curve(self) -> None:
        seen = self.site.hub.seen
        row = seen.jobs.get(self.job_id)
        curve = of(row, seen.curves) if row else None
        # Of a job that is over, what was asked for stays.
        if curve is not self._curve and (curve is not None or self.row["state"] in OPEN):
            self._show_curve(curve)

    def _show_curve(self, curve: Curve | None) -> None:
        self._losses.set_visibility(curve is not None)
        if curve is not None:
            self._feed(news_of(self._curve, curve))
        self._curve = curve

    def _on_report(self, points: Sequence[Any]) -> None:
        if points:
            self._losses.set_visibility(True)
            self._feed({"from": None, "points": points})

    def _feed(self, news: dict[str, Any]) -> None:
        job = {"id": self.job_id, "name": self.row["name"], "model": self.row["model"]} | news
        label = f"Losses of {self.row['name']}"
        fed = {"jobs": [job], "parts": ["train", "val"], "label": label}
        call(self.visit.client, "feedCurves", self._chart.id, fed)

    async def _ask_curve(self) -> None:
        """Ask for the losses of a job that is over, which nobody tells again."""
        if self._curve is not None or self.row["state"] in OPEN:
            return
        found = await self.site.hub.ask(AskCurves(id=new_id(), jobs=(self.job_id,)))
        kept = curves_of(found["curves"]).get(self.job_id)
        if kept and kept.attempt == self.row["attempt"] and self._curve is None:
            self._show_curve(kept)
