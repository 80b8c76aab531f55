"""`fleet show`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from broker.protocol.messages import AskShow
from broker.sentences import is_figure
from broker.system.machine import new_id
from coordinator.jobs.causes import in_words
from coordinator.jobs.in_words import no_room, waits
from coordinator.jobs.set_aside import chance_words, command, metric_words
from coordinator.ui import terminal
from coordinator.ui.live import View, viewing
from coordinator.ui.several import Choice, choosing, exit_code, one_by_one
from coordinator.ui.terminal import Column
from coordinator.ui.words import namesakes, rest

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient

_TITLE = 12  # characters
MAX_ASIDE = 10


@click.command("show")
@choosing
@viewing
def show_command(client: OperatorClient, choice: Choice) -> View:
    """One job, or several: spec, result and history.

    JOB is a name, an id, or the start of one that fits no other. `Took` names what all attempts in
    the history took together, where there were several. Results that a requeue has set aside are
    listed with the command that fetches each, and until when they are kept.

    \b
    Examples:
      fleet show gbt-realistic
      fleet show gbt-realistic --watch
      fleet show --status failed
    """  # noqa: D301 - \b is click's

    def ask(job: str) -> dict[str, Any]:
        return dict(client.ask(AskShow(id=new_id(), job=job)))

    def draw(rows: list[dict[str, Any]]) -> Iterator[Any]:
        if not rows:
            yield choice.none()
        for number, row in enumerate(rows):
            yield from [""] if number else []
            yield from _draw(row) if row["ok"] else [f"error: {row['message']}"]

    if (only := choice.only) is not None:
        return View(lambda: ask(only), _draw)
    return View(lambda: [*one_by_one(choice.asked(client, "show"), ask)], draw, exit_code)


def _draw(data: dict[str, Any]) -> Iterator[Any]:
    for title, value in _facts(data):
        line = terminal.Text(f"{title:<{_TITLE}}")
        shown = value if isinstance(value, terminal.Text) else terminal.printable(str(value))
        yield terminal.Line(line.append(shown), indent=_TITLE)
    if data["metrics"]:
        yield "\nMetrics"
        for name, value in data["metrics"].items():
            if not name.endswith("_ci") and is_figure(value):
                yield f"  {name:<20} {terminal.figure(data['metrics'], name)}"
    if aside := [one for one in data["results"] if one["set_aside_at"]]:
        yield "\nSet aside"
        yield from _set_aside(data, aside)
    yield "\nHistory"
    columns = (
        Column("AT"),
        Column("EVENT"),
        Column("TRY", rank=3, right=True),
        Column("HOST", rank=1, least=8),
        Column("BY", rank=2, least=20),
        Column("WHY", least=16, wrap=True),
    )
    yield terminal.table(columns, [_event(event) for event in data["events"]])


def _set_aside(data: dict[str, Any], results: list[dict[str, Any]]) -> Iterator[Any]:
    """Tell of results that a requeue has taken from the job, the newest first, each in a line."""
    job = terminal.short(data["job_id"]) if data["others"] else data["name"]
    for one in reversed(results[-MAX_ASIDE:]):
        said = [metric] if (metric := metric_words(one["metrics"])) else []
        said += [terminal.size(one["size_bytes"])] if one["size_bytes"] is not None else []
        if not one["is_there"]:
            said.append("deleted")
        elif one["kept_until"] is None:
            said.append("which the job has again")
        else:
            how = command(job, one["attempt"])
            said.append(f"kept until {terminal.moment(one['kept_until'])}: {how}")
        came = terminal.moment(one["at"])
        yield terminal.Line(f"  attempt {one['attempt']}, of {came}: {', '.join(said)}")
    if len(results) > MAX_ASIDE:
        yield f"  and {len(results) - MAX_ASIDE} earlier (--json has them)"


def _event(event: dict[str, Any]) -> tuple[Any, ...]:
    # Where the job left its host, the row names none any more: it is the one that did it.
    role, _, name = str(event["who"]).partition(":")
    event = event | {"host": event["host"] or (name if role == "host" else None)}
    return (
        terminal.local(event["at"]),
        event["event"],
        event["attempt"] or "-",
        event["host"] or "-",
        terminal.by(event),
        terminal.first_line(in_words(event["why"]), 200),
    )


def _facts(data: dict[str, Any]) -> list[tuple[str, Any]]:
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
    if said := _progress(data):
        facts.append(("Progress", said))
    if data["artifact_id"]:
        facts.append(("Artifact", data["artifact_id"]))
    if data["error"]:
        facts.append(("Error", terminal.Text(terminal.told(data["error"]), style="red")))
    return facts


def _counted(data: dict[str, Any]) -> str:
    """Return the losses and retries so far, with their limits; empty if there are none."""
    said = []
    for name, words in (("losses", "lost {} of {} times"), ("retries", "{} of {} retries used")):
        count, most = data.get(name) or (0, 0)
        if count:
            said.append(words.format(count, most))
    return ", ".join(said)


def _state(data: dict[str, Any]) -> Any:
    state = terminal.state_of(data)
    if data.get("below_chance"):
        state.append(f"; {chance_words(data['metrics'])}", "default")
    if data.get("unplaceable"):
        why = f"`fleet why {data['name']}` says why"
        state.append(f"; no known host can run it, {why}", "default")
    elif waits_for := data.get("waits_for"):
        state.append(f"; it {terminal.printable(waits(waits_for))}", "default")
    elif lack := data.get("no_room"):
        state.append(f"; its result {no_room(lack)}", "default")
    return state if data["in_plan"] else state.append(", no longer in the manifest", "default")


def _took(data: dict[str, Any]) -> str:
    """Return how long the newest attempt ran, and all of those in the history together."""
    ran = _ran_s(data["events"])
    newest = terminal.took(data)
    if not ran or (len(ran) == 1 and newest):
        return newest or "-"
    in_all = terminal.span(sum(ran.values()))
    if len(ran) == 1:
        return f"{in_all} the attempt before"
    newest = f"{newest} the newest attempt, " if newest else ""
    return f"{newest}{in_all} all {len(ran)} together"


def _ran_s(events: list[dict[str, Any]]) -> dict[int, float]:
    """Return how long each attempt ran: as its agent measured it, else from start to end."""
    ran: dict[int, float] = {}
    begun: dict[int, datetime] = {}
    for event in events:
        at, attempt = datetime.fromisoformat(event["at"]), event["attempt"]
        if event["ran_s"] is not None:
            begun.pop(attempt, None)
            ran[attempt] = event["ran_s"]
        elif event["from"] == event["to"]:
            continue
        elif attempt in begun:
            ran[attempt] = max(0.0, (at - begun.pop(attempt)).total_seconds())
        if event["to"] == "running" != event["from"]:
            begun[attempt] = at
    now = datetime.now(UTC)
    return ran | {one: max(0.0, (now - at).total_seconds()) for one, at in begun.items()}


def _progress(data: dict[str, Any]) -> str:
    """Return what the trainer says of itself: how much is done, of what, and how it stands."""
    now = data.get("progress") or {}
    said = [done] if (done := terminal.done(data)) else []
    if now.get("epoch") and now.get("epochs"):
        said.append(f"epoch {now['epoch']} of {now['epochs']}")
    for name, title in (("train_loss", "loss"), ("val_loss", "held-out loss")):
        if now.get(name) is not None:
            said.append(f"{title} {now[name]:.4f}")
    if left := terminal.left(data):
        said.append(rest(left))
    return ", ".join(said)
