"""The words of reasons, remedies, holds and refusals: each with its figures."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from broker.protocol import messages as m
from broker.protocol.reasons import from_dict
from coordinator.jobs.agent_words import FAULTS, because, fault_words
from coordinator.jobs.causes import cause, in_words, refusal
from coordinator.jobs.reason_words import (
    alike,
    all_words,
    clause,
    moment,
    remedy,
    summary,
    words,
)
from coordinator.jobs.reasons import NATURES
from coordinator.jobs.refusal_words import FUNCTIONS, REMEDIES, TEXTS
from coordinator.jobs.waiting_words import awaits, waits
from coordinator.scheduler.feasibility import Against
from coordinator.scheduler.forecast import Outlook
from coordinator.ui.outlook import grouped
from coordinator.ui.words import waiting
from tests.harness.coordinator import joined, spec

PAUSED = {"code": "paused", "who": "operator:al", "at": "2027-01-15T08:00:00Z"}
AT = moment(PAUSED["at"])
WHY: dict[str, Any] = {
    "state": "pending", "in_plan": True, "known": 1, "paused": None, "in_time": False,
    "hopeless": True,
}  # fmt: skip
SAME = (
    "the same input would fail again: correct the manifest and `fleet reload`, or the host's data "
    "and `fleet requeue`"
)
THERE = "there are some of attempts 1 and 3: `fleet get a --attempt 3`"
FAILED = {"state": "failed", "error": "no", "artifact_id": None, "error_kind": None}


@pytest.mark.words
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "the only known host cannot take it"),
        ({"known": 3}, "none of 3 known hosts can take it"),
        ({"known": 0}, "no host is known yet; start an agent with `fleet agent`"),
        ({"hopeless": False}, "the only known host cannot take it now"),
        ({"hopeless": False, "waits_for": {"what": "data", "hosts": ["pi"]}},
         "the only known host cannot take it now: it waits for data on pi"),
        ({"hopeless": False, "waits_for": {"what": "resume", "hosts": ["pi"]}},
         "the only known host cannot take it now: it waits for `fleet resume pi`"),
        ({"paused": PAUSED, "in_time": True},
         f"the fleet was paused by operator:al at {AT}; `fleet pause --off` lifts it"),
        ({"in_plan": False}, "it is no longer in the manifest; put it back, or cancel it"),
        (FAILED, "it failed: no; `fleet requeue` tries again"),
        (FAILED | {"error_kind": "bad_input"},
         f"it failed: no; {SAME}"),
    ],
)  # fmt: skip
def test_a_summary_says_why_a_job_does_not_run(more: dict[str, Any], said: str) -> None:
    assert summary(WHY | more) == said


@pytest.mark.words
@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"code": "less", "key": "min_vram_gib", "needed": 48.0, "most": 24.0, "free": 20.0},
         "if min_vram_gib were 20 (free now, of 24 in all) instead of 48, pi could take it"),
        ({"code": "less", "key": "min_ram_gib", "needed": 20.0, "most": 16.0, "free": 0.0},
         "if min_ram_gib were 16 (all of it in use now) instead of 20, pi could take it"),
        ({"code": "less", "key": "min_cores", "needed": 9, "most": 4, "free": None},
         "if min_cores were 4 instead of 9, pi could take it"),
        ({"code": "less", "key": "require_cuda", "needed": True, "most": None, "free": None},
         "if it did not say require_cuda, pi could take it"),
        ({"code": "resume"}, "after `fleet resume pi`, pi could take it"),
        ({"code": "enroll"}, "after `fleet enroll pi --replace`, pi could take it"),
        ({"code": "hosts", "key": "allowed_hosts"},
         "if its allowed_hosts (--on) had pi, pi could take it"),
        ({"code": "hosts", "key": "denied_hosts"},
         "if its denied_hosts (--not-on) had not pi, pi could take it"),
        ({"code": "policy", "key": "cuda", "value": "false"},
         "if [hosts.pi] did not say cuda = false, pi could take it"),
        ({"code": "data"},
         ("with prepared data (--data, that folder mounted again, or a dataset of the job), "
          "pi could take it")),
        ({"code": "program"},
         "if the owner of pi let its program in ([programs] of fleet.toml), pi could take it"),
        ({"code": "misnamed", "name": "dekstop", "meant": "desktop"},
         "its allowed_hosts (--on): no host is called 'dekstop'; did you mean 'desktop'?"),
        ({"code": "nearest", "reasons": [{"code": "no-cuda"}]},
         "no single change would do; the nearest is pi: needs CUDA; this host has none"),
    ],
)  # fmt: skip
def test_a_remedy_says_what_would_open_a_host(told: dict[str, Any], said: str) -> None:
    assert remedy(told | {"hosts": ["pi"], "count": 1}) == said


@pytest.mark.words
@pytest.mark.parametrize(
    ("why", "said"),
    [
        ({"code": "snoozed", "by": "owner", "until": "2026-05-25T12:00"},
         "snoozed until Mon 2026-05-25 12:00 by its owner"),
        ({"code": "quiet", "by": "manifest", "until": "2026-05-26T00:00"},
         "quiet until Tue 2026-05-26 00:00 by the manifest"),
        ({"code": "quiet", "by": "owner"}, "always quiet by its owner"),
        ({"code": "in_use", "input_idle_s": 125, "gpu_users": ["blender"], "others_percent": 80},
         "in use: keyboard 2 min ago, GPU by blender, 80 % of the CPU by others"),
        ({"code": "in_use", "input_idle_s": 0}, "in use: keyboard now"),
        ({"code": "data", "text": "gone"}, "its prepared data is not there (gone)"),
        ({"code": "drained", "by": "operator:al"}, "drained by operator:al"),
        ({"code": "of-a-newer-agent"}, "of-a-newer-agent"),
    ],
)  # fmt: skip
def test_an_agent_says_why_it_takes_no_jobs(why: dict[str, Any], said: str) -> None:
    assert because(why) == said


@pytest.mark.words
def test_each_fault_of_a_program_has_words() -> None:
    assert {*FAULTS} == {*get_args(m.FaultCode)}
    room = m.Fault(code="no-room", needed_bytes=3 << 30, free_bytes=1 << 20).told()
    assert because({"code": "dataset", "fault": room}) == (
        "a dataset could not be used there (the host's disk has no room for 3.0 GiB; 1.0 MiB is "
        "free)"
    )
    mark = {"what": "dataset", "hosts": ["pi"], "fault": room}
    assert waits(mark).startswith("waits for its dataset, which pi could not use: the host's disk")
    long = m.Fault(code="not-installed", quoted="word " * 80).told()
    assert waits({**mark, "fault": long}).endswith("word …"), "`fleet why` has all of it"
    said = m.Fault(code="not-installed", quoted="no such package").told()
    assert words({"code": "program", "fault": said}).endswith(": no such package")
    assert fault_words({"code": "of-a-newer-agent", "quoted": "?"}) == "of-a-newer-agent"


@pytest.mark.words
def test_a_reason_says_what_would_lift_it() -> None:
    """Twice the same is told once, with the hosts; a number stands before what many have."""
    quarantine = {"code": "quarantine", "host": "pi", "jobs": ["a", "b"], "at": PAUSED["at"]}
    assert words(quarantine) == (
        f"in quarantine: a, b failed on it and were completed elsewhere ({AT}); "
        "`fleet resume pi` lifts it"
    )
    refuses = {"code": "refuses", "holds": [{"code": "starting"}]}
    assert all_words([refuses, {"code": "no-cuda"}]) == (
        "takes no jobs now: it is starting; needs CUDA; this host has none"
    )
    hosts = [{"host": host, "reasons": [refuses]} for host in ("a", "b")]
    assert alike(hosts) == [(["takes no jobs now: it is starting"], ["a", "b"])]
    how = [{"reason": refuses, "hosts": 2}]
    told = {"clause": "takes", "value": None, "hosts": [], "against": 2, "how": how}
    assert clause(told) == ("takes jobs now", "2 it is starting")


@pytest.mark.words
@pytest.mark.parametrize(
    ("why", "said"),
    [
        (cause("no_host", name="laptp", meant="laptop"),
         "no host is called 'laptp'; did you mean 'laptop'? `fleet workers` shows them"),
        (cause("no_host", name="x"), "no host is called 'x'; `fleet workers` shows them"),
        (cause("not_restrained", host="pi", refuses=[]),
         "host pi is neither drained, nor snoozed, nor in quarantine"),
        ({"code": "no_result", "lacks": "result", "name": "a", "attempt": 2, "there": [1, 3]},
         f"attempt 2 of job a has brought no result; {THERE}"),
        (cause("expired"), "past its expiry; nothing was done (clocks apart?)"),
        (cause("text", text="as it was said"), "as it was said"),
    ],
)  # fmt: skip
def test_a_refusal_says_why_and_what_helps(why: Any, said: str) -> None:
    assert refusal(why) == said


@pytest.mark.words
def test_every_remedy_is_of_a_refusal() -> None:
    assert REMEDIES.keys() <= TEXTS.keys() | FUNCTIONS.keys()


@pytest.mark.words
@pytest.mark.parametrize("code", ["no_host", "released", "busy", "host_holds"])
def test_figures_that_are_missing_end_nothing(code: str) -> None:
    """Another version may leave them out, or whoever speaks as a host."""
    assert code in in_words({"code": code})
    assert code in words({"code": code})


@pytest.mark.parametrize("figure", ["needed", "available"])
def test_what_is_told_once_is_alike_in_its_figures(figure: str) -> None:
    """Not in its words: two may differ in nothing that is said, or be said alike."""
    here = {"code": "ram", "needed": 8.0, "available": 4.0}
    reasons = {"a": here, "b": here | {figure: 6.0}, "c": here}
    hosts = [{"host": name, "reasons": [one]} for name, one in reasons.items()]
    assert [names for _, names in alike(hosts)] == [["a", "c"], ["b"]]
    left = [
        Outlook(spec(name), "stuck", against=(Against((from_dict(one),)),))
        for name, one in reasons.items()
    ]
    assert [names for _, names in grouped(left)] == [["a", "c"], ["b"]]


def test_jobs_that_wait_for_the_same_are_told_together() -> None:
    data, other = ({"what": "data", "hosts": [host]} for host in ("pi", "pc"))
    waits = {"x": data, "y": other, "z": data}
    rows = [{"name": name, "waits_for": one} for name, one in waits.items()]
    assert len([*waiting(rows)]) == 2


@pytest.mark.words
def test_a_job_before_another_is_told_with_what_lets_it_go_on() -> None:
    """Below the list only what somebody has to do: the others are in its column."""
    states = {"x": "running", "y": "uploading", "z": "failed"}
    marks = {name: {"what": "job", "job": "a", "state": state} for name, state in states.items()}
    rows = [{"name": name, "waits_for": mark} for name, mark in marks.items()]
    assert [*waiting(rows)] == ["z waits for a, which failed; `fleet requeue a` tries it again"]
    assert words({"code": "waits", **marks["x"]}) == "waits for a, which is running"
    assert words({"code": "waits", **marks["y"]}) == "waits for a, whose result is on the way"
    assert awaits(marks["x"]) == "awaits a"


@pytest.mark.parametrize("code", [*NATURES, "silent", "unheard-of"])
def test_a_code_without_its_figures_is_told_all_the_same(code: str) -> None:
    """An agent may refuse a job for any code, with any figures."""
    assert words({"code": code})


def test_a_host_refuses_with_a_code_of_the_coordinator() -> None:
    """The line for the log is made; the next attempt comes."""
    fleet, pi = joined(spec())
    pi.refuses(why=m.Objection(code="drained"))
    (change,) = (one for one in fleet.changes if one.event == "refused")
    assert change.why["reasons"] == [{"code": "drained"}]
    assert str(change)
    assert fleet.job().state == "pending"
