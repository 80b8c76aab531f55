"""Why a job is not running, clause by clause, and what would have to change: pure functions.

Everything is asked of the rules in `matchmaking`: what a clause rules out is the hosts for which it
gives a reason, and what would help is found by relaxing one thing at a time and asking again.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import JsonValue

from broker.protocol.messages import Needs
from coordinator.jobs.plan_entries import HostPolicy, JobSpec
from coordinator.scheduler.rules import GIB, HostView, Reason, could_take

MOST_NAMES: Final = 2
MOST_REMEDIES: Final = 6

Explained = Sequence[tuple[HostView, tuple[Reason, ...]]]

# What stands in the way, in the order in which people look at it, and the reasons that say so.
_CLAUSES: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("has its trainer", frozenset({"no-trainer", "hyper"})),
    ("has prepared data", frozenset({"no-data"})),
    ("require_cuda", frozenset({"no-cuda", "cuda-off"})),
    ("min_vram_gib", frozenset({"vram", "vram-unknown"})),
    ("min_ram_gib", frozenset({"ram"})),
    ("min_cores", frozenset({"cores"})),
    ("allowed_hosts", frozenset({"not-allowed"})),
    ("denied_hosts", frozenset({"denied"})),
    ("[hosts] allow_jobs", frozenset({"allow-jobs"})),
    ("[hosts] deny_jobs", frozenset({"deny-jobs"})),
    ("[hosts] slots", frozenset({"no-slots"})),
    ("not revoked", frozenset({"revoked"})),
    ("not drained or in quarantine", frozenset({"barred"})),
    ("the fleet is not paused", frozenset({"paused"})),
    ("is online", frozenset({"offline", "joining", "twins"})),
    ("takes jobs now", frozenset({"refuses", "snoozed", "rules"})),
    ("RAM is free now", frozenset({"ram-now"})),
    ("VRAM is free now", frozenset({"vram-now"})),
    ("prefer_cuda", frozenset({"grace"})),
    ("has not just refused it", frozenset({"refused"})),
    ("its retry is due", frozenset({"retry"})),
    ("has a free slot", frozenset({"busy"})),
)
# How hosts are, where the word of `presence` does not stand after a number.
PRESENCE: Final = {"left": "that left", "twins": "used by two agents"}
_NUMBERS: Final = ("min_vram_gib", "min_ram_gib", "min_cores")


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition: how many hosts it rules out, how many it and all before it leave."""

    clause: str
    against: int
    left: int
    detail: str

    def to_dict(self) -> dict[str, JsonValue]:
        """Return it as JSON values."""
        return {
            "clause": self.clause,
            "against": self.against,
            "left": self.left,
            "detail": self.detail,
        }


def clauses(
    spec: JobSpec, explained: Explained, presence: Mapping[str, str]
) -> list[Clause]:  # fmt: skip
    """Return the conditions that the job has, or that rule a host out; `presence` by host."""
    remaining = {view.host for view, _ in explained}
    found: list[Clause] = []
    # Reasons that this table does not know stand for themselves, before the slots.
    known = frozenset[str]().union(*(codes for _, codes in _CLAUSES))
    others = sorted({reason.code for _, rs in explained for reason in rs} - known)
    table = [*_CLAUSES[:-1], *((code, frozenset({code})) for code in others), _CLAUSES[-1]]
    for title, codes in table:
        hit = [
            (view.host, reason)
            for view, rs in explained
            for reason in rs
            if reason.code in codes
        ]  # fmt: skip
        hosts = dict.fromkeys(host for host, _ in hit)
        remaining -= hosts.keys()
        value = _value(spec, title)
        if hosts or value is not None:
            shown = title if value in {None, True} else f"{title} = {value}"
            detail = _detail(title, hit, presence)
            found.append(Clause(shown, len(hosts), len(remaining), detail))
    return found


