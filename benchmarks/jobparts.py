"""Where a job's time goes: what the traces of `benchmarks.jobtrace` say, as a table."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.common import percentile, table

STEPS = (
    "assign on the wire",
    "assign at the agent",
    "trainer being started",
    "first instruction",
    "last instruction",
    "end seen",
    "bundled",
    "finished on the wire",
    "finished at the coordinator",
    "wanted",
    "last chunk at the coordinator",
    "stored",
    "completed on the wire",
)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a trace, in order of time."""
    with path.open() as file:
        return sorted((json.loads(line) for line in file), key=lambda row: row["at"])


Row = dict[str, Any]
Rule = tuple[str, Callable[[Row], bool], Callable[[Row], float]]


def _begun(row: Row) -> float:
    return float(row["at"])


def _done(row: Row) -> float:
    return float(row["at"] + row["took"])


def _is(what: str, **of: str) -> Callable[[Row], bool]:
    """Return whether a row is a message that passed there, and has these values."""
    return lambda row: row["what"] == what and of.items() <= row.get("of", {}).items()


def _local(name: str) -> Callable[[Row], bool]:
    return lambda row: row["what"] == "in" and row["name"] == name


def _completed(row: Row) -> bool:
    return "/jobs/" in row["name"] and _is("wire", state="completed")(row)


AT_COORDINATOR: tuple[Rule, ...] = (
    ("assign on the wire", _is("wire", type="assign"), _done),
    ("finished at the coordinator", _is("in", type="finished"), _begun),
    ("wanted", _is("wire", verdict="wanted"), _begun),
    ("completed on the wire", _completed, _done),
)
AT_AGENT: tuple[Rule, ...] = (
    ("assign at the agent", _is("in", type="assign"), _begun),
    ("trainer being started", _local("TrainerStarted"), _begun),
    ("end seen", _local("TrainerExited"), _begun),
    ("bundled", _local("BundleMade"), _begun),
    ("finished on the wire", _is("wire", type="finished"), _done),
)


def moments(folder: Path, agents: int) -> dict[str, dict[str, float]]:
    """Return of each job's id when each step was (monotonic seconds)."""
    coordinator = rows_of(folder / "coordinator.trace")
    hosts = [row for n in range(agents) for row in rows_of(folder / f"h{n}.trace")]
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for rows, rules in ((coordinator, AT_COORDINATOR), (hosts, AT_AGENT)):
        for row in rows:
            if job := row.get("of", {}).get("job_id"):
                for step, applies, at in rules:
                    if applies(row):
                        found[job].setdefault(step, at(row))
    _uploads(coordinator, hosts, found)
    times = child.times_of(folder / "times")
    for row in coordinator:
        if _is("wire", type="assign")(row):
            steps = found[row["of"]["job_id"]]
            number = int(row["of"]["name"].rpartition("-")[2])
            steps["first instruction"], steps["last instruction"] = times[number]
    return found


def _uploads(coordinator: list[Row], hosts: list[Row], found: dict[str, dict[str, float]]) -> None:
    """Add the steps of those artifacts that did not travel with their reports."""
    job_of = {
        row["of"]["artifact_id"]: row["of"]["job_id"]
        for row in hosts
        if _is("wire", type="finished")(row)
    }
    for row in coordinator:
        if row["what"] != "in":
            continue
        if "/chunk/" in row["name"] and (job := job_of.get(row["name"].split("/")[-3])):
            found[job]["last chunk at the coordinator"] = row["at"]
        elif row["name"] == "PartStored" and (job := job_of.get(row["of"]["job_id"])):
            found[job]["stored"] = row["at"]


def report(folder: Path, agents: int) -> str:
    """Return the tables: the steps, what was done how often, the coordinator's part."""
    found = moments(folder, agents)
    lines = []
    for before, after in _neighbours(found):
        gaps = [
            1e3 * (one[after] - one[before])
            for one in found.values()
            if before in one and after in one
        ]
        if gaps:
            lines.append([f"{before} to {after}", *_figures(gaps)])
    jobs = sum("first instruction" in one for one in found.values())
    parts = table(["step", "p50 ms", "p99 ms", "jobs"], lines)
    return "\n\n".join([parts, _coordinators(folder, found), _work(folder, agents, jobs)])


def _neighbours(found: dict[str, dict[str, float]]) -> Iterable[tuple[str, str]]:
    """Return the steps that any job went through, each with the next."""
    return itertools.pairwise(
        step for step in STEPS if any(step in steps for steps in found.values())
    )


def _figures(values: list[float]) -> list[str]:
    return [f"{percentile(values, 50):.2f}", f"{percentile(values, 99):.2f}", str(len(values))]


def _coordinators(folder: Path, found: dict[str, dict[str, float]]) -> str:
    """Return the coordinator's part: to the next assignment, and to `completed`."""
    rows = rows_of(folder / "coordinator.trace")
    free: dict[str, float] = {}
    to_assign, to_complete = [], []
    for row in rows:
        of, topic = row.get("of", {}), row["name"]
        if row["what"] == "in" and of.get("type") == "run":
            free["asked"] = row["at"]
        elif row["what"] == "in" and of.get("type") == "finished":
            free[topic.split("/")[-3]] = row["at"]
        elif row["what"] == "wire" and of.get("type") == "assign":
            since = free.pop("asked", free.pop(topic.split("/")[-3], None))
            free.pop(topic.split("/")[-3], None)
            if since is not None:
                to_assign.append(1e3 * (row["at"] + row["took"] - since))
    for one in found.values():
        came = one.get("last chunk at the coordinator", one.get("finished at the coordinator"))
        if came is not None and "completed on the wire" in one:
            to_complete.append(1e3 * (one["completed on the wire"] - came))
    lines = [
        [name, *_figures(values)]
        for name, values in (
            ("free host, or request, to assignment on the wire", to_assign),
            ("the result is here, to `completed` on the wire", to_complete),
        )
        if values
    ]
    return table(["the coordinator's part", "p50 ms", "p99 ms", "times"], lines)


def _work(folder: Path, agents: int, jobs: int) -> str:
    """Return what the programs did, how often a job, and for how long."""
    lines = []
    for name, paths in (
        ("coordinator", [folder / "coordinator.trace"]),
        ("agents", [folder / f"h{n}.trace" for n in range(agents)]),
    ):
        total: dict[str, list[float]] = defaultdict(list)
        for path in paths:
            for row in rows_of(path):
                what = row["name"] if row["what"] in {"step", "fsync", "cpu"} else row["what"]
                total[what].append(1e3 * row["took"])
        for what, values in sorted(total.items(), key=lambda one: -sum(one[1])):
            each = f"{len(values) / jobs:.1f}", f"{sum(values) / jobs:.2f}"
            lines.append([name, what, *each, f"{percentile(values, 50):.2f}"])
    return table(["who", "what", "times a job", "ms a job", "p50 ms"], lines)
