"""Why something happened, as data: a code with its figures. Its words are made here alone.

A cause is `{"code": …, FIGURE: …}`, empty where the event says everything. The ledger keeps it as
JSON, `--json` shows it as it is, and the faces for people call `in_words`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import JsonValue

from broker.figures import counted, some
from coordinator.jobs import refusal_words
from coordinator.jobs.agent_words import because
from coordinator.jobs.reason_words import NO_FIGURES, all_words, moment, without_remedy, words
from coordinator.jobs.result_words import at_share, main_metric, metric_words

Cause = Mapping[str, JsonValue]

NONE: Final[Cause] = {}
_ID_CHARS: Final = 12
_HELD: Final = ("claimed", "running")
STEPS: Final = ("added", "changed", "adopted", "replaced", "orphaned", "unchanged")  # of a reload

# Each text is filled in with the figures; what depends on them is a function below.
_TEXTS: Final = {
    "text": "{text}",  # as somebody else has said it
    "resumes": "goes on where attempt {resumed_from} left off",
    "before_restore": "it was given this attempt before the ledger was restored",
    "no_answer": "{host} did not answer",
    "process_gone": "the agent that was asked is gone",
    "seen": "seen in a heartbeat",
    "at_work": "it is still at work on it",
    "restarted": "the agent restarted without it",
    "dropped": "the agent does not have it any more",
    "goodbye": "goodbye",
    "stopped_by_another": "it was told to stop, and not by this coordinator",
    "revoked": "its host's certificate was revoked",
    "checkpoint": "a checkpoint has come",
    "late_attempt": "with the result of attempt {attempt}, which was lost",
    "kept_result": "with the result that came after it was given up",
    "late_result": "it finished after it was given up; `fleet requeue` takes the result",
    "in_manifest": "in the manifest now",
    "not_in_manifest": "not in the manifest",
    "submitted": "asked for beside the manifest",
    "more_unknown": "and {count} more hosts that nobody knows",
    "file_gone": "it cannot be read any more",
    "file_hangs": "it does not answer for {answer_s:g} s",
    "snooze_over": "the snooze by {by} is over",
    "there_already": "{name} is there already, {state}",
    **refusal_words.TEXTS,
}


def cause(code: str, **figures: JsonValue) -> Cause:
    """Return a cause; figures that are none are left out."""
    return {"code": code, **{name: value for name, value in figures.items() if value is not None}}


def set_aside(
    state: str,
    host: str | None,
    share: float | None,
    metrics: Mapping[str, Any] | None,
    artifact_id: str | None,
) -> Cause:
    """Return what a requeue of a job in this state loses."""
    if state in _HELD:
        return cause("stopped", host=host, share=share)
    if state != "completed" or artifact_id is None:
        return NONE
    return cause("set_aside", set_aside_artifact=artifact_id, metrics=_main(metrics))


def _main(metrics: Mapping[str, Any] | None) -> JsonValue:
    name = main_metric(metrics)
    return None if name is None else {name: (metrics or {})[name]}


def _error(why: Mapping[str, Any]) -> str:
    retry = why.get("retry")
    return str(why["text"]) + ("" if retry is None else f"; retry {retry} of {why['retries']}")


def _started(why: Mapping[str, Any]) -> str:
    whence = "goes on from a checkpoint" if why["resumes"] else "starts from the beginning"
    return f"{whence}; slot {why['slot']}, pid {why['pid']}"


def _released(why: Mapping[str, Any]) -> str:
    return because(why["because"]) + ("; its checkpoint is kept" if why.get("checkpoint") else "")


def _silent(why: Mapping[str, Any]) -> str:
    presence = why.get("presence")
    return "no heartbeat vouched for it in time" + (f"; the host is {presence}" if presence else "")


def _stopped(why: Mapping[str, Any]) -> str:
    return f"it is stopped{at_share(why.get('share'))} on {why['host']}, and begins again"


def _set_aside(why: Mapping[str, Any]) -> str:
    metric = metric_words(why.get("metrics"))
    artifact = f"artifact {why['set_aside_artifact'][:_ID_CHARS]}"
    return f"its result is set aside: {metric + ', ' if metric else ''}{artifact}"


def _certificate(why: Mapping[str, Any]) -> str:
    parts = [why["name"]] if "name" in why else []
    parts += [f"by {why['by']}"] if "by" in why else []
    parts += [f"it was done at {moment(why['made_at'])}, and told now"] if "made_at" in why else []
    parts += [why["text"]] if why.get("text") else []
    parts += [f"back into the queue: {', '.join(why['jobs'])}"] if why.get("jobs") else []
    return "; ".join(parts)


def _host(why: Mapping[str, Any]) -> str:
    said = [f"until {moment(why['until'])}"] if why.get("until") else []
    if jobs := why.get("jobs"):
        said.append(f"it {'gives back' if why.get('gives_back') else 'finishes'} {', '.join(jobs)}")
    said += [words(one, remedy=False) for one in why.get("was") or ()]
    if "paused" in why:
        said.append("no new jobs are given out" if why["paused"] else "jobs are given out again")
    return "; ".join(said)


def _each(why: Mapping[str, Any]) -> str:
    refused = why["refused"]
    return counted(why["done"], "job") + (f"; {refused} refused" if refused else "")


def _faults(why: Mapping[str, Any]) -> str:
    return str(why["text"]) + (f"; and {why['more']} more" if why["more"] else "")


def _first_of(why: Mapping[str, Any]) -> str:
    return _faults({**why, "text": f"{why['key']}: {in_words(why['why'])}"})


def _unknown_name(why: Mapping[str, Any]) -> str:
    name = why["name"]
    places = [f"[hosts.{name}]"] if why["declared"] else []
    places += why["jobs"]  # a name, or `job 9` of one that has none
    which = some(places, len(places), len(places) + why["more"])
    said = f"{which}: no host is called {name!r}"
    if meant := why.get("meant"):
        return f"{said}; did you mean {meant!r}, or is it yet to come?"
    return f"{said} yet"


def _manifest_behind(why: Mapping[str, Any]) -> str:
    where, news = f"{why['manifest']} on {why['host']}", unread(why.get("changed"))
    if fault := why.get("fault"):
        said = "; ".join(filter(None, (in_words(fault), news)))
        return f"{where} has errors, the last good plan goes on: {said}"
    return f"{where}: {news}"


def unread(changed: Mapping[str, Any] | None) -> str:
    """Say that a manifest has become another since it was read, if it has."""
    return f"{in_words(changed)}, and not read since; `fleet reload` reads it" if changed else ""


def plan_words(counts: Mapping[str, Any]) -> str:
    """Return what a reload does in a line: `2 added, 3 unchanged; 1 host changed`."""
    jobs = [f"{counts[step]} {step}" for step in STEPS if counts[step]]
    others = [f"{counted(counts[f'{what}s'], what)} changed" for what in ("host", "setting")
              if counts[f"{what}s"]]  # fmt: skip
    if not others and not any(counts[step] for step in STEPS if step != "unchanged"):
        jobs.insert(0, "no changes")
    return "; ".join(filter(None, (", ".join(jobs), ", ".join(others))))


def _title(why: Mapping[str, Any]) -> str:
    there = ", which was there already" if why.get("is_there") else ""
    return f"{why['name']}@{why['digest'][:_ID_CHARS]}{there}"


_FUNCTIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "error": _error,
    "started": _started,
    "refused": lambda why: all_words(why["reasons"]),
    "released": _released,
    "file_changed": lambda why: f"it was changed at {moment(why['at'])}",
    "still": lambda why: f"it is still {without_remedy(why['was'])}",
    "given_back": lambda why: f"its host has given it back: {because(why['because'])}",
    "silent": _silent,
    "keys": lambda why: ", ".join(why["names"]),
    "stopped": _stopped,
    "set_aside": _set_aside,
    "certificate": _certificate,
    "host": _host,
    "each": _each,
    "program": _title,
    "dataset": _title,
    "faults": _faults,
    "first_of": _first_of,
    "plan": plan_words,
    "unknown_name": _unknown_name,
    "manifest_behind": _manifest_behind,
    **refusal_words.FUNCTIONS,
}


def refusal(why: Mapping[str, Any]) -> str:
    """Return why something was not done, for who has asked for it: with what to do about it."""
    remedy = refusal_words.REMEDIES.get(str(why.get("code")))
    return in_words(why) + (f"; {remedy}" if remedy else "")


def in_words(why: Mapping[str, Any] | None) -> str:
    """Return a cause for people; empty where there is none."""
    if not why:
        return ""
    code = str(why["code"])
    try:
        text = _FUNCTIONS.get(code) or _TEXTS[code].format_map
        said = text(why)
    except NO_FIGURES:
        said = code  # of a newer coordinator
    if why.get("about"):
        said += f" ({why['about']!r})"
    return f"{said}; another coordinator may have stopped it" if why.get("rival") else said
