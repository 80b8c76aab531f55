"""The learning curves of all that runs, one over the other."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from broker.figures import counted
from coordinator.client.mirror import Snapshot
from coordinator.client.rows import HELD
from coordinator.jobs.curve import Curve, of
from coordinator.web.frame import Site, frame
from coordinator.web.parts import Tag, call, choice, search

LABEL = "Losses of the running jobs by epoch"


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/curves")
    def curves() -> None:
        visit = site.visit()
        with frame(visit, "Learning curves", "/curves"):
            with Tag("div", classes="head"):
                Tag("h1", "Learning curves")
                count = Tag("span", "", "dim", role="status", aria_live="polite")
            with Tag("section", classes="card"):
                form = Tag("form", classes="filters head", onsubmit="return false")
                chart = ui.echart({}, renderer="svg").classes("chart")
                chart.style("height: max(340px, calc(100dvh - 220px))")
            with form:
                _controls({job.model for job in site.hub.seen.jobs.values()}, chart.id)
            told = _Told()
            call(visit.client, "feedCurves", chart.id, {"label": LABEL})

            def tell() -> None:
                seen = site.hub.seen
                jobs, gone = told.news(seen)
                if jobs or gone:
                    call(visit.client, "feedCurves", chart.id, {"jobs": jobs, "gone": gone})
                running = sum(job.state in HELD for job in seen.jobs.values())
                count.set_text(heading(len(told.known), running))

            visit.keep_current(tell)


def heading(curves: int, running: int) -> str:
    """Return what the curves are of: so many of the running jobs have told of losses."""
    if not running:
        return "nothing runs now"
    if curves != running:
        return f"of {curves} of {running} running jobs; the others have told no loss yet"
    return f"of {counted(running, 'running job')}"


def _controls(models: set[str], chart_id: int) -> None:
    def feed(what: str) -> str:
        return f"fleet.feedCurves({chart_id}, {{{what}}})"

    match = feed(
        "match: {model: document.getElementById('curve-model').value, "
        "text: document.getElementById('curve-text').value.slice(0, 100)}"
    )
    search("name of a job", match, id="curve-text")
    named = {model: model for model in sorted(models)}
    choice("Model", {"": "all"} | named, match, id_="curve-model")
    choice("Loss", {"val": "validation", "train": "training"}, feed("parts: [this.value]"))
    across = {"": "what fits", "epoch": "epochs", "share": "share of the epochs"}
    choice("Across", across, feed("across: this.value"), id_="curve-across")
    choice("Scale", {"": "linear", "log": "logarithmic"}, feed("log: this.value === 'log'"))


class _Told:
    """What a page knows of the curves, so that it is told no more than what is new."""

    def __init__(self) -> None:
        self.known: dict[str, Curve] = {}

    def news(self, seen: Snapshot) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the points that are new, by job, and the jobs that run no more."""
        jobs = []
        current = set()
        for key in seen.curves:
            job = seen.jobs.get(key)
            curve = of(job, seen.curves) if job and job.state in HELD else None
            if job is None or curve is None:
                continue
            current.add(key)
            before = self.known.get(key)
            if before is not curve:
                self.known[key] = curve
                told = seen.progress.get(key)
                about = {"id": key, "name": job.name, "model": job.model,
                         "epochs": told.epochs if told else None}  # fmt: skip
                jobs.append(about | news_of(before, curve))
        gone = [key for key in self.known if key not in current]
        for key in gone:
            del self.known[key]
        return jobs, gone


def news_of(before: Curve | None, curve: Curve) -> dict[str, Any]:
    """Return `points` (epoch, training, validation loss) and `from` where they take over.

    `from` none: they are all there are.
    """
    points = [tuple(point) for point in curve.points]
    if before is not None and before.points and len(before.points) <= len(points):
        kept = len(before.points) - 1
        if curve.points[:kept] == before.points[:kept]:
            first = min(curve.points[kept].epoch, before.points[kept].epoch)
            return {"from": first, "points": points[kept:]}
    return {"from": None, "points": points}
