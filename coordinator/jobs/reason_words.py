"""Reasons against a host (`reasons`), conditions and remedies, in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from broker.figures import counted, span
from broker.protocol.messages import AMOUNTS
from broker.protocol.reasons import Reason
from coordinator.jobs import waiting_words
from coordinator.jobs.agent_words import fault_words, holds

NAMED: Final = 2  # names of hosts, and words of theirs, in one line

_Told = Mapping[str, Any]
# What is raised where figures are missing, or are others: of another version, or a host's forgery.
NO_FIGURES: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)

# What is so, and how it is lifted.
_REASONS: Final[Mapping[str, tuple[str, str]]] = {
    "offline": ("offline ({presence})", ""),
    "joining": ("has just come; its first heartbeat is awaited", ""),
    "rules": ("its agent has not taken the manifest's quiet hours yet (has it this version?)", ""),
    "revoked": ("its certificate was revoked by {who} at {at}",
                "`fleet enroll {host} --replace` lets it in again"),
    "drained": ("drained by {who} at {at}", "`fleet resume {host}` lifts it"),
    "quarantine": ("in quarantine: {jobs} failed on it and were completed elsewhere ({at})",
                   "`fleet resume {host}` lifts it"),
    "snoozed": ("snoozed until {until} by {who}", "`fleet resume {host}` ends it"),
    "paused": ("the fleet was paused by {who} at {at}", "`fleet pause --off` lifts it"),
    "no-slots": ("[hosts] gives it no slots", ""),
    "not-free": ("no slot of its hosts comes free", ""),
    "not-allowed": ("not among the job's allowed_hosts (--on)", ""),
    "denied": ("among the job's denied_hosts (--not-on)", ""),
    "deny-jobs": ("[hosts.{host}] deny_jobs has {pattern!r}", ""),
    "allow-jobs": ("[hosts.{host}] allow_jobs does not have it", ""),
    "no-trainer": ("has no trainer for {said!r}", ""),
    "no-programs": ("its owner lets no programs in", "allow them by [programs] in its fleet.toml"),
    "not-pinned": ("its owner has not pinned this program",
                   'pinned = ["sha256:{said}"] in [programs] of its fleet.toml lets it in'),
    "not-signed": ("accepts no programs signed by {said}",
                   "signed_by in [programs] of its fleet.toml lets them in"),
    "unusable": ("could not use this program: {fault}",
                 "it is tried again here later; `fleet push` it mended, or signed by another"),
    "no-environment": ("cannot make a program's environment: it has no {said}", ""),
    "hyper": ("its trainer does not take the parameter {key}: {said}", ""),
    "other-version": ("its trainer is version {said}; the job is of {key}",
                      "`fleet reload`, or `fleet run` again, plans it with the newest version"),
    "no-data": ("has no prepared data",
                "start its agent with --data, mount that folder again, or give the job a dataset"),
    "cuda-off": ("needs CUDA; [hosts] says cuda = false", ""),
    "no-cuda": ("needs CUDA; this host has none", ""),
    "cores": ("needs {needed:g} cores; this host has {available:g}", ""),
    "grace": ("prefers CUDA; waits {left_s:.0f} s more (of {grace_s:g} s) for a CUDA host", ""),
    "retry": ("retry {number} of {most} begins in {left_s:.0f} s", ""),
    "program": ("could not use its program: {fault}", ""),
    "dataset": ("could not use a dataset: {fault}", ""),
    "input": ("could not use an input: {fault}", ""),
    "silent": ("did not answer the assignment", ""),
    "failed": ("it has just failed here: {quoted}", ""),
    "stopping": ("an earlier attempt of it is still stopping here", ""),
    "over": ("that attempt is over here", ""),
    "many": ("has too many assignments at once", ""),
    **{what + when: (f"needs {{needed:g}} GiB of {amount.called}; {there}", "")
       for what, amount in AMOUNTS.items() for when, there in {
           "": "this host has {available:.1f} GiB", "-now": "{available:.1f} GiB is free now{of}",
           "-unknown": "what is free here is unknown"}.items()},
}  # fmt: skip
_CLAUSES: Final[Mapping[str, str]] = {
    "trainer": "has its trainer", "program": "can run its program",
    "allowed_hosts": "allowed_hosts (--on)", "denied_hosts": "denied_hosts (--not-on)",
    "data": "has prepared data", "slots": "[hosts] slots",
    "allow_jobs": "[hosts] allow_jobs", "deny_jobs": "[hosts] deny_jobs",
    "revoked": "not revoked", "barred": "not drained or in quarantine",
    "paused": "the fleet is not paused", "online": "is online", "takes": "takes jobs now",
    **{f"{what}_now": f"{amount.called} is free now" for what, amount in AMOUNTS.items()},
    "after": "the jobs before it are completed",
    "refused": "has not just refused it", "retry": "its retry is due", "free": "has a free slot",
}  # fmt: skip
# How hosts are, where the word of `presence` does not stand after a number.
PRESENCE: Final = {"left": "that left", "twins": "used by two agents"}
# How a host that would suit a job is.
HOW: Final = PRESENCE | {
    "quiet": "taking no jobs now", "again": "to be asked again", "busy": "busy",
    "soon": "about to be",
}  # fmt: skip
_AWAY: Final = {
    "left": "was ended", "asleep": "sleeps with its machine", "cut-off": "is cut off",
    "silent": "is silent", "twin": "is gone from the broker",
}  # fmt: skip


def moment(at: str | datetime) -> str:
    """Return a time (RFC 3339) by this machine's clock, with its zone: `2026-05-28 20:30 CEST`."""
    try:
        then = (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone()
    except (ValueError, OverflowError):
        return str(at)
    zone = then.tzname() or ""
    if not (zone.isalpha() and zone.isascii() and len(zone) <= 5):  # as on Windows
        zone = f"UTC{then:%z}"
    return f"{then:%Y-%m-%d %H:%M} {zone}"


def words(reason: _Told | Reason, *, remedy: bool = True) -> str:
    """Return a reason in words, with what would lift it."""
    told = reason.to_dict() if isinstance(reason, Reason) else reason
    try:
        what, lifted = _in_words(dict(told))
    except NO_FIGURES:  # an agent has said it without its figures
        what, lifted = str(told["code"]), ""
    if not (remedy and lifted):
        return what
    return f"{what} ({lifted})" if told["code"] == "no-data" else f"{what}; {lifted}"


def _in_words(told: dict[str, Any]) -> tuple[str, str]:
    code = str(told["code"])
    for key in {"at", "until"} & told.keys():
        told[key] = moment(str(told[key]))
    match code:
        case "busy":
            slots = told["available"]
            return "its only slot is busy" if slots == 1 else f"all {slots:g} slots are busy", ""
        case "twins" if told["tls"]:
            return "two agents use its certificate", "`fleet enroll` another name for one of them"
        case "twins":
            return "two agents use its name", "start one of them with another --host"
        case "refuses":
            return f"takes no jobs now: {holds(told.get('holds', ()))}", ""
        case "quarantine":
            told["jobs"] = ", ".join(told["jobs"])
        case "waits" | "waits-failed":
            what, lifted = waiting_words.predecessor(told)
            return f"waits for {what}", lifted
        case "refused":
            return f"refused a moment ago: {'; '.join(map(words, told['reasons']))}", ""
    if code not in _REASONS:  # of a newer agent
        return f"{code}: {told['said']}" if told.get("said") else code, ""
    told["fault"] = fault_words(told.get("fault"))
    told["of"] = f" (of {told['total']:.1f} GiB)" if "total" in told else ""
    what, lifted = _REASONS[code]
    return what.format(**told), lifted.format(**told)


def all_words(reasons: Iterable[_Told | Reason]) -> str:
    """Return reasons in one line."""
    return "; ".join(map(words, reasons))


def without_remedy(reasons: Iterable[_Told]) -> str:
    """Return reasons in one line for who is at lifting them."""
    return " and ".join(words(one, remedy=False) for one in reasons)


def away(told: _Told) -> str:
    """Say what becomes of a job whose host is away."""
    how = _AWAY.get(told["presence"], "has not been heard of")
    what = "fails, lost once too often" if told["is_last"] else "goes back into the queue"
    return (
        f"the agent of {told['host']} {how}; unless it comes back, in {span(told['left_s'])} the "
        f"job {what}"
    )


# The answer to `why`


def summary(why: _Told) -> str:
    """Say in a line why a job is not running."""
    state = why["state"]
    if state == "pending":
        return _pending(why)
    became = {"failed": "it failed", "cancelled": "it was cancelled"}
    return became.get(state, f"it is {state}") + beyond(why)


def beyond(why: _Told) -> str:
    """Say what follows on the state of a job."""
    match why["state"]:
        case "pending":
            return f": {_pending(why)}"
        case "claimed" | "running":
            if why["away"]:
                return f" on {why['host']}, but {away(why['away'])}"
            how = f", which is {why['presence']}" if why["presence"] else ""
            return f" on {why['host']}{how}"
        case "failed":
            return f": {why['error']}; {_after_failure(why)}"
        case "cancelled":
            return ": `fleet requeue` brings it back"
        case _:
            return ""


def _after_failure(why: _Told) -> str:
    if why["artifact_id"]:
        return "`fleet requeue` takes the result, which came later"
    if why["error_kind"] == "bad_input":
        return (
            "the same input would fail again: correct the manifest and `fleet reload`, or the "
            "host's data and `fleet requeue`"
        )
    return "`fleet requeue` tries again"


def before(why: _Told) -> list[str]:
    """Return which jobs a job waits for, each in words."""
    told = [words(one) for one in why.get("predecessors") or ()]
    more = why.get("predecessor_count", 0) - len(told)
    return [*told, f"and for {more} more"] if more > 0 else told


def _pending(why: _Told) -> str:
    if not why["in_plan"]:
        return "it is no longer in the manifest; put it back, or cancel it"
    if first := before(why)[:1]:
        more = why["predecessor_count"] - 1
        waits_too = f"it {first[0]}" + (f", and for {counted(more, 'other job')}" if more else "")
        return f"{words(why['paused'])}, and {waits_too}" if why["paused"] else waits_too
    known = why["known"]
    nobody = f"none of {known} known hosts can take it"
    if known == 1:
        nobody = "the only known host cannot take it"
    if why["paused"]:
        paused = words(why["paused"])
        return paused if why["in_time"] or not known else f"{paused}, but {nobody} even then"
    if not known:
        return "no host is known yet; start an agent with `fleet agent`"
    if why["hopeless"]:
        return nobody
    waits_for = why.get("waits_for")
    return f"{nobody} now: it {waiting_words.waits(waits_for)}" if waits_for else f"{nobody} now"


def key(told: Any) -> str:
    """Return what tells data apart from other data."""
    return json.dumps(told, sort_keys=True)


def alike(
    hosts: Sequence[_Told], said: Iterable[str] = ()
) -> list[tuple[list[str], list[str]]]:  # fmt: skip
    """Return reasons, without those whose code was `said`, and the hosts that have just these."""
    codes = frozenset(said)
    nothing = ["nothing else is against it"]
    found: dict[str, tuple[list[str], list[str]]] = {}
    for host in hosts:
        own = [one for one in host["reasons"] if one["code"] not in codes]
        texts = [words(one) for one in own] or nothing
        found.setdefault(key(own), (texts, []))[1].append(host["host"])
    return [*found.values()]


def clause(told: _Told) -> tuple[str, str]:
    """Return a condition, and which hosts it rules out, or in how many ways."""
    title, value = _CLAUSES.get(told["clause"], told["clause"]), told["value"]
    if isinstance(value, list):
        value = names(value)
    if isinstance(value, float):
        value = f"{value:g}"
    shown = title if value in {None, True} else f"{title} = {value}"
    return shown, _tally(told["how"]) if told["how"] else names(told["hosts"], told["against"])


def _tally(how: Sequence[_Told]) -> str:
    counts, texts = Counter[str](), dict[str, str]()
    for one in how:
        reason = {name: value for name, value in one["reason"].items() if name != "host"}
        counts[key(reason)] += one["hosts"]
        texts[key(reason)] = _briefly(one["reason"])
    common = counts.most_common()
    shown = ", ".join(f"{count} {texts[which]}" for which, count in common[:NAMED])
    return shown + (f", {len(common) - NAMED} other reasons" if common[NAMED:] else "")


def _briefly(reason: _Told) -> str:
    if (presence := reason.get("presence")) is not None:
        return PRESENCE.get(str(presence), str(presence))
    if reason["code"] == "twins":
        return PRESENCE["twins"]
    if reason["code"] == "refuses":
        return holds(reason["holds"])
    return words(reason, remedy=False)


def names(hosts: Sequence[str], count: int | None = None) -> str:
    """Return the names of `count` hosts, of many the first."""
    total = len(hosts) if count is None else count
    if total <= NAMED + 1:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:NAMED])} and {total - NAMED} more"


