"""The parts of a job's page that need more than the job's row: output, report, history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nicegui import background_tasks, ui

from broker.errors import FleetError
from broker.protocol.messages import AskLogs
from broker.protocol.topics import is_host
from broker.sentences import printable
from broker.system.machine import new_id
from coordinator.client.rows import epoch_ms
from coordinator.jobs.causes import in_words
from coordinator.scheduler.explanation_layout import CAN, wished
from coordinator.web.artifacts import Report, TooLarge, metric_rows
from coordinator.web.frame import Site, Visit
from coordinator.web.parts import (
    Facts,
    Link,
    Moment,
    Tag,
    Value,
    button,
    call,
    fill,
    listed,
    plain_table,
    size,
)  # fmt: skip

POLL_S: Final = 2.0
LINES: Final = 300
TELL_S: Final = 0.5
MAX_EVENTS: Final = 100
MAX_HOSTS: Final = 200
MAX_CHANGES: Final = 10
MAX_HYPER: Final = 60
SPEC: Final = (
    "split_recipe", "train_hosts", "seed", "n_resamples", "needs", "allowed_hosts", "denied_hosts",
    "on_lost", "timeout_s", "stall_timeout_s", "retries",
)  # fmt: skip
BRINGS: Final = ("completed", "kept")


class Tail:
    """The end of a job's output. While `is_live`, it is asked for every two seconds."""

    def __init__(self, site: Site, visit: Visit, job_id: str) -> None:
        """Make its place, and begin to ask."""
        self._site, self._visit, self._job_id = site, visit, job_id
        self._shown: list[str] = []
        self._is_whole = False
        self.is_live = True
        self._words = Tag("p", "asking the coordinator …", "note")
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

    def _show(self, answer: Any) -> None:
        lines = [printable(str(line))[:2_000] for line in answer.get("lines") or []]
        none = "nothing yet" if self.is_live else "there is no output"
        self._words.set_text("" if lines else none)
        new = new_lines(self._shown, lines)
        if new is None:
            call(self._visit.client, "log", self._place.id, lines, True)
        elif new:
            call(self._visit.client, "log", self._place.id, new, False)
        self._shown = lines


def new_lines(before: list[str], now: list[str]) -> list[str] | None:
    """Return the lines that have come since, or none when `now` is another text altogether."""
    if not before:
        return now
    for start in range(len(before)):
        kept = len(before) - start
        if kept <= len(now) and before[start:] == now[:kept]:
            return now[kept:]
    return None


def show_history(place: Tag, job_id: str, shown: Mapping[str, Any]) -> None:
    """Show the moves of a job, the newest first; some lead to the result that they brought."""
    there = {one["attempt"]: one for one in shown.get("results") or [] if one["is_there"]}
    events = (shown.get("events") or [])[-MAX_EVENTS:]
    rows = [_event(job_id, event, there) for event in reversed(events)]
    with fill(place, "History"):
        _scrolled(["When", "What", "Who", "Host", "Why"], rows, "History")


def _scrolled(columns: Sequence[str], rows: Sequence[Sequence[Value]], name: str) -> None:
    """Show a table that may be long in a place that scrolls."""
    with Tag("div", classes="scroll", tabindex="0", role="region", aria_label=name):
        plain_table(columns, rows, name, stacks=True)


def _event(job_id: str, event: Mapping[str, Any], there: Mapping[int, Any]) -> list[Value]:
    """Return one move; `there` are the results that can be fetched, by attempt."""
    why: Value = in_words(event.get("why"))
    if event.get("event") in BRINGS and (found := there.get(event.get("attempt") or 0)):
        why = _download(job_id, found)
    at = Moment(epoch_ms(event.get("at")), "exact")
    return [at, str(event.get("event", "")), str(event.get("who", "")), host_of(event), why]


def _download(job_id: str, result: Mapping[str, Any]) -> Link:
    """Return the way to what an attempt has brought, with how long that is there."""
    attempt = int(result["attempt"])
    said = [size(result["size_bytes"])]
    if result["kept_until"]:
        said.append(f"kept until {str(result['kept_until'])[:10]}")
    text = f"Download the result of attempt {attempt} ({', '.join(said)})"
    return Link(text, f"/artifact/{job_id}/{attempt}", download=True)


