"""The learning curves of all that runs, one over the other."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from broker.sentences import counted
from coordinator.client.seen import Snapshot
from coordinator.jobs.curve import Curve, of
from coordinator.web.frame import Site, frame
from coordinator.web.hub import News
from coordinator.web.parts import Tag, call
from coordinator.web.rows import HELD

LABEL = "Losses of the running jobs by epoch"


def register(site: Site) -> None:
    """Make the page known."""

    @ui.page("/curves")
    def curves() -> None:
        visit = site.visit()
        with frame(visit, "Learning curves", "/curves"):
            seen = site.hub.seen
            with Tag("div", classes="head"):
                Tag("h1", "Learning curves")
                count = Tag("span", "", "dim", role="status", aria_live="polite")
            section = Tag("section", classes="card")
            with section:
                chart = ui.echart({}, renderer="svg").classes("chart")
                chart.style("height: max(340px, calc(100dvh - 220px))")
            _controls(seen, chart.id, section)
            told = _Told()

            def tell(seen: Snapshot, *, first: bool = False) -> None:
                jobs, gone = told.news(seen)
                if jobs or gone or first:
                    news = {"jobs": jobs, "gone": gone, "label": LABEL}
                    call(visit.client, "feedCurves", chart.id, news)
                running = sum(job.state in HELD for job in seen.jobs.values())
                text = heading(len(told.known), running)
                if count.text != text:
                    count.set_text(text)

            tell(seen, first=True)

            def on_news(news: News) -> None:
                tell(news.seen)

            visit.follow(on_news)


def heading(curves: int, running: int) -> str:
    """Return what the curves are of: so many of the running jobs have told of losses."""
    if not running:
        return "nothing runs now"
    if curves != running:
        return f"of {curves} of {running} running jobs; the others have told no loss yet"
    return f"of {counted(running, 'running job')}"


def _controls(seen: Snapshot, chart_id: int, section: Tag) -> None:
    models = sorted({job.model for job in seen.jobs.values()})
    with Tag("form", classes="filters head", onsubmit="return false") as form:
        with Tag("label", classes="field wide"):
            Tag("span", "Search")
            Tag("input", type="search", id="curve-text", placeholder="name of a job",
                oninput=_match(chart_id))  # fmt: skip
        with Tag("label", classes="field"):
            Tag("span", "Model")
            with Tag("select", id="curve-model", onchange=_match(chart_id)):
                for model in ("", *models):
                    Tag("option", model or "all", value=model)
        with Tag("label", classes="field"):
            Tag("span", "Loss")
            feed = f"fleet.feedCurves({chart_id}, {{parts: [this.value]}})"
            with Tag("select", onchange=feed):
                Tag("option", "validation", value="val")
                Tag("option", "training", value="train")
        with Tag("label", classes="field"):
            Tag("span", "Across")
            feed = f"fleet.feedCurves({chart_id}, {{across: this.value}})"
            with Tag("select", id="curve-across", onchange=feed):
                Tag("option", "what fits", value="")
                Tag("option", "epochs", value="epoch")
                Tag("option", "share of the epochs", value="share")
        with Tag("label", classes="field"):
            Tag("span", "Scale")
            with Tag(
                "select", onchange=f"fleet.feedCurves({chart_id}, {{log: this.value === 'log'}})"
            ):
                Tag("option", "linear", value="linear")
                Tag("option", "logarithmic", value="log")
    form.move(section, 0)


def _match(chart_id: int) -> str:
    return (
        f"fleet.feedCurves({chart_id}, {{match: "
        "{model: document.getElementById('curve-model').value, "
        "text: document.getElementById('curve-text').value.slice(0, 100)}})"
    )


class _Told:
    """What a page knows of the curves, so that it is told no more than what is new."""

    def __init__(self) -> None:
        self.known: dict[str, Curve] = {}

    def news(self, seen: Snapshot) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the points that are new, by job, and the jobs that run no more."""
        jobs = []
        current = {}
        for key in seen.curves:
            job = seen.jobs.get(key)
            curve = of(job, seen.curves) if job and job.state in HELD else None
            if job is None or curve is None:
                continue
            current[key] = curve
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