# What would open more hosts to a job


def wished(why: _Told) -> tuple[str, list[str]]:
    """Return a title, and what would open more hosts to the job; nothing where nothing would."""
    more = "open more hosts to it" if why.get("suitable") else "change that"
    return f"What would {more}:", [remedy(one) for one in why.get("remedies") or ()]


def remedy(told: _Told) -> str:
    """Return a change in words, and for which hosts it would do."""
    hosts = names(told.get("hosts", ()), told.get("count"))
    could = f"{hosts} could take it"
    return _REMEDIES[told["code"]](told, hosts, could)


def _less(told: _Told, _hosts: str, could: str) -> str:
    key, most = told["key"], told["most"]
    if most is None:
        return f"if it did not say {key}, {could}"
    amount, free = f"{most:g}", told["free"]
    if free is not None and free < most:
        amount = f"{free:g} (free now, of {most:g} in all)"
        if not free:
            amount = f"{most:g} (all of it in use now)"
    return f"if {key} were {amount} instead of {told['needed']:g}, {could}"


def _listed(told: _Told, hosts: str, _could: str) -> str:
    who = hosts if told["count"] == 1 else "they"
    has = "had" if told["key"] == "allowed_hosts" else "had not"
    return f"if its {_CLAUSES[told['key']]} {has} {hosts}, {who} could take it"


