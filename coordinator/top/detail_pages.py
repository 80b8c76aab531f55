"""The texts in the window of one job or one host: values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from broker.protocol.messages import Capability, Gpu, Heartbeat, JobRow
from broker.sentences import printable
from coordinator.client.rows import Row
from coordinator.client.seen import HostSeen, Snapshot
from coordinator.jobs import curve, job_progress
from coordinator.jobs.causes import in_words
from coordinator.jobs.in_words import alike, summary, wished, words
from coordinator.top.job_table import left, losses, took
from coordinator.top.layout import spark
from coordinator.ui.columns import Column, Table
from coordinator.ui.terminal import ago, by, figure, local, short, size, state, told
from coordinator.ui.words import rest

TITLE: Final = 10
_LEAST: Final = 20  # characters for the words at the end of a row
_NAMED: Final = 6  # hosts of one reason that are named

Facts = Iterable[tuple[str, str | Text]]


def job_facts(job: JobRow, row: Row, seen: Snapshot, width: int) -> Text:
    """Return how a job is, in a few lines."""
    return _laid_out(_of_job(job, row, seen, width))


def _of_job(job: JobRow, row: Row, seen: Snapshot, width: int) -> Iterator[tuple[str, str | Text]]:
    yield "Job", Text(printable(job.name), style="bold")
    yield "Id", job.job_id if width >= TITLE + len(job.job_id) else short(job.job_id)
    yield "State", _state(job, row)
    if job.started_at:
        yield "Took", f"{took(row)}, begun {local(job.started_at)}"
    if row["phase"]:
        epochs = f", epoch {row['epoch'].replace('/', ' of ')}" if row["epoch"] else ""
        yield "Progress", f"{row['phase']}{epochs}{', ' if left(row) else ''}{rest(left(row))}"
    if values := losses(curve.of(job, seen.curves)):
        said = f"{values[0]:.4f} → {values[-1]:.4f}, best {min(values):.4f}  "
        yield "Loss", said + spark(values, max(8, width - TITLE - len(said)))
    metrics = job.metrics or {}
    known = [name for name in metrics if not name.endswith("_ci") and figure(metrics, name)]
    if known:
        yield "Metrics", "  ".join(f"{name} {figure(metrics, name)}" for name in known[:4])
    if job.artifact_id:
        yield "Artifact", short(job.artifact_id)
    if job.error:
        yield "Error", Text(told(job.error).strip(), style="red")


def _state(job: JobRow, row: Row) -> Text:
    """Return a job's state, and what there is to say beside it."""
    at = f" on {job.host}" if job.host else ""
    tries = f", attempt {job.attempt}" if job.attempt else ""
    more = "no known host can run it, 3 says why" if job.unplaceable else ""
    if row["waits"]:
        more = f"it {row['waits']}"
    more = row["chance"] or more
    shown = Text(job.state, "yellow") if row["chance"] else state(job.state)
    also = f"; {more}" if more else ""
    return Text().append(shown).append(f"{at}{tries}, priority {job.priority}{also}")


def host_facts(host: HostSeen, seen: Snapshot) -> Text:
    """Return what a host is and how it is."""
    return _laid_out(_of_host(host, seen))


def _of_host(host: HostSeen, seen: Snapshot) -> Iterator[tuple[str, str | Text]]:
    capability, heartbeat = host.capability, host.heartbeat
    heard = f", heard {ago(str(at))}" if (at := host.row.get("last_seen")) else ""
    yield "Host", Text(host.name, style="bold")
    yield "State", Text().append(state(host.condition)).append(heard)
    for why in host.row.get("barred") or ():
        yield "Barred", Text(told(words(why)), style="yellow")
    if host.refuses:
        yield "Takes no jobs", Text(told(host.refuses), style="yellow")
    if capability is not None:
        yield from _of_capability(capability, heartbeat)
    gpus = heartbeat.gpus if heartbeat else ()
    for gpu in gpus or (capability.gpus if capability else ()):
        yield "GPU", printable(_gpu(gpu))
    for held in heartbeat.jobs if heartbeat else ():
        job, said = seen.jobs.get(held.job_id), seen.progress.get(held.job_id)
        is_newer = said is not None and said.attempt == held.attempt
        share = job_progress.share(said if is_newer else None, held)
        done = f" {share:.0%}" if share is not None else ""
        name = printable(job.name) if job else short(held.job_id)
        yield "Job", f"{name}, attempt {held.attempt}, {held.phase}{done}"


def _of_capability(
    made: Capability, heartbeat: Heartbeat | None
) -> Iterator[tuple[str, str | Text]]:
    what = [made.description, made.cpu, f"{made.physical_cores} cores"]
    yield "Is", printable(", ".join(filter(None, what)))
    yield "System", printable(f"{made.os}, {made.arch}, Python {made.python}")
    free = heartbeat.ram_available_bytes if heartbeat else made.ram_available_bytes
    yield "RAM", f"{size(free)} free of {size(made.ram_total_bytes)}"
    yield "Trainers", printable(", ".join(sorted(made.trainers)) or "none")
    if made.data_id is None:
        yield "Data", Text("none", style="yellow")
    if made.gpu_problem:
        yield "GPU", Text(printable(made.gpu_problem), style="yellow")


def _gpu(gpu: Gpu) -> str:
    parts = [f"{gpu.index}: {gpu.name or 'CUDA'}"]
    if gpu.vram_total_bytes:
        parts.append(f"{size(gpu.vram_free_bytes)} free of {size(gpu.vram_total_bytes)}")
    parts += [f"{gpu.use_percent:.0f}%"] if gpu.use_percent is not None else []
    parts += [f"{gpu.power_w:.0f} W"] if gpu.power_w is not None else []
    return ", ".join(parts)


def events(found: Sequence[Mapping[str, Any]], of: str) -> Table:
    """Return what happened, the newest first; `of` is the key of what it is told of."""
    columns = (
        Column("AT", rank=3), Column("EVENT"), Column("JOB" if of == "name" else "HOST", rank=1),
        Column("BY", rank=2), Column("WHY", least=_LEAST, wrap=True),
    )  # fmt: skip
    rows = [
        (
            local(event["at"]),
            f"{event['event']}{' refused' if event.get('outcome', 'done') != 'done' else ''}",
            event[of] or "",
            by(event),
            in_words(event["why"]),
        )
        for event in reversed(found)
    ]
    return Table(columns, rows)


def log(data: Mapping[str, Any]) -> Text:
    """Return the end of a job's output."""
    if not data["lines"]:
        return Text("no output yet")
    head = "… (the beginning is not kept)\n" if data["truncated"] else ""
    return Text(head + printable("\n".join(data["lines"])))


def why(data: Mapping[str, Any]) -> Text:
    """Return why a job does not run: what would help, and reasons with the hosts they are of."""
    text = Text(told(summary(data)), style="bold")
    title, changes = wished(data)
    if changes:
        text.append(f"\n\n{title}", style="")
    for change in changes:
        text.append(f"\n  {told(change)}", style="")
    for reasons, hosts in sorted(alike(data["hosts"]).items(), key=lambda item: -len(item[1])):
        more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
        text.append("\n\n" + "\n".join(told(one) for one in reasons), style="")
        text.append(f"\n  {len(hosts)}: {', '.join(hosts[:_NAMED])}{more}", style="dim")
    return text


def _laid_out(facts: Facts) -> Text:
    text = Text()
    for title, said in facts:
        text.append("\n" if text.plain else "")
        text.append(f"{title:<{TITLE}}", style="dim")
        text.append(said)
    return text
