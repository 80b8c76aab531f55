"""Captures the traces of tracing.md from a real fleet, by `mosquitto_sub`, and comments them.

    python -m tests.capture.trace

runs a broker, a coordinator and an agent, and writes what went over the wire into the page, between
its markers. Ids and long payloads are shortened, always with `…`; what comes again and again is
left out, and counted.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.protocol.topic_table import Kind
from broker.protocol.topics import Topic, Topics
from tests.harness.brokers import embedded
from tests.harness.fleet import ROOT, SHORT, Fleet, prepared_data

PAGE = ROOT / "docs/how-to/tracing.md"
TOPICS = Topics("fleet")
DEADLINE_S = 120.0
ID_CHARS = 8  # of the ids of jobs and artifacts
NAME_CHARS = 6  # of other ids
# How many messages of a sense are shown; what comes again just as it was is left out anyway.
AT_MOST = {"phase": 1, "progress": 2, "log": 3, "heartbeat": 2, "coordinator/summary": 2,
           "rebirth": 1, "capability": 1, "lease": 2}  # fmt: skip

AGAIN = {"assign", "log"}  # What the second trace shows again; the rest of the first is left out.

# What a message means, said where it comes for the first time in a trace.
COMMENTS: dict[str, str] = {
    "coordinator/status online": "The coordinator is there. This is retained, as all states are.",
    "coordinator/status offline": "The coordinator has gone.",
    "holder": "Which coordinator serves the fleet; another one that finds this here yields.",
    "refused": "Whom the embedded broker has turned away, which it says itself.",
    "coordinator/summary": "How many jobs and hosts are in which state.",
    "status online": "A host comes: its birth. The session is new at each connect.",
    "status offline goodbye": "A host leaves in order.",
    "capability": "What it is: cores, memory, trainers with the schemas of their hyperparameters.",
    "heartbeat": "How it fares, and what it holds.",
    "rebirth": "The coordinator asks for the birth again: it knows this host too little.",
    "jobs pending": "The job as the ledger has it: pending.",
    "jobs claimed": "It was given to a host; the attempt is the fencing token.",
    "jobs running": "The ledger has it running.",
    "jobs completed": "The job is completed only now that the artifact is in the store.",
    "jobs failed": "The job has failed for good: no retry would help.",
    "assign": "The coordinator gives the job to the host. Repeated until answered.",
    "accepted": "The host takes it …",
    "lease": "… nobody else is given it for so long …",
    "started": "… and its trainer's process runs.",
    "phase": "What the trainer is at. Retained while it runs.",
    "progress": "The losses of an epoch, likewise.",
    "progress cleared": "It runs no more: the retained progress is cleared.",
    "log": "What the trainer prints, a line a message: attempt, number, text.",
    "finished": "It is done: the bundle, known by its sha256, lies on the host's disk. Repeated"
                " until noted.",
    "finished again": "The host reports once more: it has heard no answer yet.",
    "failed": "The trainer has ended with an error.",
    "noted recorded": "In the ledger: the host may forget the job.",
    "noted stored": "In the store and in the ledger: the host may delete its copy.",
    "grant receiving": "The coordinator wants it: which chunks are missing, and how many may be in"
                       " flight. (The chunks themselves are not shown.)",
}  # fmt: skip


@dataclass(frozen=True)
class Heard:
    """One message as `mosquitto_sub` printed it."""

    topic: str
    payload: str

    @property
    def parsed(self) -> Topic:
        return TOPICS.parse(self.topic)


class Listener:
    """`mosquitto_sub` as a child process."""

    def __init__(self, port: int) -> None:
        program = shutil.which("mosquitto_sub")
        if program is None:
            raise SystemExit("mosquitto_sub is not installed; Debian: mosquitto-clients")
        self.heard: list[Heard] = []
        self._process = subprocess.Popen(
            [program, "-p", str(port), "-v", "-t", "fleet/#", "-T", "fleet/+/+/+/chunk/#",
             "-T", "fleet/operator/#"],
            stdout=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            topic, _, payload = line.rstrip("\n").partition(" ")
            # `-v` says so of an empty payload.
            self.heard.append(Heard(topic, "" if payload == "(null)" else payload))

    def until(self, holds: Callable[[Heard], bool], what: str, since: int = 0) -> int:
        """Wait for a message; return how many had come by then."""
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            for index, one in enumerate(self.heard[since:], since):
                if holds(one):
                    return index + 1
            time.sleep(0.05)
        raise SystemExit(f"waited in vain for {what}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)


def shortened(heard: Heard) -> tuple[str, str]:
    """Return topic and payload with short ids and without what is long."""
    topic = re.sub(r"[0-9a-f]{64}", lambda found: found[0][:ID_CHARS] + "…", heard.topic)
    if not heard.payload.startswith("{"):
        return topic, heard.payload
    return topic, json.dumps(
        _short(json.loads(heard.payload)), separators=(",", ":"), ensure_ascii=False
    ).replace('"{…}"', "{…}")


def _short(value: Any, key: str = "") -> Any:
    if key in {"hyper_schema", "metrics"} and value:
        return "{…}"
    if isinstance(value, dict):
        return {name: _short(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_short(each) for each in value]
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:ID_CHARS] + "…"
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f-]{32,36}", value):
        return value[:NAME_CHARS] + "…"
    if key in {"os", "cpu", "python", "torch", "xgboost", "trainers_commit"} and value:
        return f"{str(value)[:9]}…" if len(str(value)) > 9 else value
    return value


def sense(heard: Heard, before: list[Heard]) -> str:  # noqa: PLR0911 - a case a return
    """Return which comment belongs to a message."""
    topic = heard.parsed
    said = json.loads(heard.payload) if heard.payload.startswith(("{", "[")) else {}
    said = said[-1] if isinstance(said, list) else said
    match topic.kind:
        case Kind.STATUS | Kind.COORDINATOR_STATUS:
            why = f" {said['reason']}" if topic.kind is Kind.STATUS else ""
            return f"{topic.kind.value} {said['state']}" + (
                why if said["state"] == "offline" else ""
            )
        case Kind.JOB:
            return f"jobs {said['state']}"
        case Kind.REQUEST:
            return f"noted {said['verdict']}" if said["type"] == "noted" else str(said["type"])
        case Kind.RESPONSE:
            again = any(
                one.parsed.kind is Kind.RESPONSE and '"finished"' in one.payload for one in before
            )
            return f"{said['type']}{' again' if again and said['type'] == 'finished' else ''}"
        case Kind.GRANT:
            return f"grant {said['state'] if 'state' in said else said['type']}"
        case Kind.PROGRESS:
            if not heard.payload:
                return "progress cleared"
            return "phase" if said["epoch"] is None else "progress"
        case Kind.LOG:
            return "log"
        case _:
            return topic.kind.value.rpartition("/")[2] if topic.kind is not Kind.SUMMARY else (
                "coordinator/summary"
            )  # fmt: skip


def told(heard: list[Heard], known: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of a commented trace; messages of `known` senses are left out."""
    said: set[str] = set()
    shown: Counter[str] = Counter()
    before: set[Heard] = set()
    left_out: Counter[str] = Counter()
    for index, one in enumerate(heard):
        what = sense(one, heard[:index])
        shown[what] += 1
        repeats = one in before and "again" not in what
        if what in known or repeats or shown[what] > AT_MOST.get(what, 1000):
            left_out[one.parsed.kind.value] += 1
            continue
        before.add(one)
        yield from _gap(left_out)
        if what not in said:
            yield f"# {COMMENTS[what]}"
            said.add(what)
        topic, payload = shortened(one)
        yield topic
        yield f"    {payload or '(empty)'}"
    yield from _gap(left_out)


