"""One job: how it is, why it waits, its output, its losses, its report, its history."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final
from urllib.parse import quote

from nicegui import background_tasks, ui
from starlette.responses import RedirectResponse

from broker.errors import FleetError
from broker.protocol.messages import AskCancel, AskCurves, AskRequeue, AskShow, AskWhy
from broker.protocol.topics import is_host
from broker.system.machine import new_id
from coordinator.jobs.curve import Curve, curves_of, of
from coordinator.jobs.set_aside import kept_words, set_aside
from coordinator.scheduler.explanation_layout import CAN, wished
from coordinator.web.artifacts import metric_rows
from coordinator.web.frame import Site, Visit, frame
from coordinator.web.hub import News
from coordinator.web.pages.curves_page import news_of
from coordinator.web.pages.job_log import Tail
from coordinator.web.pages.job_report import show_report
from coordinator.web.parts import (
    Code,
    Facts,
    Link,
    Moment,
    Tag,
    Value,
    call,
    css_word,
    link,
    plain_table,
    size,
)  # fmt: skip
from coordinator.web.rows import HELD, NO_HOST, Row, epoch_ms, meant

JOB_ID: Final = re.compile(r"[0-9a-f]{64}")
MAX_TEXT: Final = 100
MAX_EVENTS: Final = 100
MAX_HOSTS: Final = 200
MAX_CHANGES: Final = 10
MAX_HYPER: Final = 60
SETTLE_S: Final = 0.3
BRINGS: Final = ("completed", "kept")
# What changes more than the facts.
MOVES: Final = ("state", "attempt", "host", "unplaceable", "waits")
WAIT: Final = "asking the coordinator …"


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
                Tag("h1", "No such job")
                Tag("p", "It may have left the ledger, or the address is not whole.", "note")
                link("All jobs", "/jobs", "button")
                visit.client.status_code = 404
                return None
            _Page(site, visit, row).build()
            return None


class _Page:
    """One open page of one job."""

    def __init__(self, site: Site, visit: Visit, row: Row) -> None:
        self.site, self.visit, self.row = site, visit, row
        self.job_id: str = row["id"]
        self._curve: Any = None
        self._keep_s: float | None = None
        self._asking = False
        self._again = False

    def build(self) -> None:
        """Make the page, and have it told what changes."""
        with Tag("div", classes="head"):
            Tag("h1", self.row["name"])
            self._state = Tag("span", "", "state big", role="status", aria_live="polite")
            self._hopeless = Tag("span", NO_HOST, "bad", role="status")
            Tag("span", "", "grow")
            self._buttons = Tag("div", classes="filters")
        self._note = Tag("p", "", "warn")
        self._why = _card("Why it waits")
        with self._why:
            Tag("p", WAIT, "note")
        with Tag("div", classes="columns"):
            with Tag("div"):
                with _card("About"):
                    self._facts = Facts({})
                self._metrics = _card("Result")
                self._history = _card("History")
                with self._history:
                    Tag("p", WAIT, "note")
            with Tag("div"):
                with _card("Loss") as self._losses:
                    self._chart = ui.echart({}, renderer="svg").classes("chart")
                with _card("Output") as self._output:
                    self._tail = Tail(self.site, self.visit, self.job_id)
                self._spec = _card("What was asked for")
        self._report = Tag("section", classes="card", aria_label="Report")
        for told_later in (self._spec, self._report):
            told_later.set_visibility(False)
        self._tell_row()
        self._tell_curve(self.site.hub.seen, first=True)
        background_tasks.create(self._load())
        self._tail.start()
        self.visit.follow(self._on_news)

    def _on_news(self, news: News) -> None:
        found = next(
            (row for row in (*news.jobs.add, *news.jobs.update) if row["id"] == self.job_id), None
        )
        if self.job_id in news.jobs.remove:
            self._say("this job has left the ledger")
        self._tell_curve(news.seen)
        if found is None:
            return
        moved = any(found[name] != self.row[name] for name in MOVES)
        self.row = found
        self._tell_row(moved=moved)
        if moved:
            background_tasks.create(self._load())

    def _say(self, text: str) -> None:
        self._note.set_text(text)
        self._note.set_visibility(bool(text))

    # What the row tells

    def _tell_row(self, *, moved: bool = True) -> None:
        row = self.row
        self._state.set_text(row["state"])
        word = "tone-warn" if row["chance"] else css_word(row["state"])
        self._state.classes(replace=f"state big {word}")
        self._hopeless.set_text(row["waits"] or row["chance"] or NO_HOST)
        self._hopeless.set_visibility(row["unplaceable"] or bool(row["waits"] or row["chance"]))
        self._tell_facts()
        if not moved:
            return
        self._say("" if row["planned"] else "This job is no longer in the manifest.")
        self._tell_buttons()
        waits = row["state"] == "pending"
        self._why.set_visibility(waits)
        self._output.set_visibility(not waits)
        self._metrics.set_visibility(False)
        self._tail.is_live = row["state"] in HELD

    def _tell_facts(self) -> None:
        row = self.row
        self._facts.tell({
            "Host": _host(row),
            "Progress": _progress(row),
            "Ends": Moment(row["ends"], ahead=True),
            "Model": f"{row['model']}, {row['mode']}",
            "Attempt": row["attempt"] or "none yet",
            "Priority": row["priority"],
            "Began": Moment(row["started"]),
            "Ended": Moment(row["finished"]),
            "Added": Moment(row["created"]),
            "Id": Code(self.job_id),
        })  # fmt: skip

    def _tell_buttons(self) -> None:
        row = self.row
        self._buttons.clear()
        with self._buttons:
            if row["artifact"] and row["state"] == "completed":
                Tag("a", "Download the artifact", "button", href=f"/artifact/{self.job_id}",
                    download="")  # fmt: skip
            if not self.visit.may_act():
                return
            if row["state"] in {"pending", "claimed", "running"}:
                self.visit.act_button("Cancel", self._cancel, "button danger")
            if row["state"] != "pending":
                self.visit.act_button("Requeue", self._requeue)

    def _cancel(self) -> None:
        row = self.row
        text = f"{row['name']} is {row['state']}"
        if row["state"] in HELD:
            text += f" on {row['host']}. It is stopped there, and its work is thrown away."
        else:
            text += ". It will not be carried out until somebody requeues it."
        self.visit.confirm(
            "Cancel this job?", text, "Cancel the job",
            lambda _: AskCancel(id=new_id(), job=self.job_id),
        )  # fmt: skip

    def _requeue(self) -> None:
        row, told = self.row, self.site.hub.seen.jobs.get(self.job_id)
        result = (told.metrics, told.artifact_id) if told else (None, None)
        lost = set_aside(row["state"], row["host"], row["share"], *result)
        text = f"{row['name']} is {row['state']}. It goes back into the queue"
        text += f"; {lost}." if lost else "."
        if lost and row["state"] == "completed":
            kept = f" {kept_words(self._keep_s)}" if self._keep_s else " for a while"
            text += f" The history has it to download{kept}."
        self.visit.confirm(
            "Requeue this job?", text, "Requeue the job",
            lambda _: AskRequeue(id=new_id(), job=self.job_id),
        )  # fmt: skip

    # What the coordinator tells

    async def _load(self) -> None:
        """Ask for the history, and for what else the job's state gives reason to."""
        if self._asking:
            self._again = True
            return
        self._asking, self._again = True, True
        try:
            while self._again and not self.visit.client.is_deleted:
                self._again = False
                await self._ask()
                await asyncio.sleep(SETTLE_S)  # moves come in twos and threes
        finally:
            self._asking = False

    async def _ask(self) -> None:
        ask = self.site.hub.ask
        try:
            shown = await ask(AskShow(id=new_id(), job=self.job_id))
            why = await ask(AskWhy(id=new_id(), job=self.job_id)) if self._waits() else None
            await self._ask_curve()
        except FleetError as error:
            self._say(f"The coordinator did not tell more: {error}")
            return
        if self.visit.client.is_deleted:
            return
        self._keep_s = shown.get("keep_results_s")
        self._tell_history(shown.get("events") or [], shown.get("results") or [])
        self._tell_spec(shown.get("spec") or {})
        if why is not None:
            self._tell_why(why)
        self._tell_result(shown)

    def _waits(self) -> bool:
        return bool(self.row["state"] == "pending")

    def _tell_history(self, events: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
        self._history.clear()
        with self._history:
            Tag("h2", "History")
            there = {one["attempt"]: one for one in results if one["is_there"]}
            rows = [
                _event(self.job_id, event, there) for event in reversed(events[-MAX_EVENTS:])
            ]  # fmt: skip
            with Tag("div", classes="scroll", tabindex="0", role="region", aria_label="History"):
                columns = ["When", "What", "Who", "Host", "Why"]
                plain_table(columns, rows, "History of this job", stacks=True)

    def _tell_spec(self, spec: dict[str, Any]) -> None:
        self._spec.clear()
        self._spec.set_visibility(True)
        with self._spec:
            Tag("h2", "What was asked for")
            pairs: list[tuple[str, Value]] = [
                (name.replace("_", " "), _words(spec.get(name)))
                for name in ("split_recipe", "train_hosts", "seed", "n_resamples", "needs",
                             "allowed_hosts", "denied_hosts", "on_lost", "timeout_s", "retries")
            ]  # fmt: skip
            hyper = spec.get("hyper")
            if isinstance(hyper, dict):
                pairs += [(name, _words(value)) for name, value in list(hyper.items())[:MAX_HYPER]]
            Facts(dict(pairs))

    def _tell_why(self, why: dict[str, Any]) -> None:
        self._why.clear()
        with self._why:
            Tag("h2", "Why it waits")
            Tag("p", str(why.get("summary", "")))
            title, changes = wished(why)
            if changes:
                Tag("p", title)
                with Tag("ul"):
                    for text in changes[:MAX_CHANGES]:
                        Tag("li", text)
            hosts = [host for host in why.get("hosts") or [] if isinstance(host, dict)]
            rows = [
                [
                    _host(host),
                    CAN if host.get("eligible")
                    else "; ".join(str(reason) for reason in host.get("reasons") or []),
                ]
                for host in hosts[:MAX_HOSTS]
            ]  # fmt: skip
            if rows:
                with Tag("div", classes="scroll", tabindex="0", role="region", aria_label="Hosts"):
                    columns = ["Host", "What speaks against it"]
                    plain_table(columns, rows, "Hosts, and why not", stacks=True)

    def _tell_result(self, shown: dict[str, Any]) -> None:
        error, metrics = shown.get("error"), metric_rows(shown.get("metrics"))
        self._metrics.clear()
        self._metrics.set_visibility(bool(error or metrics))
        with self._metrics:
            Tag("h2", "Error" if error else "Result")
            if error:
                Tag("pre", str(error), "log mono bad", tabindex="0")
            if metrics:
                rows = [list(row) for row in metrics]
                plain_table(["Metric", ">Value", "95 % interval"], rows, "Metrics")
        show_report(
            self.site, self.visit, self._report, self.job_id,
            shown.get("artifact_id") if shown.get("state") == "completed" else None, self._on_curve,
        )  # fmt: skip

    # The losses

    def _tell_curve(self, seen: Any, *, first: bool = False) -> None:
        row = seen.jobs.get(self.job_id)
        curve = of(row, seen.curves) if row else None
        if curve is not self._curve or first:
            self._show_curve(curve)

    def _show_curve(self, curve: Curve | None) -> None:
        if curve is None:
            self._losses.set_visibility(False)
        else:
            self._feed(news_of(self._curve, curve))
        self._curve = curve

    async def _ask_curve(self) -> None:
        """Ask for the losses of a job that is over, which nobody tells again."""
        if self._curve is not None or self.row["state"] in {"pending", *HELD}:
            return
        found = await self.site.hub.ask(AskCurves(id=new_id(), jobs=(self.job_id,)))
        kept = curves_of(found["curves"]).get(self.job_id)
        if kept and kept.attempt == self.row["attempt"] and self._curve is None:
            self._show_curve(kept)

    def _on_curve(self, points: list[Any]) -> None:
        """Take the whole curve, out of the report."""
        if points and not self.visit.client.is_deleted:
            self._feed({"from": None, "points": points})

    def _feed(self, news: dict[str, Any]) -> None:
        self._losses.set_visibility(True)
        job = {"id": self.job_id, "name": self.row["name"], "model": self.row["model"]} | news
        call(self.visit.client, "feedCurves", self._chart.id, {
            "jobs": [job], "parts": ["train", "val"], "label": f"Losses of {self.row['name']}",
        })  # fmt: skip


def _card(title: str) -> Tag:
    section = Tag("section", classes="card", aria_label=title)
    with section:
        Tag("h2", title)
    return section


def _progress(row: Row) -> str:
    parts = [f"{100 * row['share']:.0f} %"] if row["share"] is not None else []
    parts += [f"epoch {row['epoch']}"] if row["epoch"] else []
    parts += [row["phase"]] if row["phase"] not in {"", "train"} else []
    return ", ".join(parts)


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    if isinstance(value, dict):
        said = (f"{key} {one}" for key, one in value.items() if one not in (None, False))
        return ", ".join(text.replace(" True", "") for text in said)
    return "" if value is None else str(value)


def _host(of: dict[str, Any]) -> Value:
    name = str(of.get("host") or "")
    return Link(name, f"/host/{name}") if is_host(name) else name


def _event(job_id: str, event: dict[str, Any], there: dict[int, dict[str, Any]]) -> list[Value]:
    """Return one move of a job; beside one that brought a result is the way to that.

    `there` are the results that can be fetched, by attempt.
    """
    why: Value = str(event.get("why") or "")
    if event.get("event") in BRINGS and (found := there.get(event.get("attempt") or 0)):
        why = _download(job_id, found)
    return [
        Moment(epoch_ms(event.get("at")), exact=True),
        str(event.get("event", "")),
        str(event.get("who", "")),
        _host(event),
        why,
    ]


def _download(job_id: str, result: dict[str, Any]) -> Link:
    """Return the way to what an attempt has brought, with how long that is there."""
    attempt = int(result["attempt"])
    said = [size(result["size_bytes"])]
    if result["kept_until"]:
        said.append(f"kept until {str(result['kept_until'])[:10]}")
    text = f"Download the result of attempt {attempt} ({', '.join(said)})"
    return Link(text, f"/artifact/{job_id}/{attempt}", download=True)
