"""The texts in the window of one job or one host: values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from broker.messages import JobRow
from coordinator.cli import printable
from coordinator.cli.render import ago, figure, short, size, state
from coordinator.cli.screen.jobs import losses, took
from coordinator.cli.screen.layout import clock, spark
from coordinator.live.mirror import HostSeen, Snapshot

_TITLE: Final = 10
_NAMED: Final = 6  # hosts of one reason that are named


def job_facts(row: JobRow, seen: Snapshot, width: int) -> Text:
    """Return how a job is, in a few lines."""
    at = f" on {row.host}" if row.host else ""
    tries = f", attempt {row.attempt}" if row.attempt else ""
    lines: list[tuple[str, str | Text]] = [
        ("Job", Text(printable(row.name), style="bold")),
        ("Id", row.job_id if width >= _TITLE + len(row.job_id) else short(row.job_id)),
        ("State", Text().append(state(row.state)).append(f"{at}{tries}, priority {row.priority}")),
    ]
    if row.started_at:
        lines.append(("Took", f"{took(row)}, begun {_local(row.started_at)}"))
    now = seen.progress.get(row.job_id) if row.state in {"running", "claimed"} else None
    if now is not None:
        epochs = f", epoch {now.epoch} of {now.epochs}" if now.epochs else ""
        eta = f", {clock(now.eta_s)} left" if now.eta_s is not None else ""
        lines.append(("Progress", f"{now.phase}{epochs}{eta}"))
    values = losses(seen.curves.get(row.job_id))
    if values:
        said = f"{values[0]:.4f} → {values[-1]:.4f}, best {min(values):.4f}  "
        lines.append(("Loss", said + spark(values, max(8, width - _TITLE - len(said)))))
    metrics = row.metrics or {}
    known = [name for name in metrics if not name.endswith("_ci") and figure(metrics, name) != "-"]
    if known:
        shown = [f"{name} {figure(metrics, name)}" for name in known[:4]]
        lines.append(("Metrics", "  ".join(shown)))
    if row.artifact_id:
        lines.append(("Artifact", short(row.artifact_id)))
    if row.error:
        lines.append(("Error", Text(printable(row.error).strip(), style="red")))
    return _facts(lines)


def host_facts(host: HostSeen, seen: Snapshot) -> Text:
    """Return what a host is and how it is."""
    capability, heartbeat = host.capability, host.heartbeat
    heard = f", heard {ago(str(at))}" if (at := host.row.get("last_seen")) else ""
    lines: list[tuple[str, str | Text]] = [
        ("Host", Text(host.name, style="bold")),
        (
            "State",
            Text().append(state(host.presence)).append(heard),
        ),
    ]
    lines += [("Barred", Text(printable(str(why)), style="yellow")) for why in
              host.row.get("barred") or ()]  # fmt: skip
    if heartbeat is not None and heartbeat.refuses:
        lines.append(("Refuses", Text(printable(heartbeat.refuses), style="yellow")))
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
            lines.append(("Data", Text("none; start its agent with --data DIR", style="yellow")))
        if capability.gpu_problem:
            lines.append(("GPU", Text(printable(capability.gpu_problem), style="yellow")))
    gpus = (heartbeat.gpus if heartbeat and heartbeat.gpus else ()) or (
        capability.gpus if capability else ()
    )
    for gpu in gpus:
        parts = [f"{gpu.index}: {gpu.name or 'CUDA'}"]
        if gpu.vram_total_bytes:
            parts.append(f"{size(gpu.vram_free_bytes)} free of {size(gpu.vram_total_bytes)}")
        parts += [f"{gpu.use_percent:.0f} %"] if gpu.use_percent is not None else []
        parts += [f"{gpu.power_w:.0f} W"] if gpu.power_w is not None else []
        lines.append(("GPU", printable(", ".join(parts))))
    for held in heartbeat.jobs if heartbeat else ():
        row = seen.jobs.get(held.job_id)
        done = f" {held.progress:.0%}" if held.progress is not None else ""
        name = printable(row.name) if row else held.job_id[:12]
        lines.append(("Job", f"{name}, attempt {held.attempt}, {held.phase}{done}"))
    return _facts(lines)


def history(data: Mapping[str, Any]) -> Text:
    """Return what happened to a job, the newest first."""
    rows = [
        (_local(event["at"]), event["event"], event["host"] or "", event["who"].partition(":")[0],
         event["why"] or "")
        for event in reversed(data["events"])
    ]  # fmt: skip
    return _table(("AT", "EVENT", "HOST", "BY", "WHY"), rows)


def story(events: Sequence[Mapping[str, Any]]) -> Text:
    """Return what happened on a host, the newest first."""
    if not events:
        return Text("nothing in the last day")
    rows = [
        (_local(event["at"]),
         event["event"] if event["outcome"] == "done" else f"{event['event']} refused",
         event["name"] or "", event["who"], event["why"] or "")
        for event in reversed(events)
    ]  # fmt: skip
    return _table(("AT", "EVENT", "JOB", "BY", "WHY"), rows)


def log(data: Mapping[str, Any]) -> Text:
    """Return the end of a job's output."""
    if not data["lines"]:
        return Text("no output yet")
    head = "… (the beginning is not kept)\n" if data["truncated"] else ""
    return Text(head + printable("\n".join(data["lines"])))


def why(data: Mapping[str, Any]) -> Text:
    """Return why a job does not run: reasons, with the hosts that each is of."""
    text = Text(printable(data["summary"]), style="bold")
    by_reason: dict[str, list[str]] = {}
    for host in data["hosts"]:
        for reason in host["reasons"] or ["could take it"]:
            by_reason.setdefault(reason, []).append(host["host"])
    for reason, hosts in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
        text.append(f"\n\n{printable(reason)}", style="")
        text.append(f"\n  {len(hosts)}: {', '.join(hosts[:_NAMED])}{more}", style="dim")
    return text


def _facts(lines: Iterable[tuple[str, str | Text]]) -> Text:
    text = Text()
    for title, said in lines:
        text.append("\n" if text.plain else "")
        text.append(f"{title:<{_TITLE}}", style="dim")
        text.append(said)
    return text


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Text:
    """Return rows under titles; the last column goes on in the next line by itself."""
    shown = [[printable(cell).strip().replace("\n", " ") for cell in row] for row in rows]
    widths = [
        max([len(title), *(len(row[index]) for row in shown)])
        for index, title in enumerate(titles[:-1])
    ]
    text = Text()
    for row in [titles, *shown]:
        start = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths))
        text.append(f"{start}  {row[-1]}\n", style="dim" if row is titles else "")
    return text


def _local(at: str) -> str:
    try:
        return f"{datetime.fromisoformat(at).astimezone():%m-%d %H:%M:%S}"
    except ValueError:
        return at
