"""Jobs and hosts as plain rows for the tables of `fleet top` and of the web page.

Pure: a snapshot in, rows out. A row is made anew only when something it is made of has changed.
Times are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from broker.clock import Now, seconds_of
from broker.errors import RemoteError
from broker.figures import is_figure, rounded
from broker.protocol import messages as m
from coordinator.client.mirror import Going, HostSeen, Snapshot
from coordinator.jobs import host_condition, reason_words, result_words, waiting_words
from coordinator.jobs.agent_words import holds

STATES: Final = ("pending", "claimed", "running", "completed", "failed", "cancelled")
UNPLACEABLE: Final = "unplaceable"  # beside the states, what a pending job may be chosen by
NO_HOST: Final = "no host can run it"
_AWAITS_CUDA: Final = waiting_words.awaits({"what": "CUDA"})
_MAKERS: Final = ("NVIDIA ", "GeForce ", "AMD ", "Radeon ")  # say nothing that the model does not
HELD: Final = frozenset({"claimed", "running"})
DONE: Final = frozenset({"completed", "failed"})
MOST: Final = (1 << 63) - 1  # what the JSON of a page holds

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delta:
    """What has changed in a table, as AG Grid's transactions have it; `remove` are ids."""

    add: list[Row]
    update: list[Row]
    remove: list[str]

    def __bool__(self) -> bool:
        return bool(self.add or self.update or self.remove)


@dataclass(slots=True)
class Table:
    """The rows of one kind, by id. `made_of` are the values of which each was made."""

    rows: dict[str, Row] = field(default_factory=dict)
    _made_of: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def update(self, sources: Mapping[str, tuple[Any, ...]], make: Callable[..., Row]) -> Delta:
        """Take what each row is made of now, by id; return what has changed.

        Sources are compared by identity: whoever changes something hands out something new.
        """
        delta = Delta([], [], [key for key in self.rows if key not in sources])
        for key in delta.remove:
            del self.rows[key], self._made_of[key]
        for key, source in sources.items():
            before = self._made_of.get(key)
            if before is not None and [*map(id, before)] == [*map(id, source)]:
                continue
            self._made_of[key] = source
            row = make(*source)
            if before is None:
                delta.add.append(row)
            elif row != self.rows[key]:
                delta.update.append(row)
            self.rows[key] = row
        return delta


@dataclass(slots=True)
class Tables:
    """Jobs and hosts of one fleet as they were last shown."""

    jobs: Table = field(default_factory=Table)
    hosts: Table = field(default_factory=Table)

    def update(self, seen: Snapshot, now: Now) -> tuple[Delta, Delta]:
        """Take a snapshot; return what has changed among the jobs, and among the hosts."""
        going = seen.going()
        jobs = self.jobs.update(
            {key: (job, *going.get(key, Going())) for key, job in seen.jobs.items()},
            lambda job, *how: job_row(job, Going(*how)),
        )
        given: dict[str, dict[str, Row]] = {}
        for key, row in self.jobs.rows.items():
            if row["state"] in HELD:
                given.setdefault(row["host"], {})[key] = row
        hosts = self.hosts.update(
            {
                name: (host, *self._at_work(host, given.get(name, {})))
                for name, host in seen.hosts.items()
            },
            lambda host, ending, *held: host_row(host, held, ending=ending, now=now),
        )
        return jobs, hosts

    def _at_work(self, host: HostSeen, given: Mapping[str, Row]) -> tuple[Any, ...]:
        """Return whether a host is ending a job, and then the rows of those that it holds.

        `given` are the rows of its jobs, which may be newer than its heartbeat. That has their
        order, and jobs of which no row is known: those are none.
        """
        if not host.online:
            return (False,)
        rows = self.jobs.rows
        told = [one.job_id for one in host.heartbeat.jobs] if host.heartbeat else []
        held = dict.fromkeys([*(key for key in told if key in given or key not in rows), *given])
        # What is completed, or has failed, has ended there before it was known here.
        over = (rows[key]["state"] for key in told if key not in held)
        return any(state not in DONE for state in over), *map(given.get, held)