def _misnamed(told: _Told, _hosts: str, _could: str) -> str:
    hint = f"; did you mean {told['meant']!r}?" if told["meant"] else ""
    return f"its allowed_hosts (--on): no host is called {told['name']!r}{hint}"


_REMEDIES: Final[Mapping[str, Callable[[_Told, str, str], str]]] = {
    "unpause": lambda _, _hosts, could: f"after `fleet pause --off`, {could}",
    "resume": lambda _, host, could: f"after `fleet resume {host}`, {could}",
    "enroll": lambda _, host, could: f"after `fleet enroll {host} --replace`, {could}",
    "enroll-unknown": lambda _, host, _could: (
        f"after `fleet enroll {host} --replace`, {host} may take it: it is revoked, and what it is "
        "will be known once it is back"
    ),
    "less": _less,
    "hosts": _listed,
    "policy": lambda told, host, could: (
        f"if [hosts.{host}] did not say {told['key']} = {told['value']}, {could}"
    ),
    "data": lambda _, _hosts, could: (
        f"with prepared data (--data, that folder mounted again, or a dataset of the job), {could}"
    ),
    "program": lambda _, hosts, could: (
        f"if the owner of {hosts} let its program in ([programs] of fleet.toml), {could}"
    ),
    "misnamed": _misnamed,
    "requeue": lambda told, _hosts, _could: f"after `fleet requeue {told['job']}` it may go on",
    "more": lambda told, _hosts, _could: f"{told['count']} more changes would open a host each",
    "nearest": lambda told, host, _could: (
        f"no single change would do; the nearest is {host}: {all_words(told['reasons'])}"
    ),
}
