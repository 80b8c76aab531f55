"""Why a job is not running, clause by clause, and what would have to change: pure functions.

Everything is asked of the rules: what a clause rules out is the hosts for which they give a reason,
and what would help is found by changing one thing at a time and asking again.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import JsonValue

from broker.protocol.messages import AMOUNTS, Needs, ProgramsAllowed
from broker.protocol.reasons import GIB, Reason, Room
from coordinator.jobs.plan_entries import HostPolicy, JobSpec
from coordinator.jobs.reasons import BARRED, CLAUSES, NATURES, Wait, wait
from coordinator.scheduler.feasibility import soonest
from coordinator.scheduler.rules import HostView, reasons

MOST_NAMES: Final = 3
MOST_REMEDIES: Final = 6

Explained = Sequence[tuple[HostView, tuple[Reason, ...]]]
Told = dict[str, Any]

# Of these it is told how the hosts are, of the others which they are.
_HOW: Final = frozenset({"online", "takes", "trainer"})
_NUMBERS: Final = (*(amount.need for amount in AMOUNTS.values()), "min_cores")
_OF_POLICY: Final = ("allow_jobs", "deny_jobs", "slots", "cuda", "max_vram_gib", "max_ram_gib")


def clauses(spec: JobSpec, explained: Explained) -> list[Told]:
    """Return the conditions that the job has, or that rule a host out.

    Each with how many hosts are `against` it, how many it and all before it leave, and the first
    hosts, or `how` they are.
    """
    left = {view.host for view, _ in explained}
    found: list[Told] = []
    for clause in CLAUSES:
        hit = [
            (view.host, one)
            for view, rs in explained
            for one in rs
            if NATURES[one.code].clause == clause
        ]
        hosts = dict(hit)
        left -= hosts.keys()
        value = _value(spec, clause)
        if hosts or value is not None:
            how = Counter(one for _, one in hit if clause in _HOW)
            found.append({
                "clause": clause, "value": value, "against": len(hosts), "left": len(left),
                "hosts": [*hosts][:MOST_NAMES],
                "how": [{"reason": one.to_dict(), "hosts": count}
                        for one, count in how.most_common(MOST_NAMES)],
            })  # fmt: skip
    return found


def _value(spec: JobSpec, clause: str) -> JsonValue:
    """Return what the job says of a clause, none when it says nothing."""
    if clause in Needs.model_fields:
        return getattr(spec.needs, clause) or None
    return [*getattr(spec, clause)] or None if clause in {"allowed_hosts", "denied_hosts"} else None


def suitable(explained: Explained) -> dict[str, list[str]]:
    """Return the hosts that could take the job once what is passing has passed, by what that is.

    The keys: `busy`, a word of `presence`, `quiet` (it takes no jobs now), `again` (it has refused
    the job, and is asked again), or `soon`.
    """
    found: dict[str, list[str]] = {}
    for view, rs in explained:
        if wait(rs).passes:
            found.setdefault(_how(view, {NATURES[one.code].clause for one in rs}), []).append(
                view.host
            )
    return found


def _how(view: HostView, clauses: set[str]) -> str:
    if "online" in clauses:
        return view.presence
    if "takes" in clauses:
        return "quiet"
    return "again" if "refused" in clauses else "busy" if "free" in clauses else "soon"


def awaited(explained: Explained) -> tuple[Wait, list[str]]:
    """Return what the job waits for, and the hosts."""
    found: dict[Wait, list[str]] = {}
    for view, rs in explained:
        found.setdefault(wait(rs), []).append(view.host)
    return soonest(found)


def unpaused(explained: Explained) -> Explained:
    """Return what would speak against each host if the fleet were not paused."""
    return [
        (view.without("paused"), tuple(one for one in rs if one.code != "paused"))
        for view, rs in explained
    ]


def remedies(spec: JobSpec, explained: Explained) -> list[Told]:
    """Return single changes that would open further hosts to the job, best first."""
    opened: dict[str, list[HostView]] = {}
    for view, rs in explained:
        if wait(rs).passes:
            continue
        for change, eased, easier in _changes(spec, view):
            if wait(reasons(eased, easier)).passes:
                opened.setdefault(json.dumps(change), []).append(view)
    found = [_remedy(spec, json.loads(key), views) for key, views in opened.items()]
    found.sort(key=lambda one: (-one["count"], _ORDER.index(one["code"])))
    if len(found) > MOST_REMEDIES:
        return [*found[:MOST_REMEDIES], {"code": "more", "count": len(found) - MOST_REMEDIES}]
    return found


_ORDER: Final = ("unpause", "resume", "enroll", "less", "hosts", "policy", "data", "program")


def _changes(spec: JobSpec, view: HostView) -> Iterator[tuple[Told, JobSpec, HostView]]:
    """Yield single changes with the job and the host as they are after them."""
    codes = {one.code for one in view.restraints}
    for code, lifted in (("unpause", {"paused"}), ("resume", BARRED), ("enroll", {"revoked"})):
        if codes & lifted:
            own: Told = {} if code == "unpause" else {"host": view.host}
            yield {"code": code, **own}, spec, view.without(*lifted)
    for key in (*_NUMBERS, "require_cuda"):
        if getattr(spec.needs, key):
            eased = spec.needs.model_copy(update={key: Needs.model_fields[key].default})
            yield {"code": "less", "key": key}, replace(spec, needs=eased), view
    if spec.allowed_hosts:
        yield {"code": "hosts", "key": "allowed_hosts"}, replace(spec, allowed_hosts=()), view
    if spec.denied_hosts:
        yield {"code": "hosts", "key": "denied_hosts"}, replace(spec, denied_hosts=()), view
    plain = HostPolicy(view.host)
    for key in _OF_POLICY:
        if (value := getattr(view.policy, key)) != (usual := getattr(plain, key)):
            eased_view = replace(view, policy=replace(view.policy, **{key: usual}))
            change: Told = {"code": "policy", "host": view.host, "key": key}
            yield {**change, "value": json.dumps(value)}, spec, eased_view
    if view.capability.data_id is None:
        given = view.capability.model_copy(update={"data_id": "given"})
        yield {"code": "data"}, spec, replace(view, capability=given)
    if (program := spec.program) is not None:
        allowed = view.capability.programs or ProgramsAllowed(environments=(program.environment,))
        pinned = allowed.model_copy(update={"pinned": (program.digest,)})
        given = view.capability.model_copy(update={"programs": pinned})
        yield {"code": "program"}, spec, replace(view, capability=given)


def _remedy(spec: JobSpec, change: dict[str, Any], views: Sequence[HostView]) -> dict[str, Any]:
    if change["code"] == "less":
        most = [_most(view, change["key"]) for view in views]
        best = max((one for one in most if one is not None), default=None)
        views = [view for view, one in zip(views, most) if best in {None, one}]
        free = [_free(view, change["key"]) for view in views]
        least_known = max((one for one in free if one is not None), default=None)
        needed = getattr(spec.needs, change["key"])
        change |= {"needed": needed, "most": best, "free": least_known}
    hosts = [view.host for view in views]
    return {**change, "hosts": hosts[:MOST_NAMES], "count": len(hosts)}


def _most(view: HostView, key: str) -> float | None:
    """Return the most that a host could ever give of what a job needs, rounded down."""
    if key == "min_cores":
        return view.figures.cores
    return _tenths(_room(view, key).total) or None


def _free(view: HostView, key: str) -> float | None:
    """Return how much of it is free now, where that is known."""
    return _tenths(_room(view, key).free)


def _room(view: HostView, key: str) -> Room:
    rooms = view.figures.rooms
    return next((rooms[one] for one in AMOUNTS if AMOUNTS[one].need == key), Room(None, None))


def _tenths(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else math.floor(size_bytes / GIB * 10) / 10


def nearest(explained: Explained) -> Told | None:
    """Return which host has the least against the job for good; none where there is none.

    Of several it is one that has tried, for that knows more.
    """
    counted = [
        (len(lasting), lasting[0].code != "unusable", view.host, lasting)
        for view, rs in explained
        if (lasting := [one for one in rs if not NATURES[one.code].wait.passes])
    ]
    if not counted:
        return None
    *_, host, lasting = min(counted, key=lambda one: one[:3])
    reasons: list[JsonValue] = [one.to_dict() for one in lasting]
    return {"code": "nearest", "hosts": [host], "count": 1, "reasons": reasons}
