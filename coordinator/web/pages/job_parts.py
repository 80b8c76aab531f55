"""The parts of a job's page that need more than the job's row: output, report, history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nicegui import background_tasks, ui

from broker.errors import FleetError
from broker.figures import in_toml, size
from broker.protocol.messages import AskLogs
from broker.protocol.topics import is_host
from broker.system.machine import new_id
from broker.wrapping import printable
from coordinator.client.rows import Row, epoch_ms
from coordinator.jobs.causes import in_words
from coordinator.jobs.reason_words import all_words, summary, wished
from coordinator.jobs.result_words import metric_rows
from coordinator.ui import fleet_columns
from coordinator.ui.facts import Link, Moment, Value
from coordinator.ui.job_view import asked, event_host
from coordinator.web.artifacts import AUTO_BYTES, Report
from coordinator.web.frame import Site, Visit
from coordinator.web.parts import (
    Facts,
    Tag,
    button,
    call,
    card,
    fill,
    plain_table,
    table_card,
)
from coordinator.web.tables import Part, as_rows, feed, grid

POLL_S: Final = 2.0
LINES: Final = 300
TELL_S: Final = 0.5
MAX_EVENTS: Final = 100
MAX_HOSTS: Final = 200
MAX_CHANGES: Final = 10
MAX_HYPER: Final = 60
MAX_METRICS: Final = 60
WAIT: Final = "asking the coordinator …"


class Tail:
    """The end of a job's output. While `is_live`, it is asked for every two seconds."""

    def __init__(self, site: Site, visit: Visit, job_id: str) -> None:
        self._site, self._visit, self._job_id = site, visit, job_id
        self._shown: list[str] = []
        self._is_whole = False
        self.is_live = True
        self._words = Tag("p", WAIT, "note")
        self._place = Tag("pre", "", "log mono", role="log", tabindex="0", aria_label="Output")
        ui.timer(POLL_S, self._ask, immediate=True)

    async def _ask(self) -> None:
        if not self.is_live and self._is_whole:
            return
        is_over = not self.is_live
        try:
            answer = await self._site.hub.ask(AskLogs(id=new_id(), job=self._job_id, lines=LINES))
        except FleetError as error:
            self._words.set_text(str(error))
            return
        self._is_whole = is_over
        if not self._visit.client.is_deleted:
            self._show(answer)

    def _show(self, answer: Mapping[str, Any]) -> None:
        lines = [printable(str(line))[:2_000] for line in answer["lines"]]
        none = "nothing yet" if self.is_live else "there is no output"
        self._words.set_text("" if lines else none)
        if lines != self._shown:
            self._shown = lines
            call(self._visit.client, "log", self._place.id, lines)


def its_jobs(visit: Visit, is_of: Callable[[Row], bool], *without: str) -> None:
    """Make the table of some jobs, without these columns; it is kept current."""
    part = Part(is_of, list(visit.site.hub.tables.jobs.rows.values()))
    section, _ = table_card("Its jobs")
    with section:
        columns = fleet_columns.shown(fleet_columns.JOBS, "page", *without)
        table = grid(
            "Its jobs", columns, list(part.rows.values()), sort="state", height=as_rows(15),
            empty="it has had no job yet",
        )  # fmt: skip
    visit.follow(lambda news: feed(table, part.take(news.jobs)))


def show_history(place: Tag, job_id: str, shown: Mapping[str, Any]) -> None:
    """Show the moves of a job, the newest first; some lead to the result that they brought."""
    there = {one["attempt"]: one for one in shown["results"] if one["is_there"]}
    rows = [_event(job_id, event, there) for event in reversed(shown["events"][-MAX_EVENTS:])]
    with fill(place, "History"):
        scrolled(["When", "What", "Who", "Host", "Why"], rows, "History")


def scrolled(columns: Sequence[str], rows: Sequence[Sequence[Value]], name: str) -> None:
    """Show a table that may be long in a place that scrolls."""
    with Tag("div", classes="scroll", tabindex="0", role="region", aria_label=name):
        plain_table(columns, rows, name, stacks=True)


def _event(job_id: str, event: Mapping[str, Any], there: Mapping[int, Any]) -> list[Value]:
    """Return one move; `there` are the results that can be fetched, by attempt."""
    why: Value = in_words(event["why"])
    found = there.get(event["attempt"]) if event["event"] in {"completed", "kept"} else None
    if found is not None:
        why = _download(job_id, found)
    at = Moment(epoch_ms(event["at"]), "exact")
    return [at, str(event["event"]), str(event["who"]), host_of({"host": event_host(event)}), why]


def _download(job_id: str, result: Mapping[str, Any]) -> Link:
    """Return the way to what an attempt has brought, with how long that is there."""
    attempt, until = int(result["attempt"]), result["kept_until"]
    kept = f", kept until {str(until)[:10]}" if until else ""
    text = f"Download the result of attempt {attempt} ({size(result['size_bytes'])}{kept})"
    return Link(text, f"/artifact/{job_id}/{attempt}", download=True)