def _gap(left_out: Counter[str]) -> Iterator[str]:
    if left_out:
        yield f"# … left out: {', '.join(f'{left_out[kind]} {kind}' for kind in left_out)}"
        left_out.clear()


def capture(folder: Path, data: Path) -> dict[str, list[Heard]]:
    """Run a fleet and return its two traces by name."""
    broker = embedded()
    broker.start()
    fleet = Fleet(folder, broker.url, data)
    fleet.root = "fleet"
    fleet.environment["FLEET_TOPIC_ROOT"] = "fleet"
    listener = Listener(broker.port)
    try:
        return _play(fleet, listener)
    finally:
        listener.stop()
        fleet.close()
        broker.end()


def _play(fleet: Fleet, listener: Listener) -> dict[str, list[Heard]]:
    traces: dict[str, list[Heard]] = {}
    # Long enough that an agent, which holds progress back when it comes quickly, tells of epochs.
    good = (
        'name = "gbt-oracle"\nmodel = "gbt"\nmode = "oracle"\nn_resamples = 20\n'
        "hyper.epochs = 400\nhyper.patience = 400"
    )
    bad = ('name = "no-such-host"\nmodel = "gbt"\nmode = "oracle"\ntrain_hosts = ["nobody"]\n'
           f"retries = 0\n{SHORT}")  # fmt: skip
    fleet.plan(good)
    fleet.coordinator(stale_after_s=40.0)
    fleet.agent("pi", heartbeat_s=30.0)
    row = listener.until(_job("completed"), "the completed job")
    # They leave together, and a broker may deliver either first.
    answer = listener.until(lambda one: '"verdict":"stored"' in one.payload, "the last answer")
    traces["life"] = _cut(listener.heard[: max(row, answer)])

    begin = len(listener.heard)
    fleet.plan(good, bad)
    fleet.reload()
    end = listener.until(_job("failed"), "the failed job", begin)
    end = listener.until(
        lambda one: '"verdict":"recorded"' in one.payload, "the last answer", begin
    )
    traces["failure"] = _cut(listener.heard[begin:end])
    return traces


def _job(state: str) -> Callable[[Heard], bool]:
    return lambda one: one.parsed.kind is Kind.JOB and f'"state":"{state}"' in one.payload


def _cut(heard: list[Heard]) -> list[Heard]:
    """Leave out what is of another story: rows of jobs that were told before."""
    return [one for one in heard if one.parsed.kind not in {Kind.ECHO, Kind.COORDINATOR_ECHO}]


def write(page: str, traces: dict[str, list[Heard]]) -> str:
    """Return the page with the traces between their markers."""
    known: set[str] = set()
    for name, heard in traces.items():
        block = "\n".join(told(heard, known - AGAIN))
        known |= {sense(one, heard[:index]) for index, one in enumerate(heard)}
        page, count = re.subn(
            rf"(<!-- {name}: made by tests/capture/trace.py -->\n).*?(<!-- {name}: end -->)",
            lambda found, block=block: f"{found[1]}\n```text\n{block}\n```\n\n{found[2]}",
            page,
            flags=re.DOTALL,
        )
        assert count == 1, f"{PAGE}: no markers of {name}"
    return page


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        traces = capture(Path(name), prepared_data(Path(name)))
    PAGE.write_text(write(PAGE.read_text("utf-8"), traces), "utf-8")


if __name__ == "__main__":
    main()