def job_row(job: m.JobRow, going: Going) -> Row:
    """Return one job's row."""
    metric, value, interval = main_metric(job.metrics)
    progress, held, ends_s, is_away = going
    metrics = job.metrics or {}
    waits_for = job.waits_for.model_dump() if job.waits_for else None
    phase = progress.phase if progress else ""
    fault = held.fault if held else None
    held_up = waiting_words.held_up(job.host or "-", fault.told()) if fault else ""
    return {
        "id": job.job_id,
        "name": job.name,
        "model": job.model,
        "mode": job.mode,
        "program": job.program or "",
        "datasets": job.datasets,
        "state": job.state,
        "host": job.host or "",
        "away": is_away,
        "attempt": job.attempt,
        "priority": job.priority,
        "phase": held.phase if held and held.phase != "running" else phase,
        "share": 1.0 if job.state == "completed" else going.share,
        "epoch": epoch_of(progress) if progress else "",
        "ends": None if ends_s is None else round(ends_s * 1000),
        "loss": loss_of(progress) if progress else None,
        "metric": metric,
        "value": None if value is None else float(value),
        "score": "" if value is None else rounded(value),
        "interval": interval,
        "ap": figure_of(metrics, "average_precision"),
        "f1": figure_of(metrics, "f1" if "f1" in metrics else "macro_f1"),
        "created": epoch_ms(job.created_at),
        "started": epoch_ms(job.started_at),
        "finished": epoch_ms(job.finished_at),
        "ran": None if job.ran_s is None else round(1000 * job.ran_s),
        "error": (job.error or "").strip().partition("\n")[0][:200],
        "planned": job.in_plan,
        "mark": result_words.short_marks(job.marks),
        "marked": result_words.mark_words(job.marks, job.metrics),
        "unplaceable": job.unplaceable,
        "awaits": waiting_words.awaits(waits_for) if waits_for else "",
        "waits": waiting_words.waits(waits_for) if waits_for else held_up,
        "artifact": job.artifact_id,
    }


def listed(row: Mapping[str, Any], now_s: float) -> Row:
    """Return the row of a job in an answer to `list` or `show`. Raises `RemoteError`."""
    try:
        job = m.JobRow.model_validate(row)
        told = row.get("progress")
        progress = None if told is None else m.Progress.model_validate(told)
    except ValidationError as error:
        raise RemoteError(f"the coordinator's answer cannot be used: {error}"[:300]) from None
    left_s, held = row.get("left_s"), row.get("held") or {}
    phase = held.get("phase", "running")
    made = job_row(job, Going(progress, None, None if left_s is None else now_s + left_s))
    if held.get("fault"):
        made["waits"] = waiting_words.held_up(row["host"], held["fault"])
    made["away"] = bool(row.get("away") or row.get("no_room"))  # the trainer's word is of no use
    made["phase"] = made["phase"] if phase == "running" else phase
    made["share"] = made["share"] if row.get("share") is None else row["share"]
    made["awaits"] = made["awaits"] or (_AWAITS_CUDA if row.get("awaits_cuda_s") else "")
    return made


def epoch_of(progress: m.Progress) -> str:
    """Return `12/60`, or nothing where there are no epochs."""
    if progress.epoch is None:
        return ""
    return f"{progress.epoch}/{progress.epochs}" if progress.epochs else str(progress.epoch)


def loss_of(progress: m.Progress) -> float | None:
    """Return the newest loss: on what is held out, where it is known."""
    return progress.train_loss if progress.val_loss is None else progress.val_loss


def took_s(row: Row, now_s: float) -> float | None:
    """Return how long a job's last attempt has run, as far as that is known."""
    if row["ran"] is not None:
        return float(row["ran"] / 1000)
    if row["started"] is None:
        return None
    end_s = now_s if row["finished"] is None else row["finished"] / 1000
    return float(max(0.0, end_s - row["started"] / 1000))


def main_metric(metrics: Mapping[str, Any] | None) -> tuple[str, float | None, str]:
    """Return a result's first metric: its name, its value, its 95 % interval in words."""
    name = result_words.main_metric(metrics)
    if metrics is None or name is None:
        return "", None, ""
    interval = result_words.interval_of(metrics.get(f"{name}_ci"))
    return result_words.metric_name(name), metrics[name], interval


