"""What there is to say of a job: how it is, what was asked for, and what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from broker.figures import in_toml
from broker.wrapping import printable
from coordinator.client.rows import Row, title_of
from coordinator.jobs.causes import in_words
from coordinator.jobs.job_progress import rest_words
from coordinator.jobs.plan_entries import DEFAULT_RETRIES, DEFAULT_STALL_S, OF_TELEMETRY
from coordinator.jobs.result_words import metric_rows
from coordinator.jobs.waiting_words import no_room
from coordinator.ui.facts import Fact, Link
from coordinator.ui.fitted_table import Column, Table
from coordinator.ui.fleet_columns import JOBS, WARN, left_s, spark, took
from coordinator.ui.terminal import Text, state, styled
from coordinator.ui.words import by, first_line, listed, local, namesakes, short

Told = Mapping[str, Any]  # as the coordinator has told
CURVE: Final = 24  # characters
_SHARE: Final = next(one for one in JOBS if one.key == "share")
# What is said only where it is not as the manifest has it by default.
_USUAL: Final[Told] = {
    "train_hosts": [], "n_resamples": 1000, "allowed_hosts": [], "denied_hosts": [],
    "on_lost": None, "timeout_s": None, "stall_timeout_s": DEFAULT_STALL_S,
    "retries": DEFAULT_RETRIES,
}  # fmt: skip


def facts(data: Told, row: Row, ran: str = "") -> Iterator[Fact]:
    """Yield what there is to say of a job; `ran`: how long it took, else its newest attempt.

    `data` is the row that was told, with `spec` and what else an answer to `show` has, if there is.
    """
    yield "Job", Text(printable(data["name"]), "bold")
    yield "Id", data["job_id"]
    yield "State", _state(data, row)
    for one in namesakes(data):
        yield "Namesake", one
    yield "Counted", counted(data)
    yield "Asked by", data.get("submitted_by")
    yield trainer(row)
    if spec := data.get("spec"):
        values = [f"{key} = {in_toml(value)}" for key, value in spec["hyper"].items()]
        yield "Parameters", ", ".join(values) or "the defaults"
        yield from asked(data)
    if said := ran or took(row):
        begun = f", begun {local(data['started_at'])}" if data["started_at"] else ""
        yield "Took", f"{said}{begun}"
    yield "Progress", _progress(data, row)
    if losses := row.get("losses"):
        best = f"{losses[0]:.4f} → {losses[-1]:.4f}, best {min(losses):.4f}"
        yield "Loss", f"{best}  {spark(losses, CURVE)}"
    yield "Artifact", data["artifact_id"]
    yield "Error", Text(printable(data["error"] or "").strip(), "red")


def trainer(row: Row) -> Fact:
    """Return what trains: a program, or the model of a host's own trainer."""
    if digest := row["program"]:
        return "Program", Link(title_of(row["model"], digest), f"/program/{digest}")
    return "Model", ", ".join(filter(None, (row["model"], row["mode"])))


def asked(data: Told) -> Iterator[Fact]:
    """Yield what the manifest asks for beside parameters, by an answer to `show`."""
    spec = data["spec"]
    yield "Signed by", ", ".join((spec.get("program") or {}).get("signers", ()))
    yield "Version", spec.get("version")
    yield "Data", reads(data)
    before = [(_before(one), one["input"]) for one in data.get("predecessors") or ()]
    yield "Inputs", tuple(link for link, is_input in before if is_input)
    yield "After", tuple(link for link, is_input in before if not is_input)
    yield "Split" if spec["mode"] else "Seed", _split(spec)
    yield "Needs", listed(spec["needs"]) or "nothing special"
    for name, usual in _USUAL.items():
        if spec.get(name) not in (None, usual) and (spec["mode"] or name not in OF_TELEMETRY):
            yield name.removeprefix("n_").replace("_", " ").capitalize(), listed(spec.get(name))


def reads(data: Told) -> tuple[Link, ...]:
    """Return a job's datasets by its own names for them: `train = cifar@77b0f2a9c310`."""
    return tuple(
        Link(f"{name} = {title_of(*title.split('@'))}", f"/dataset/{title.split('@')[1]}")
        for name, title in (data.get("data") or {}).items()
    )


