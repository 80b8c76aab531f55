"""How one job is, in lines, and what happened: for `fleet show` and the windows of `fleet top`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from broker.figures import in_toml
from broker.wrapping import printable
from coordinator.client.rows import Row, title_of
from coordinator.jobs.causes import in_words
from coordinator.jobs.job_progress import rest_words
from coordinator.jobs.waiting_words import no_room
from coordinator.ui.fitted_table import Column, Table
from coordinator.ui.fleet_columns import JOBS, WARN, left_s, spark, took
from coordinator.ui.terminal import Text, state, styled
from coordinator.ui.words import by, first_line, local, namesakes, short

Told = Mapping[str, Any]  # as the coordinator has told
Facts = Iterable[tuple[str, str | Text]]
CURVE: Final = 24  # characters
_SHARE: Final = next(one for one in JOBS if one.key == "share")


def facts(data: Told, row: Row, ran: str = "") -> Iterator[tuple[str, str | Text]]:
    """Yield what there is to say of a job, each with its title; `ran`: how long, else the newest.

    `data` is the row that was told, with `spec` and what else an answer to `show` has, if there is.
    """
    yield "Job", Text(printable(data["name"]), "bold")
    yield "Id", data["job_id"]
    yield "State", _state(data, row)
    for one in namesakes(data):
        yield "Namesake", one
    if said := counted(data):
        yield "Counted", said
    if data.get("submitted_by"):
        yield "Asked for", f"by {data['submitted_by']}"
    spec = data.get("spec") or {}
    if digest := data.get("program"):
        signers = ", ".join((spec.get("program") or {}).get("signers", ()))
        by = f", signed by {signers}" if signers else ""
        yield "Program", f"{title_of(data['model'], digest)}{by}"
    else:
        yield "Model", ", ".join(filter(None, (data["model"], data["mode"])))
    if spec:
        if spec.get("version"):
            yield "Version", spec["version"]
        yield from _asked(spec, data.get("data"))
        yield from _predecessors(data)
    if said := ran or took(row):
        begun = f", begun {local(data['started_at'])}" if data["started_at"] else ""
        yield "Took", f"{said}{begun}"
    if said := _progress(data, row):
        yield "Progress", said
    if losses := row.get("losses"):
        best = f"{losses[0]:.4f} → {losses[-1]:.4f}, best {min(losses):.4f}"
        yield "Loss", f"{best}  {spark(losses, CURVE)}"
    if data["artifact_id"]:
        yield "Artifact", data["artifact_id"]
    if data["error"]:
        yield "Error", Text(printable(data["error"]).strip(), "red")


def data_words(data: Mapping[str, str]) -> str:
    """Return a job's datasets by its own names for them: `train = cifar@77b0f2a9c310`."""
    return ", ".join(f"{name} = {title_of(*of.split('@'))}" for name, of in data.items())


def _predecessors(data: Told) -> Iterator[tuple[str, str]]:
    """Yield which jobs come before it, with how each is: its inputs, and the others."""
    inputs, after = [], []
    for one in data.get("predecessors") or ():
        said = f"{one['name'] or short(one['job_id'])} ({one['state'] or 'unknown'})"
        inputs += [f"{one['input']} = {said}"] if one["input"] else []
        after += [] if one["input"] else [said]
    for title, jobs in (("Inputs", inputs), ("After", after)):
        if jobs:
            yield title, ", ".join(jobs)


def _asked(spec: Told, datasets: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    """Yield what the manifest asks for."""
    if datasets:
        yield "Data", data_words(datasets)
    values = [f"{key} = {in_toml(value)}" for key, value in spec["hyper"].items()]
    needs = [
        f"{name} {value}" if value is not True else name
        for name, value in spec["needs"].items()
        if value not in (None, False)
    ]
    yield "Parameters", ", ".join(values) or "the defaults"
    yield "Split" if spec["mode"] else "Seed", _split(spec)
    yield "Needs", ", ".join(needs) or "nothing special"


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


def _progress(data: Told, row: Row) -> str:
    """Return what the trainer says of itself: how much is done, of what, and how it stands."""
    now = data.get("progress") or {}
    said = [done] if (done := _SHARE.cell(row)[0]) else []
    said += [f"epoch {row['epoch'].replace('/', ' of ')}"] if row["epoch"] else []
    for name, title in (("train_loss", "loss"), ("val_loss", "held-out loss")):
        if now.get(name) is not None:
            said.append(f"{title} {now[name]:.4f}")
    if said and (more := rest_words(left_s(row))):
        said.append(more)
    return ", ".join(said)


def history(events: Iterable[Told], of: str = "host") -> Table:
    """Return what happened as a table; `of` is the key of what it is told of: `host` or `name`."""
    columns = (
        Column("AT", rank=4), Column("EVENT"), Column("TRY", rank=3, right=True),
        Column("JOB" if of == "name" else "HOST", rank=1, least=8),
        Column("BY", rank=2, least=20), Column("WHY", least=16, wrap=True),
    )  # fmt: skip
    return Table(columns, [event_cells(event, of) for event in events])


def event_cells(event: Told, of: str = "host") -> tuple[Any, ...]:
    """Return the cells of one event."""
    # Where the job left its host, the row names none any more: it is the one that did it.
    role, _, name = str(event["who"]).partition(":")
    of_host = {"host": event["host"] or (name if role == "host" else None)}
    refused = "" if event.get("outcome", "done") == "done" else " refused"
    return (
        local(event["at"]),
        f"{event['event']}{refused}",
        event.get("attempt") or "-",
        (event | of_host)[of] or "-",  # type: ignore[operator] # a dictionary, as JSON has it
        by(event | of_host),  # type: ignore[operator] # likewise
        first_line(in_words(event["why"]), 200),
    )
