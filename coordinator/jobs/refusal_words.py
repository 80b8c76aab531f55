"""Why a request is not carried out, in words; its code and figures are a cause (`causes`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from broker.figures import counted, some, span
from coordinator.jobs.agent_words import fault_words
from coordinator.jobs.reason_words import all_words, moment, words
from coordinator.jobs.result_words import command, kept_words

_Told = Mapping[str, Any]
_ID_CHARS: Final = 12

# Each text is filled in with the figures; what depends on them is a function below.
TEXTS: Final = {
    "rights": "{user} may look, and change nothing",
    "unsigned": "not signed",
    "signature": "signed with another key, or altered",
    "expired": "past its expiry",
    "too_many": "too many at once",
    "no_certificates": "{user} may not give or take back certificates",
    "host_online": "host {host} is online; stop its agent first",
    "drained_already": "host {host} is drained already",
    "holds_nothing": "host {host} holds no job",
    "none_failed": "no job of the plan has failed",
    "over_already": "job {name} is {state} already",
    "not_in_plan": "job {name} is not in the manifest any more; put it back, and reload",
    "moved": "job {name} is {state} by now, and left as it is",
    "no_job": "no job has the name or id {asked!r}; `fleet list` shows them",
    "no_manifest": "the coordinator was started without --manifest; there is nothing to reload",
    "manifest_errors": "the manifest has errors; the running plan is unchanged",
    "job_errors": "the job has errors",
    "circle": "{name} would come after itself; leave out one of the jobs that it comes after",
    "name_taken": "{name!r} is the name of job {job_id:.12}; choose another",
    "signer": "the program is signed by {name!r}, and you are somebody else; push it yourself",
    "program_gone": "the fleet has no program {name}@{digest:.12} any more; push it again",
    "data_gone": "the fleet has no dataset {digest:.12} any more, its {name}; push it again",
    "other_size": "{name} is said to have another size than what is stored of it",
    "datasets": "the fleet has {most} datasets; `fleet data rm` makes room",
    "no_layout": "the layout of {name} is gone from the store; push it again",
    "programs": "the fleet has {most} programs; `fleet programs rm` makes room",
    "pushes": "{most} programs and datasets are being pushed; try again in a minute",
    "downloads": "{most} downloads are under way; try again in a minute",
}
# What to do about it, which the record need not tell.
REMEDIES: Final = {
    "unsigned": "this coordinator takes signed commands only: give the operator key with "
    "FLEET_OPERATOR_KEY or [broker] operator_key_file",
    "signature": "is the operator key the coordinator's? Compare FLEET_OPERATOR_KEY and [broker] "
    "operator_key_file on both sides",
    "stale": "nothing was done; set the clocks, and ask again",
    "expired": "nothing was done (clocks apart?)",
    "too_many": "nothing was done, ask again later",
}


def _stale(why: _Told) -> str:
    when = "ago" if why["apart_s"] > 0 else "from now"
    return (
        f"signed {span(abs(why['apart_s']))} {when}, by the coordinator's clock, and at most "
        f"{why['window_s']:g} s are taken"
    )


def _no_host(why: _Told) -> str:
    """Say that no host is called so, and which one may be meant."""
    return f"no host is called {why['name']!r}; {_hint(why)}`fleet workers` shows them"


def _unknown_host(why: _Told) -> str:
    return f"{_no_host(why)}; one that is yet to come needs its [hosts.NAME] first"


def _hint(why: _Told) -> str:
    return f"did you mean {why['meant']!r}? " if why.get("meant") else ""


def _host_holds(why: _Told) -> str:
    names = ", ".join(why["jobs"]) + (" ..." if why["more"] else "")
    return f"host {why['host']} holds {names}; `fleet cancel` or wait until they are lost"


def _not_restrained(why: _Told) -> str:
    by_itself = f"; it {all_words(why['refuses'])}" if why["refuses"] else ""
    return f"host {why['host']} is neither drained, nor snoozed, nor in quarantine{by_itself}"


def _pending_already(why: _Told) -> str:
    more = f"; its retry begins in {why['wait_s']:.0f} s" if why["wait_s"] else ""
    if not why["in_plan"]:
        more = (
            ", and is given to no host, being in no manifest: put it back and `fleet reload`, or "
            "`fleet cancel` it"
        )
    return f"job {why['name']} is pending already{more}"


def _ambiguous(why: _Told) -> str:
    jobs = [f"{one['name']} ({one['job_id'][:_ID_CHARS]})" for one in why["jobs"]]
    more = f" and {why['more']} more" if why["more"] else ""
    remedy = "give the id of one" if why["alike"] else "write more of it"
    return f"{why['asked']!r} may mean {', '.join(jobs)}{more}; {remedy}"


def _no_result(why: _Told) -> str:
    """Say why there is nothing to fetch of a job, or of an attempt of it, and what there is."""
    there = [str(attempt) for attempt in why["there"]]
    said = _what_lacks(why)
    if not there:
        return said if why["attempt"] is None else f"{said}; there is none of any attempt"
    last = f"; there is one of attempt {there[-1]}"
    if len(there) > 1:
        last = f"; there are some of attempts {', '.join(there[:-1])} and {there[-1]}"
    return f"{said}{last}: {command(why['name'], int(there[-1]))}"


def _what_lacks(why: _Told) -> str:
    name, attempt = why["name"], why["attempt"]
    match why["lacks"]:
        case "file":
            return (
                f"the artifact of job {name} is gone from the store; `fleet requeue` makes it again"
            )
        case "artifact":
            return f"job {name} is {why['state']} and has no artifact"
        case "attempt":
            return f"job {name} has had {counted(why['attempts'], 'attempt')}"
        case "result":
            return f"attempt {attempt} of job {name} has brought no result"
        case _:
            return f"the result of attempt {attempt} of job {name} {_how_gone(why)}"


def _how_gone(why: _Told) -> str:
    if why["set_aside_at"] is None or why["kept_until"] is None:
        return "is gone from the store; `fleet fsck` tells more"
    kept = f"{kept_words(why['keep_s'])}, until {moment(why['kept_until'])}"
    return f"was set aside at {moment(why['set_aside_at'])}, kept {kept}, and deleted"


def _no_such(kind: str, verb: str, push: str, why: _Told) -> str:
    there = some(why["there"], len(why["there"]), len(why["there"]) + why.get("more", 0))
    if why["count"]:
        return f"{why['name']!r} may mean {there}; write more of it"
    said = f"the fleet has no {kind} {why['name']!r}"
    if there:
        return f"{said}; of this name it has {there}"
    return f"{said}; {_hint(why)}`fleet {verb} list` shows all, `fleet {push}` sends one"


def _in_use(why: _Told) -> str:
    return (
        f"{counted(why['count'], 'job')} of {why['name']} not over, or in the manifest: "
        f"{', '.join(why['jobs'])}; `fleet cancel` them, and take them out of the manifest, first"
    )


FUNCTIONS: Final[Mapping[str, Callable[[_Told], str]]] = {
    "stale": _stale,
    "no_host": _no_host,
    "unknown_host": _unknown_host,
    "host_revoked": lambda why: f"{why['host']}: {words(why['reason'])}",
    "host_holds": _host_holds,
    "not_restrained": _not_restrained,
    "pending_already": _pending_already,
    "ambiguous": _ambiguous,
    "no_result": _no_result,
    "no_program": partial(_no_such, "program", "programs", "push DIR"),
    "no_dataset": partial(_no_such, "dataset", "data", "data push NAME DIR"),
    "program_in_use": _in_use,
    "untrusted": lambda why: f"the program is not taken: {fault_words(why['fault'])}",
    "dataset_in_use": _in_use,
}