def host_of(of: Mapping[str, Any]) -> Value:
    """Return a link to the host that something names."""
    name = str(of.get("host") or "")
    return Link(name, f"/host/{name}") if is_host(name) else name


def show_spec(place: Tag, spec: Mapping[str, Any]) -> None:
    """Show what the manifest asks for."""
    pairs: dict[str, Value] = {name.replace("_", " "): listed(spec.get(name)) for name in SPEC}
    hyper = spec.get("hyper")
    if isinstance(hyper, dict):
        pairs |= {name: listed(value) for name, value in list(hyper.items())[:MAX_HYPER]}
    with fill(place, "What was asked for"):
        Facts().tell(pairs)
    place.set_visibility(True)


def show_why(place: Tag, why: Mapping[str, Any]) -> None:
    """Show why a job waits, what would help, and what speaks against each host."""
    title, changes = wished(why)
    rows = [
        [
            host_of(host),
            CAN if host.get("eligible")
            else "; ".join(str(reason) for reason in host.get("reasons") or []),
        ]
        for host in (why.get("hosts") or [])[:MAX_HOSTS]
    ]  # fmt: skip
    with fill(place, "Why it waits"):
        Tag("p", str(why.get("summary", "")))
        if changes:
            Tag("p", title)
            with Tag("ul"):
                for text in changes[:MAX_CHANGES]:
                    Tag("li", text)
        if rows:
            _scrolled(["Host", "What speaks against it"], rows, "Hosts")


def show_result(place: Tag, shown: Mapping[str, Any]) -> None:
    """Show a job's error, or its metrics; nothing where there are none."""
    error, metrics = shown.get("error"), metric_rows(shown.get("metrics"))
    place.set_visibility(bool(error or metrics))
    with fill(place, "Error" if error else "Result"):
        if error:
            Tag("pre", str(error), "log mono bad", tabindex="0")
        if metrics:
            plain_table(["Metric", ">Value", "95 % interval"], metrics, "Metrics")


def show_report(
    site: Site, visit: Visit, place: Tag, job_id: str, artifact_id: str | None,
    on_curve: Callable[[list[Any]], None],
) -> None:  # fmt: skip
    """Show the report in an artifact; nothing for a job without one."""
    place.clear()
    place.set_visibility(artifact_id is not None)
    if artifact_id is None:
        return
    with fill(place, "Report"):
        words = Tag("p", "fetching the artifact …", "note", role="status")
        body = Tag("div")
        timer = ui.timer(TELL_S, lambda: _tell_progress(site, artifact_id, words))

    async def load(*, asked: bool) -> None:
        body.clear()
        timer.activate()
        try:
            report = await site.artifacts.report(job_id, artifact_id, asked=asked)
        except (FleetError, OSError) as error:
            timer.deactivate()
            words.set_text(str(error))
            if isinstance(error, TooLarge):
                with body:
                    button("Fetch it all the same", lambda: load(asked=True))
            return
        timer.deactivate()
        if not visit.client.is_deleted:
            _show(report, artifact_id, words, body)
            on_curve(list(report.curve))

    background_tasks.create(load(asked=False))


def _tell_progress(site: Site, artifact_id: str, words: Tag) -> None:
    progress = site.artifacts.progress.get(artifact_id)
    if progress is not None and progress.total_bytes:
        done, total = size(progress.done_bytes), size(progress.total_bytes)
        words.set_text(f"fetching the artifact: {done} of {total}")


def _show(report: Report, artifact_id: str, words: Tag, body: Tag) -> None:
    said = ["on simulated telemetry"] if report.simulated else []
    said += [f"best epoch {report.best_epoch}"] if report.best_epoch is not None else []
    said += ["it has no drawings"] if report.page is None else []
    words.set_text(", ".join(said))
    if report.page is None:
        return
    with body:
        Tag("a", "Open it by itself", "alone", href=f"/report/{artifact_id}", target="_blank",
            rel="noopener")  # fmt: skip
        # No scripts, no forms, no origin: it is a stranger's page.
        Tag("iframe", classes="report", src=f"/report/{artifact_id}", title="Report of this job",
            sandbox="", referrerpolicy="no-referrer")  # fmt: skip