def suitable(explained: Explained, presence: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the hosts that could take the job once what is passing has passed, by what that is.

    The keys: `now`, `busy`, a word of `presence`, `quiet` (it takes no jobs now), or `soon`.
    """
    found: dict[str, list[str]] = {}
    for view, rs in explained:
        if all(reason.passing for reason in rs):
            codes = {reason.code for reason in rs}
            found.setdefault(_how(view.host, codes, presence), []).append(view.host)
    return found


def none_suits(explained: Explained) -> bool:
    """Whether each host has something against the job that lasts, see `Reason.lasts`."""
    return all(any(reason.lasts for reason in rs) for _, rs in explained)


def unpaused(explained: Explained) -> Explained:
    """Return what would speak against each host if the fleet were not paused."""
    return [
        (replace(view, paused=""), tuple(reason for reason in rs if reason.code != "paused"))
        for view, rs in explained
    ]


def remedies(spec: JobSpec, explained: Explained, grace_s: float) -> list[str]:
    """Return single changes that would open further hosts to the job, best first."""
    closed = [view for view, rs in explained if not all(reason.passing for reason in rs)]
    found: list[tuple[int, str]] = []
    for relax in _RELAXATIONS:
        found += [(len(hosts), text) for hosts, text in relax(spec, closed, grace_s)]
    found.sort(key=lambda one: -one[0])  # stable: the order of the table otherwise
    texts = list(dict.fromkeys(text for _, text in found))
    if len(texts) > MOST_REMEDIES:
        more = len(texts) - MOST_REMEDIES
        texts = [*texts[:MOST_REMEDIES], f"{more} more changes would open a host each"]
    return texts


def nearest(explained: Explained) -> str:
    """Say which host has the least against the job for good; empty where there is none."""
    counted = [
        (len(lasting), view.host, lasting)
        for view, rs in explained
        if (lasting := [reason.text for reason in rs if not reason.passing])
    ]
    if not counted:
        return ""
    _, host, lasting = min(counted, key=lambda one: one[:2])
    return f"no single change would do; the nearest is {host}: {'; '.join(lasting)}"


def _value(spec: JobSpec, title: str) -> Any:
    """Return what the job says of a clause, none when it says nothing."""
    if title in Needs.model_fields:
        value = getattr(spec.needs, title)
        return f"{value:g}" if isinstance(value, float) else value or None
    if title in {"allowed_hosts", "denied_hosts"}:
        return _names(getattr(spec, title)) or None
    return None


def _detail(
    title: str, hit: Sequence[tuple[str, Reason]], presence: Mapping[str, str]
) -> str:  # fmt: skip
    if title == "is online":
        words = (presence.get(host, "offline") for host in dict(hit))
        return _tally(PRESENCE.get(word, word) for word in words)
    if title in {"takes jobs now", "has its trainer"}:
        return _tally(reason.text.removeprefix("takes no jobs now: ") for _, reason in hit)
    return _names(list(dict.fromkeys(host for host, _ in hit)))


def _tally(words: Iterable[str]) -> str:
    counts = Counter(words).most_common()
    shown = ", ".join(f"{count} {word}" for word, count in counts[:MOST_NAMES])
    return shown + (f", {len(counts) - MOST_NAMES} other reasons" if counts[MOST_NAMES:] else "")


def _names(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMES + 1:
        return ", ".join(names)
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"


def _how(host: str, codes: set[str], presence: Mapping[str, str]) -> str:
    if not codes:
        return "now"
    if codes & {"offline", "joining", "twins"}:
        return presence.get(host, "offline")
    if codes & {"refuses", "snoozed"}:
        return "quiet"
    return "busy" if "busy" in codes else "soon"


# One change at a time. Each yields the hosts that it opens, and how one says so.

Found = Iterator[tuple[list[HostView], str]]
Relaxation = Callable[[JobSpec, Sequence[HostView], float], Found]


def _open(spec: JobSpec, views: Iterable[HostView], grace_s: float) -> list[HostView]:
    return [view for view in views if could_take(spec, view, grace_s)]


def _could(views: Sequence[HostView]) -> str:
    return f"{_names([view.host for view in views])} could take it"


def _named(views: Sequence[HostView]) -> str:
    """Return the hosts by name, and once more as who could: a list of several is said once."""
    names = _names([view.host for view in views])
    return f"{names}, {names if len(views) == 1 else 'they'}"


def _without_cuda(spec: JobSpec, views: Sequence[HostView], grace_s: float) -> Found:
    if spec.needs.require_cuda:
        opened = _open(_needing(spec, require_cuda=False), views, grace_s)
        if opened:
            yield opened, f"if it did not say require_cuda, {_could(opened)}"


def _with_less(spec: JobSpec, views: Sequence[HostView], grace_s: float) -> Found:
    for name in _NUMBERS:
        needed = getattr(spec.needs, name)
        if needed is None:
            continue
        opened = _open(_needing(spec, **{name: None}), views, grace_s)
        amounts = sorted({_most(view, name) for view in opened} - {None}, reverse=True)
        for amount in amounts[:1]:
            less = _needing(spec, **{name: amount})
            if fitting := _open(less, opened, grace_s):
                so_much = _so_much(fitting, name, amount)
                yield fitting, f"if {name} were {so_much} instead of {needed:g}, {_could(fitting)}"
        if opened and not amounts:
            yield opened, f"if it did not say {name}, {_could(opened)}"


def _most(view: HostView, name: str) -> Any:
    """Return the most that a host could ever give of what a job needs, rounded down."""
    if name == "min_cores":
        return view.capability.physical_cores
    if name == "min_ram_gib":
        sizes, limit_gib = [view.capability.ram_total_bytes], view.policy.max_ram_gib
    else:
        sizes = [gpu.vram_total_bytes for gpu in view.capability.gpus if gpu.vram_total_bytes]
        limit_gib = view.policy.max_vram_gib
    if not sizes:
        return None
    most_gib = max(sizes) / GIB
    return math.floor(min(most_gib, limit_gib or most_gib) * 10) / 10 or None


def _so_much(views: Sequence[HostView], name: str, amount: float) -> str:
    """Return how much a job might need there; what is free now as well where that is less."""
    free = max(_free(view, name) for view in views)
    if free >= amount * GIB:
        return f"{amount:g}"
    free_gib = math.floor(free / GIB * 10) / 10
    if not free_gib:
        return f"{amount:g} (all of it in use now)"
    return f"{free_gib:g} (free now, of {amount:g} in all)"


def _free(view: HostView, name: str) -> float:
    """Return how much of a host's memory is free now, in bytes, where it is known."""
    free = {"min_ram_gib": view.free_ram_bytes, "min_vram_gib": view.free_vram_bytes}.get(name)
    known = free() if free is not None else None
    return math.inf if known is None else known


def _with_other_hosts(spec: JobSpec, views: Sequence[HostView], grace_s: float) -> Found:
    if spec.allowed_hosts:
        opened = _open(replace(spec, allowed_hosts=()), views, grace_s)
        if opened:
            yield opened, f"if its allowed_hosts had {_named(opened)} could take it"
    if spec.denied_hosts:
        opened = _open(replace(spec, denied_hosts=()), views, grace_s)
        if opened:
            yield opened, f"if its denied_hosts had not {_named(opened)} could take it"


def _lifted(spec: JobSpec, views: Sequence[HostView], grace_s: float) -> Found:
    for view in views:
        if view.barred and could_take(spec, replace(view, barred=()), grace_s):
            yield [view], f"after `fleet resume {view.host}`, {view.host} could take it"


def _enrolled(spec: JobSpec, views: Sequence[HostView], grace_s: float) -> Found:
    for view in views:
        if view.revoked and could_take(spec, replace(view, revoked=""), grace_s):
            yield [view], f"after `fleet enroll {view.host} --replace`, {view.host} could take it"


def _unpaused(spec: JobSpec, views: Sequence[HostView], grace_s: float) -> Found:
    opened = [
        view
        for view in views
        if view.paused and could_take(spec, replace(view, paused=""), grace_s)
    ]
    if opened:
        yield opened, f"after `fleet pause --off`, {_could(opened)}"


def _by_policy(spec: JobSpec, views: Sequence[HostView], grace_s: float) -> Found:
    for view in views:
        policy = view.policy
        for name in ("allow_jobs", "deny_jobs", "slots", "cuda", "max_vram_gib", "max_ram_gib"):
            value = getattr(policy, name)
            plain = getattr(HostPolicy(view.host), name)
            if value == plain:
                continue
            eased = replace(view, policy=replace(policy, **{name: plain}))
            if could_take(spec, eased, grace_s):
                shown = _toml(value)
                yield (
                    [view],
                    f"if [hosts.{view.host}] did not say {name} = {shown}, {_could([view])}",
                )


def _with_data(spec: JobSpec, views: Sequence[HostView], grace_s: float) -> Found:
    bare = [view for view in views if view.capability.data_id is None]
    given = {"data_id": "given"}
    opened = [
        view
        for view in bare
        if could_take(
            spec, replace(view, capability=view.capability.model_copy(update=given)), grace_s
        )
    ]
    if opened:
        yield opened, f"with prepared data (--data, or that folder mounted again), {_could(opened)}"


def _needing(spec: JobSpec, **changes: Any) -> JobSpec:
    return replace(spec, needs=spec.needs.model_copy(update=changes))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(list(value)) if isinstance(value, tuple) else f"{value:g}"


_RELAXATIONS: Final[tuple[Relaxation, ...]] = (
    _unpaused,
    _lifted,
    _enrolled,
    _with_less,
    _without_cuda,
    _with_other_hosts,
    _by_policy,
    _with_data,
)
