"""`fleet show`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from broker.machine import new_id
from broker.messages import AskShow
from coordinator.cli.common import job_argument
from coordinator.cli.views import View, viewing
from coordinator.cli.words import namesakes

if TYPE_CHECKING:
    from coordinator.cli.client import OperatorClient

_TITLE = 12  # characters


@click.command("show")
@job_argument
@viewing
def show_command(client: OperatorClient, job: str) -> View:
    """One job: its spec, its result and its history.

    JOB is a name, an id, or the start of one that fits no other. `Took` names what all attempts in
    the history took together, where there were several.

    \b
    Examples:
      fleet show gbt-realistic
      fleet show gbt-realistic --watch
    """  # noqa: D301 - \b is click's
    return View(lambda: client.ask(AskShow(id=new_id(), job=job)), _draw)


def _draw(data: dict[str, Any]) -> Iterator[Any]:
    from coordinator.cli import render
    from coordinator.cli.render import Column

    for title, value in _facts(data):
        line = render.Text(f"{title:<{_TITLE}}")
        shown = value if isinstance(value, render.Text) else render.printable(str(value))
        yield render.Line(line.append(shown), indent=_TITLE)
    if data["metrics"]:
        yield "\nMetrics"
        for name, value in data["metrics"].items():
            if not name.endswith("_ci") and isinstance(value, int | float):
                yield f"  {name:<20} {render.figure(data['metrics'], name)}"
    yield "\nHistory"
    columns = (
        Column("AT"),
        Column("EVENT"),
        Column("TRY", rank=2, right=True),
        Column("HOST", rank=1, least=8),
        Column("BY", rank=3),
        Column("WHY", least=32, wrap=True),
    )
    yield render.table(columns, [_event(event) for event in data["events"]])


def _event(event: dict[str, Any]) -> tuple[Any, ...]:
    from coordinator.cli import render

    # Where the job left its host, the row names none any more: it is the one that did it.
    role, _, name = str(event["who"]).partition(":")
    event = event | {"host": event["host"] or (name if role == "host" else None)}
    return (
        render.local(event["at"]),
        event["event"],
        event["attempt"] or "-",
        event["host"] or "-",
        render.by(event),
        render.first_line(event["why"], 200),
    )


def _facts(data: dict[str, Any]) -> list[tuple[str, Any]]:
    from coordinator.cli import render

    spec = data["spec"]
    needs = [
        f"{name} {value}" if value is not True else name
        for name, value in spec["needs"].items()
        if value not in (None, False)
    ]
    hyper = ", ".join(f"{key} = {value}" for key, value in spec["hyper"].items())
    facts: list[tuple[str, Any]] = [
        ("Job", data["name"]),
        ("Id", data["job_id"]),
        ("State", _state(data)),
        *(("Namesake", one) for one in namesakes(data)),
        ("Host", data["host"] or "-"),
        ("Attempt", data["attempt"]),
        *([("Counted", said)] if (said := _counted(data)) else []),
        ("Priority", data["priority"]),
        *([("Asked for", f"by {data['submitted_by']}")] if data.get("submitted_by") else []),
        ("Model", f"{data['model']}, {data['mode']}"),
        ("Hyper", hyper or "the trainer's defaults"),
        ("Split", f"by {spec['split_recipe']}, seed {spec['seed']}"),
        ("Needs", ", ".join(needs) or "nothing special"),
        ("Took", _took(data)),
    ]
    if (said := _progress(data)) != "-":
        facts.append(("Progress", said))
    if data["artifact_id"]:
        facts.append(("Artifact", data["artifact_id"]))
    if data["error"]:
        facts.append(("Error", render.Text(render.told(data["error"]), style="red")))
    return facts


def _counted(data: dict[str, Any]) -> str:
    """Return what has been counted against the job so far, beside its limits; empty if nothing.

    Most attempts count for nothing: drained, snoozed or stopped hosts cost a job none.
    """
    said = []
    for name, words in (("losses", "lost {} of {} times"), ("retries", "{} of {} retries used")):
        count, most = data.get(name) or (0, 0)
        if count:
            said.append(words.format(count, most))
    return ", ".join(said)


def _state(data: dict[str, Any]) -> Any:
    from coordinator.cli import render

    state = render.state(data["state"])
    return state if data["in_plan"] else state.append(", no longer in the manifest", "default")


def _took(data: dict[str, Any]) -> str:
    """Return how long the newest attempt ran, and all of those in the history together."""
    from coordinator.cli import render

    runs = _runs(data["events"])
    if not runs or (len(runs) == 1 and data.get("started_at")):
        return render.took(data)
    in_all = render.span(sum((end - began).total_seconds() for began, end in runs))
    if len(runs) == 1:
        return f"{in_all} the attempt before"
    newest = f"{render.took(data)} the newest attempt, " if data.get("started_at") else ""
    return f"{newest}{in_all} all {len(runs)} together"


def _runs(events: list[dict[str, Any]]) -> list[tuple[datetime, datetime]]:
    """Return when each run of a trainer began and ended; one that goes on ends now."""
    runs = []
    began = None
    for event in events:
        at = datetime.fromisoformat(event["at"])
        if event["from"] == event["to"]:
            continue
        if event["to"] == "running":
            began = at
        elif event["from"] == "running" and began is not None:
            runs.append((began, max(began, at)))
            began = None
    if began is not None:
        runs.append((began, max(began, datetime.now(UTC))))
    return runs


def _progress(data: dict[str, Any]) -> str:
    """Return what the trainer says of itself: how much is done, of what, and how it stands."""
    from coordinator.cli import render

    now = data.get("progress") or {}
    said = [render.done(data)]
    if now.get("epoch") and now.get("epochs"):
        said.append(f"epoch {now['epoch']} of {now['epochs']}")
    for name, title in (("train_loss", "loss"), ("val_loss", "held-out loss")):
        if now.get(name) is not None:
            said.append(f"{title} {now[name]:.4f}")
    if (left := render.left(data)) != "-":
        said.append(f"{left} left")
    return ", ".join(said)
