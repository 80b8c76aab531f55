"""The report of a completed job, out of its artifact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import background_tasks, ui

from broker.errors import FleetError
from coordinator.web.artifacts import Report, TooLarge
from coordinator.web.frame import Site, Visit
from coordinator.web.parts import Tag, button, size

TELL_S = 0.5


def show_report(
    site: Site, visit: Visit, place: Tag, job_id: str, artifact_id: str | None,
    on_curve: Callable[[list[Any]], None],
) -> None:  # fmt: skip
    """Fill the report's place, which is hidden for a job without an artifact."""
    place.clear()
    place.set_visibility(artifact_id is not None)
    if artifact_id is None:
        return
    with place:
        Tag("h2", "Report")
        words = Tag("p", "fetching the artifact …", "note", role="status")
        with Tag("div") as body:
            pass
        timer = ui.timer(TELL_S, lambda: _tell(site, artifact_id, words))

    async def load(*, asked: bool) -> None:
        body.clear()
        timer.activate()
        try:
            report = await site.artifacts.report(job_id, artifact_id, asked=asked)
        except (FleetError, OSError) as error:
            timer.deactivate()
            words.set_text(f"{error}")
            if isinstance(error, TooLarge):
                with body:
                    button("Fetch it all the same", lambda: load(asked=True))
            return
        timer.deactivate()
        if not visit.client.is_deleted:
            _show(report, artifact_id, words, body)
            on_curve(list(report.curve))

    background_tasks.create(load(asked=False))


def _tell(site: Site, artifact_id: str, words: Tag) -> None:
    progress = site.artifacts.progress.get(artifact_id)
    if progress is not None and progress.total_bytes:
        words.set_text(
            f"fetching the artifact: {size(progress.done_bytes)} of {size(progress.total_bytes)}"
        )


def _show(report: Report, artifact_id: str, words: Tag, body: Tag) -> None:
    more = ["on simulated telemetry"] if report.simulated else []
    more += [f"best epoch {report.best_epoch}"] if report.best_epoch is not None else []
    words.set_text(", ".join(more))
    if report.page is None:
        words.set_text(", ".join([*more, "it has no drawings"]))
        return
    with body:
        Tag("a", "Open it by itself", "alone", href=f"/report/{artifact_id}", target="_blank",
            rel="noopener")  # fmt: skip
        # No scripts, no forms, no origin: it is a stranger's page.
        Tag("iframe", classes="report", src=f"/report/{artifact_id}", title="Report of this job",
            sandbox="", referrerpolicy="no-referrer")  # fmt: skip
