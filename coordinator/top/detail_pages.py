"""The texts in the window of one job or one host: values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from broker.protocol.messages import JobRow
from broker.sentences import printable
from coordinator.client.seen import Going, HostSeen, Snapshot
from coordinator.jobs import curve, job_progress
from coordinator.jobs.set_aside import chance_words
from coordinator.scheduler.explanation_layout import alike, waits, wished
from coordinator.top.job_table import left, losses, took
from coordinator.top.layout import spark
from coordinator.ui.columns import Column, Table
from coordinator.ui.terminal import ago, by, figure, local, short, size, state, told
from coordinator.ui.words import rest

TITLE: Final = 10
_LEAST: Final = 20  # characters for the words at the end of a row
_NAMED: Final = 6  # hosts of one reason that are named


def job_facts(row: JobRow, seen: Snapshot, width: int) -> Text:
    """Return how a job is, in a few lines."""
    lines: list[tuple[str, str | Text]] = [
        ("Job", Text(printable(row.name), style="bold")),
        ("Id", row.job_id if width >= TITLE + len(row.job_id) else short(row.job_id)),
        ("State", _state(row)),
    ]
    if row.started_at:
        lines.append(("Took", f"{took(row)}, begun {local(row.started_at)}"))
    going = seen.going().get(row.job_id, Going())
    if (now := going.progress) is not None:
        epochs = f", epoch {now.epoch} of {now.epochs}" if now.epochs else ""
        said = f", {rest(left(going))}" if left(going) else ""
        lines.append(("Progress", f"{now.phase}{epochs}{said}"))
    values = losses(curve.of(row, seen.curves))
    if values:
        said = f"{values[0]:.4f} → {values[-1]:.4f}, best {min(values):.4f}  "
        lines.append(("Loss", said + spark(values, max(8, width - TITLE - len(said)))))
    metrics = row.metrics or {}
    known = [name for name in metrics if not name.endswith("_ci") and figure(metrics, name)]
    if known:
        shown = [f"{name} {figure(metrics, name)}" for name in known[:4]]
        lines.append(("Metrics", "  ".join(shown)))
    if row.artifact_id:
        lines.append(("Artifact", short(row.artifact_id)))
    if row.error:
        lines.append(("Error", Text(told(row.error).strip(), style="red")))
    return _facts(lines)


def _state(row: JobRow) -> Text:
    """Return a job's state, and what there is to say beside it."""
    at = f" on {row.host}" if row.host else ""
    tries = f", attempt {row.attempt}" if row.attempt else ""
    never = "; no known host can run it, 3 says why" if row.unplaceable else ""
    if row.waits_for is not None:
        never = f"; it {waits(row.waits_for.model_dump())}"
    if row.below_chance:
        never = f"; {chance_words(row.metrics or {})}"
    shown = Text(row.state, "yellow") if row.below_chance else state(row.state)
    return Text().append(shown).append(f"{at}{tries}, priority {row.priority}{never}")


def host_facts(host: HostSeen, seen: Snapshot) -> Text:
    """Return what a host is and how it is."""
    capability, heartbeat = host.capability, host.heartbeat
    heard = f", heard {ago(str(at))}" if (at := host.row.get("last_seen")) else ""
    lines: list[tuple[str, str | Text]] = [
        ("Host", Text(host.name, style="bold")),
        (
            "State",
            Text().append(state(host.condition)).append(heard),
        ),
    ]
    lines += [("Barred", Text(told(str(why)), style="yellow")) for why in
              host.row.get("barred") or ()]  # fmt: skip
    if host.refuses:
        lines.append(("Takes no jobs", Text(told(host.refuses), style="yellow")))
    if capability is not None:
        what = [capability.description, capability.cpu, f"{capability.physical_cores} cores"]
        lines.append(("Is", printable(", ".join(part for part in what if part))))
        lines.append(("System", printable(f"{capability.os}, {capability.arch}, Python "
                                          f"{capability.python}")))  # fmt: skip
        free = heartbeat.ram_available_bytes if heartbeat else capability.ram_available_bytes
        lines.append(("RAM", f"{size(free)} free of {size(capability.ram_total_bytes)}"))
        trainers = ", ".join(sorted(capability.trainers)) or "none"
        lines.append(("Trainers", printable(trainers)))
        if capability.data_id is None:
            lines.append(("Data", Text("none", style="yellow")))
        if capability.gpu_problem:
            lines.append(("GPU", Text(printable(capability.gpu_problem), style="yellow")))
    gpus = (heartbeat.gpus if heartbeat and heartbeat.gpus else ()) or (
        capability.gpus if capability else ()
    )
    for gpu in gpus:
        parts = [f"{gpu.index}: {gpu.name or 'CUDA'}"]
        if gpu.vram_total_bytes:
            parts.append(f"{size(gpu.vram_free_bytes)} free of {size(gpu.vram_total_bytes)}")
        parts += [f"{gpu.use_percent:.0f}%"] if gpu.use_percent is not None else []
        parts += [f"{gpu.power_w:.0f} W"] if gpu.power_w is not None else []
        lines.append(("GPU", printable(", ".join(parts))))
    for held in heartbeat.jobs if heartbeat else ():
        row, said = seen.jobs.get(held.job_id), seen.progress.get(held.job_id)
        is_newer = said is not None and said.attempt == held.attempt
        share = job_progress.share(said if is_newer else None, held)
        done = f" {share:.0%}" if share is not None else ""
        name = printable(row.name) if row else held.job_id[:12]
        lines.append(("Job", f"{name}, attempt {held.attempt}, {held.phase}{done}"))
    return _facts(lines)


def history(data: Mapping[str, Any]) -> Table:
    """Return what happened to a job, the newest first."""
    rows = [
        (local(event["at"]), event["event"], event["host"] or "", by(event), event["why"] or "")
        for event in reversed(data["events"])
    ]  # fmt: skip
    return Table(_columns("HOST"), rows)


def story(events: Sequence[Mapping[str, Any]]) -> Text | Table:
    """Return what happened on a host, the newest first."""
    if not events:
        return Text("nothing in the last day")
    rows = [
        (local(event["at"]),
         event["event"] if event["outcome"] == "done" else f"{event['event']} refused",
         event["name"] or "", by(event), event["why"] or "")
        for event in reversed(events)
    ]  # fmt: skip
    return Table(_columns("JOB"), rows)


def _columns(of: str) -> tuple[Column, ...]:
    return (
        Column("AT", rank=3), Column("EVENT"), Column(of, rank=1), Column("BY", rank=2),
        Column("WHY", least=_LEAST, wrap=True),
    )  # fmt: skip


def log(data: Mapping[str, Any]) -> Text:
    """Return the end of a job's output."""
    if not data["lines"]:
        return Text("no output yet")
    head = "… (the beginning is not kept)\n" if data["truncated"] else ""
    return Text(head + printable("\n".join(data["lines"])))


def why(data: Mapping[str, Any]) -> Text:
    """Return why a job does not run: what would help, and reasons with the hosts they are of."""
    text = Text(told(data["summary"]), style="bold")
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


def _facts(lines: Iterable[tuple[str, str | Text]]) -> Text:
    text = Text()
    for title, said in lines:
        text.append("\n" if text.plain else "")
        text.append(f"{title:<{TITLE}}", style="dim")
        text.append(said)
    return text