def host_of(of: Mapping[str, Any]) -> Value:
    """Return a link to the host that something names."""
    name = str(of.get("host") or "")
    return Link(name, f"/host/{name}") if is_host(name) else name


def show_asked(place: Tag, shown: Mapping[str, Any]) -> None:
    """Show what the manifest asks for, by an answer to `show`."""
    hyper = list(shown["spec"]["hyper"].items())[:MAX_HYPER]
    with fill(place, "What was asked for"):
        Facts().tell(dict(asked(shown)) | {name: in_toml(value) for name, value in hyper})
    place.set_visibility(True)


def show_why(place: Tag, why: Mapping[str, Any]) -> None:
    """Show why a job waits, what would help, and what speaks against each host."""
    title, changes = wished(why)
    rows = [[host_of(host), all_words(host["reasons"])] for host in why["hosts"][:MAX_HOSTS]]
    with fill(place, "Why it waits"):
        Tag("p", summary(why))
        if changes:
            Tag("p", title)
            with Tag("ul"):
                for text in changes[:MAX_CHANGES]:
                    Tag("li", text)
        if rows:
            scrolled(["Host", "What speaks against it"], rows, "Hosts")


def show_result(place: Tag, shown: Mapping[str, Any]) -> None:
    """Show a job's error, or its metrics; nothing where there are none."""
    error, metrics = shown["error"], metric_rows(shown["metrics"])[:MAX_METRICS]
    place.set_visibility(bool(error or metrics))
    with fill(place, "Error" if error else "Result"):
        if error:
            Tag("pre", str(error), "log mono bad", tabindex="0")
        if metrics:
            plain_table(["Metric", ">Value", "95 % interval"], metrics, "Metrics")


class ReportPart:
    """The report in a job's artifact, fetched unasked if that is not large."""

    def __init__(
        self, site: Site, visit: Visit, job_id: str, on_curve: Callable[[Sequence[Any]], None]
    ) -> None:
        """Make its place; nothing is shown yet. `on_curve` takes the losses in a report."""
        self._site, self._visit, self._job_id, self._on_curve = site, visit, job_id, on_curve
        self._artifact_id: str | None = None
        with card("Report") as self._place:
            self._words = Tag("p", "", "note", role="status")
            self._body = Tag("div")
            self._timer = ui.timer(TELL_S, self._tell_progress, active=False)
        self._place.set_visibility(False)

    def show(self, shown: Mapping[str, Any]) -> None:
        """Show the report of a job by what the coordinator tells of it."""
        is_done = shown["state"] == "completed"
        artifact_id: str | None = shown["artifact_id"] if is_done else None
        self._place.set_visibility(artifact_id is not None)
        if artifact_id == self._artifact_id:
            return
        self._artifact_id = artifact_id
        self._body.clear()
        if artifact_id is None:
            return
        sizes = [one["size_bytes"] or 0 for one in shown["results"]
                 if one["artifact_id"] == artifact_id]  # fmt: skip
        if max(sizes, default=0) <= AUTO_BYTES:
            background_tasks.create(self._load(artifact_id))
            return
        self._words.set_text(f"the artifact is large ({size(max(sizes))})")
        with self._body:
            button("Fetch it all the same", lambda: self._load(artifact_id))

    async def _load(self, artifact_id: str) -> None:
        self._body.clear()
        self._words.set_text("fetching the artifact …")
        self._timer.activate()
        try:
            report = await self._site.artifacts.report(self._job_id, artifact_id)
        except (FleetError, OSError) as error:
            self._words.set_text(str(error))
            return
        finally:
            self._timer.deactivate()
        if not self._visit.client.is_deleted:
            self._tell(report, artifact_id)
            self._on_curve(report.curve)

    def _tell_progress(self) -> None:
        done, total = self._site.artifacts.progress.get(self._artifact_id or "", (0, 0))
        if total:
            self._words.set_text(f"fetching the artifact: {size(done)} of {size(total)}")

    def _tell(self, report: Report, artifact_id: str) -> None:
        said = ["on simulated telemetry"] if report.simulated else []
        said += [f"best epoch {report.best_epoch}"] if report.best_epoch is not None else []
        said += ["it has no drawings"] if report.page is None else []
        self._words.set_text(", ".join(said))
        if report.page is None:
            return
        path = f"/report/{artifact_id}"
        with self._body:
            Tag("a", "Open it by itself", "alone", href=path, target="_blank", rel="noopener")
            # No scripts, no forms, no origin: it is a stranger's page.
            Tag("iframe", classes="report", src=path, title="Report of this job", sandbox="",
                referrerpolicy="no-referrer")  # fmt: skip
