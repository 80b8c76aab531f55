"""Predictions and their reasons, as people see them: a real coordinator, and simulated hosts."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.swarm import Swarm
from tests.harness.verbs import started

QUICK, SLOW = 400.0, 0.5


@pytest.fixture
def swarm(fleet: Any) -> Iterator[Swarm]:
    """Five simulated hosts, of which two have a GPU; their training is quick at first."""
    made = Swarm(
        fleet.broker_url, fleet.root, 5, rng=random.Random(1), speed=QUICK, fail_rate=0.0,
        beat_s=0.3,
    )  # fmt: skip
    end = threading.Event()
    thread = threading.Thread(target=made.run, args=(end.is_set,), daemon=True)
    thread.start()
    yield made
    end.set()
    thread.join(20.0)


def job(name: str, model: str, seed: int, more: str = "") -> str:
    """The body of a job of that name."""
    return f'name = "{name}"\nmodel = "{model}"\nmode = "oracle"\nseed = {seed}\n{more}'


FIRST = [job(f"mlp-{n}", "mlp", n) for n in range(5)]
HUGE = job("huge", "transformer", 1, "require_cuda = true\nmin_vram_gib = 48")


@pytest.fixture
def past(fleet: Any, swarm: Swarm) -> Any:
    """Five jobs are completed, and one waits for a host with 48 GiB of VRAM."""
    fleet.plan(*FIRST, HUGE)
    fleet.coordinator()
    for number in range(5):
        fleet.until(f"mlp-{number}", "completed")
    return fleet


def change(fleet: Any) -> str:
    """Write another manifest: one job left out, two changed, nine new, of which one never ran."""
    jobs = [job(f"mlp-{n}", "mlp", n, "priority = 7" if n == 1 else "") for n in range(1, 5)]
    jobs += [
        job(f"new-{n}", "mlp", 100 + n, "hyper.epochs = 80" if n == 7 else "") for n in range(8)
    ]
    fleet.plan(*jobs, HUGE.replace("48", "16"), job("odd", "gru", 1))
    return str(fleet.manifest)


def test_what_waits_is_explained(past: Any, cli: Any) -> None:
    """Clause by clause, with what would help; what is over is accounted for."""
    stats = cli("stats", "--by", "model", "--json").json()
    (model,) = stats["by"]["model"]
    assert (model["model"], model["attempts"]["completed"], model["success"]) == ("mlp", 5, 1.0)
    why = cli("why", "huge", "--json").json()
    clauses = {one["clause"]: (one["against"], one["left"]) for one in why["clauses"]}
    assert clauses["require_cuda"] == (3, 2)
    assert clauses["min_vram_gib"] == (2, 0)
    (less,) = (one for one in why["remedies"] if one.get("key") == "min_vram_gib")
    assert (less["most"], less["needed"], less["hosts"]) == (24, 48, ["lab-ws-1"])
    assert why["forecast"]["verdict"] == "stuck"
    assert "1 job no known host can run" in cli("status").stdout


def test_a_plan_says_what_a_reload_then_does(past: Any, cli: Any) -> None:
    """What it adds, changes and leaves orphaned, and where the jobs would go; it does nothing."""
    wanted = change(past)
    plan = cli("plan", wanted, "--json", "--detailed-exitcode").json(4)
    assert {what: count for what, count in plan["changes"].items() if count} == {
        "added": 9, "changed": 2, "orphaned": 1, "unchanged": 3
    }  # fmt: skip
    changed = {step["name"]: step["changes"] for step in plan["steps"] if step["changes"]}
    assert changed == {
        "mlp-1": [{"what": "priority", "from": 0, "to": 7}],
        "huge": [{"what": "min_vram_gib", "from": 48.0, "to": 16.0}],
    }
    outlooks = {one["name"]: one for one in plan["jobs"]}
    assert outlooks["huge"]["host"] == "lab-ws-1"
    assert {outlooks[f"new-{n}"]["basis"] for n in range(8)} <= {"here", "elsewhere"}
    assert {outlooks[f"new-{n}"]["scaled_from"] for n in range(7)} == {None}
    assert outlooks["new-7"]["scaled_from"] == 40, "as many as its trainer does by itself"
    assert outlooks["odd"]["basis"] == "none"
    assert plan["forecast"]["unknown"] >= 2
    announced = cli("plan", wanted, "--all").stdout
    said = cli("plan", wanted).stdout
    words = "9 added, 2 changed, 1 orphaned, 3 unchanged"
    assert f"A reload: {words}\n" in said
    assert {row["name"] for row in cli("list", "--json").json()} == {
        *(f"mlp-{n}" for n in range(5)), "huge"
    }, "it has changed nothing"  # fmt: skip

    *lines, last = cli("reload", "--all").stdout.splitlines()
    assert last == words
    assert len(lines) == 12 + 1, "a line a job, and a blank one"
    changes = ("mlp-1  priority 0 → 7", "huge  min_vram_gib 48.0 → 16.0")
    for line in ("  + new-0  new", *(f"  ~ {one}" for one in changes)):
        assert (line in lines, line in announced) == (True, True)
    again = cli("plan", wanted, "--detailed-exitcode")
    assert again.returncode == 0
    assert "A reload: no changes, 14 unchanged\n" in again.stdout
    listed = cli("list").stdout
    assert "completed*" in listed
    assert "*: 1 no longer in the manifest" in listed

    past.plan(HUGE + "\nretries = -1\n", top="[hosts.lab-ws-11]\nslots = 1")
    warning = "warning: [hosts.lab-ws-11]: no host is called 'lab-ws-11'; did you mean 'lab-ws-1'"
    for verb in ("check", "plan"):
        refused = cli(verb, wanted)
        assert (refused.returncode, warning in refused.stderr) == (1, True), "beside the errors"
    assert refused.stderr.endswith("the manifest has errors; the running plan is unchanged\n")
    past.plan(HUGE, top="[hosts.lab-ws-11]\nslots = 1")
    done = cli("reload")
    assert (done.returncode, warning in done.stderr) == (0, True)


def test_a_plan_that_nobody_can_judge_is_told(fleet: Any, cli: Any) -> None:
    """Exit code 2 for a manifest that is not there, 3 for nobody; none where no host is known."""
    fleet.plan(job("a", "mlp", 1))
    assert cli("plan", str(fleet.manifest), "--timeout", "1").returncode == 3
    fleet.coordinator()
    fleet.until("a", "pending")
    assert cli("plan", str(fleet.tmp / "none.toml")).returncode == 2
    empty = cli("plan").text()
    assert "No host is known yet" in empty
    assert "1 job no known host can run" in empty


def test_following_events_outlives_the_coordinator(fleet: Any, wait_for: Any) -> None:
    fleet.plan(job("a", "mlp", 1))
    coordinator = fleet.coordinator()
    fleet.until("a", "pending")
    out, err = fleet.tmp / "events.out", fleet.tmp / "events.err"
    with out.open("wb") as to, err.open("wb") as errors:
        following = started(
            "events", "-f", "--json", stdout=to, stderr=errors,
            environment=fleet.environment | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            wait_for(lambda: '"added"' in out.read_text("utf-8"), "the first event")
            coordinator.stop()
            wait_for(lambda: "still trying" in err.read_text("utf-8"), "the notice")
            fleet.coordinator()
            assert fleet.cancel("a")["state"] == "cancelled"
            wait_for(lambda: '"cancelled"' in out.read_text("utf-8"), "what came afterwards")
            os.kill(following.pid, signal.SIGINT)
            assert following.wait(60) == 0
        finally:
            following.kill()
            following.wait(60)
    words = [json.loads(line)["event"] for line in out.read_text("utf-8").splitlines()]
    assert words[-1] == "cancelled"
    assert words.count("added") == 1
    said = err.read_text("utf-8").splitlines()
    assert len(said) == 2, said
    assert said[-1] == "it is back"