def _before(one: Told) -> Link:
    """Return a link to a job that comes before another one, with how it is."""
    said = f"{one['name'] or short(one['job_id'])} ({one['state'] or 'unknown'})"
    name = f"{one['input']} = " if one["input"] else ""
    return Link(f"{name}{said}", f"/job/{one['job_id']}")


def _split(spec: Told) -> str:
    folds = ""
    if not spec["mode"]:
        return str(spec["seed"])
    if spec.get("folds"):
        only = spec.get("fold")
        folds = f" (fold {only} of {spec['folds']})" if only else f" ({spec['folds']})"
    return f"by {spec['split_recipe']}{folds}, seed {spec['seed']}"


def counted(data: Told) -> str:
    """Return the losses and retries so far, with their limits; empty if there are none."""
    said = []
    for name, words in (("losses", "lost {} of {} times"), ("retries", "{} of {} retries used")):
        count, most = data.get(name) or (0, 0)
        if count:
            said.append(words.format(count, most))
    return ", ".join(said)


def _state(data: Told, row: Row) -> Text:
    """Return a job's state, with what there is to say beside it."""
    shown = styled(row["state"], WARN) if row["mark"] else state(row["state"])
    at = f" on {row['host']}" if row["host"] else ""
    tries = f", attempt {row['attempt']}" if row["attempt"] else ""
    more = f"; {row['marked']}" if row["marked"] else ""
    if row["unplaceable"]:
        more += f"; no known host can run it, `fleet why {row['name']}` says why"
    elif row["waits"]:
        more += f"; it {row['waits']}"
    elif lack := data.get("no_room"):
        more += f"; its result {no_room(lack)}"
    more += "" if row["planned"] else ", no longer in the manifest"
    return Text().append(shown).append(printable(f"{at}{tries}, priority {row['priority']}{more}"))


def how_far(row: Row) -> list[str]:
    """Return what the trainer says of itself: how much is done, of what."""
    said = [done] if (done := _SHARE.cell(row)[0]) else []
    return said + ([f"epoch {row['epoch'].replace('/', ' of ')}"] if row["epoch"] else [])


def _progress(data: Told, row: Row) -> str:
    """Return how far it is, how it stands, and for how much longer it trains."""
    now, said = data.get("progress") or {}, how_far(row)
    for name, title in (("train_loss", "loss"), ("val_loss", "held-out loss")):
        if now.get(name) is not None:
            said.append(f"{title} {now[name]:.4f}")
    if said and (more := rest_words(left_s(row))):
        said.append(more)
    return ", ".join(said)


def metrics(told: Told | None) -> list[tuple[str, str]]:
    """Return each metric of a result with its value and 95 % interval: `0.91 (0.88 to 0.93)`."""
    return [
        (name, f"{value} ({interval})" if interval else value)
        for name, value, interval in metric_rows(told)
    ]


def history(events: Iterable[Told], of: str = "host") -> Table:
    """Return what happened as a table; `of` is the key of what it is told of: `host` or `name`."""
    columns = (
        Column("AT", rank=4), Column("EVENT"), Column("TRY", rank=3, right=True),
        Column("JOB" if of == "name" else "HOST", rank=1, least=8),
        Column("BY", rank=2, least=20), Column("WHY", least=16, wrap=True),
    )  # fmt: skip
    return Table(columns, [event_cells(event, of) for event in events])


def event_host(event: Told) -> str | None:
    """Return the host of an event. Where a job has left its host, that is who did it."""
    role, _, name = str(event["who"]).partition(":")
    return event["host"] or (name if role == "host" else None)


def event_cells(event: Told, of: str = "host") -> tuple[Any, ...]:
    """Return the cells of one event."""
    of_host = {"host": event_host(event)}
    refused = "" if event.get("outcome", "done") == "done" else " refused"
    return (
        local(event["at"]),
        f"{event['event']}{refused}",
        event.get("attempt") or "-",
        (event | of_host)[of] or "-",  # type: ignore[operator] # a dictionary, as JSON has it
        by(event | of_host),  # type: ignore[operator] # likewise
        first_line(in_words(event["why"]), 200),
    )