def figure_of(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return a metric, none where it is no number."""
    value = metrics.get(name)
    return float(value) if is_figure(value) else None


def pushed_row(told: Mapping[str, Any]) -> Row:
    """Return the row of a program or dataset in an answer to `pushed`."""
    return {
        "id": f"{told['name']}@{told['digest']}",
        "digest": told["digest"],
        "title": title_of(told["name"], told["digest"]),
        "size": told["size_bytes"],
        "pushed": epoch_ms(told["pushed_at"]),
        "by": told["pushed_by"],
        "jobs": told["jobs"],
        "hosts": reason_words.names(told["hosts"], told["host_count"]) or "none",
        "signers": ", ".join(told.get("signers", ())) or "nobody",
        "files": told.get("files"),
    }


def title_of(name: str, digest: str) -> str:
    """Return how a program or dataset is called where people read it."""
    return f"{name}@{digest[:12]}"


def worker(host: HostSeen, now: Now) -> Row:
    """Return the row of a host by an answer to `workers` alone."""
    jobs = host.row.get("jobs") or ()
    held = [
        {
            "id": one["job_id"],
            "name": one["name"] or one["job_id"][:12],
            "phase": "" if one["phase"] == "running" else one["phase"],
            "share": one.get("progress"),
        }
        for one in (jobs if host.online else ())
    ]
    return host_row(host, held, ending=False, now=now)


def _doing(job: Row) -> str:
    """Name a job that a host holds, with how far it is, or what it is at instead of training."""
    if job["phase"] not in {"", "train"}:
        return f"{job['name']} ({job['phase']})"
    return job["name"] if job["share"] is None else f"{job['name']} {job['share']:.0%}"


def host_row(host: HostSeen, held: Sequence[Row | None], *, ending: bool, now: Now) -> Row:
    """Return one host's row. Memory in bytes, power in W, use in percent.

    `held` are the rows of what it holds, none of what no row is known of; `ending`: it has yet to
    say that a job has ended, which did.
    """
    known_jobs = [job for job in held if job is not None]
    job = known_jobs[0] if known_jobs else None
    said = (
        host.capability and host.capability.description,
        (host.row.get("policy") or {}).get("description"),
    )
    beat = host.heartbeat if host.online else None
    made = host.capability
    gpus = beat.gpus if beat else ()
    total = made.ram_total_bytes if made else None
    free = beat.ram_available_bytes if beat else None
    all_gpus = (*(made.gpus if made else ()), *gpus)
    known = {gpu.index: gpu.vram_total_bytes for gpu in all_gpus if gpu.vram_total_bytes}
    barred = [reason_words.words(one) for one in host.row.get("barred") or ()]
    return {
        "id": host.name,
        "state": host.condition,
        "tone": host_condition.tone(host.condition),
        "online": host.online,
        "barred": "; ".join(barred or filter(None, [holds(host.refuses)])),
        "cpu": beat.cpu_percent if beat else None,
        "load": beat.load_1m if beat else None,
        "ram_used": max(0, total - free) if total is not None and free is not None else None,
        "ram_total": total,
        "device": _device({gpu.index: gpu.name or "CUDA" for gpu in reversed(all_gpus)}),
        "gpu": _known(max, [gpu.use_percent for gpu in gpus]),
        "vram_used": _known(sum, [_used(gpu, known) for gpu in gpus]),
        "vram_total": _known(sum, known.values()),
        "power": _known(sum, [gpu.power_w for gpu in gpus]),
        "cores": made.physical_cores if made else None,
        "version": made.agent_version if made else "",
        "description": next(filter(None, said), ""),
        "jobs": len(held),
        "doing": ", ".join(map(_doing, known_jobs)),
        "ending": ending,
        "slots": made.slots if made else 1,
        "job": job["name"] if job else "",
        "job_id": job["id"] if job else "",
        "share": job["share"] if job else None,
        "seen": seen_ms(host, now),
    }


def seen_ms(host: HostSeen, now: Now) -> int | None:
    """Return when a host was last heard of, by us or else by the coordinator."""
    if host.heard_s is not None:
        return round((now.wall_s - (now.mono_s - host.heard_s)) * 1000)
    return epoch_ms(host.row.get("last_seen"))


def _device(names: Mapping[int, str]) -> str:
    name = next(iter(names.values()), "")
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    return f"{len(names)} x {name}" if len(names) > 1 else name


def _used(gpu: m.Gpu, known: Mapping[int, int]) -> int | None:
    total = known.get(gpu.index)
    if total is None or gpu.vram_free_bytes is None:
        return None
    return max(0, total - gpu.vram_free_bytes)


def _known(count: Callable[[list[Any]], Any], values: Iterable[Any]) -> Any:
    """Return the sum or the largest of the values that are known; none where none is."""
    known = [value for value in values if value is not None]
    return min(count(known), MOST) if known else None


def epoch_ms(text: Any) -> int | None:
    """Return an RFC 3339 time in milliseconds since the epoch; none for what is no time."""
    at_s = seconds_of(text)
    return None if at_s is None else round(at_s * 1000)


def meant(jobs: Iterable[Row], text: str) -> list[Row]:
    """Return the jobs that a text may mean, as at the command line: a name, or the start of an id.

    A name stands for the entry in the plan; one that has left it yields to that.
    """
    if not text:
        return []
    known = list(jobs)
    named = [row for row in known if row["name"] == text]
    if named:
        return [row for row in named if row["planned"]] or named
    return [row for row in known if row["id"].startswith(text) or row["name"].startswith(text)]


def counts(jobs: Iterable[Row]) -> dict[str, int]:
    """Return how many jobs are in each state."""
    found = dict.fromkeys(STATES, 0)
    for row in jobs:
        found[row["state"]] += 1
    return found
