"""When the owner lets this machine take jobs: quiet hours, idle only, snooze.

What the owner says on the machine and what the manifest says are judged together: either may
forbid, neither may lift the other. While something forbids, the agent refuses every job, whatever
the coordinator asks, and gives back what runs, unless that may be finished. `judge` is pure: the
local time and what was seen of the machine come with the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from agent.core import runs
from agent.core.core_settings import CorePart
from agent.core.effects import Look, Looked
from agent.core.state import Hold, State
from broker.clock import Now
from broker.errors import ConfigError
from broker.protocol.messages import HostRules, Rules, Why
from broker.protocol.quiet_hours import parse_hours, quiet_until

ALWAYS: Final = timedelta(days=7)  # quiet hours that end later do not end
NO_ANSWER_S: Final = 60.0


def judge(own: CorePart, manifest: HostRules, seen: Looked) -> tuple[Hold, ...]:
    """Return every reason against running jobs here now."""
    return tuple(_holds(own, manifest, seen))


def wants_idle(state: State) -> bool:
    """Whether a rule depends on the machine's use; without one it is not looked at."""
    return state.settings.idle_only or state.rules.idle_only


def on_looked(state: State, seen: Looked, now: Now) -> bool:
    """Judge what was seen; return whether the coordinator should hear of it at once."""
    holds = judge(state.settings, state.rules, seen)
    before, state.holds = {hold.why.code for hold in state.holds}, holds
    first, state.looked = not state.looked, True
    if not any(hold.why.code == "in_use" for hold in holds):
        state.in_use_since_s = None
    elif state.in_use_since_s is None:
        state.in_use_since_s = now.mono_s
    state.refuses = tuple(hold.why for hold in holds)
    state.timers.set(("look",), now.mono_s + state.settings.look_s)
    return first or before != {hold.why.code for hold in holds}


def give_back(state: State, now: Now) -> None:
    """Give back what runs, with its checkpoint, if one of the reasons demands it."""
    used_s = 0.0 if state.in_use_since_s is None else now.mono_s - state.in_use_since_s
    grace_s = state.settings.busy_grace_s
    why = [one.why for one in state.holds if one.release and (one.at_once or used_s >= grace_s)]
    if not why:
        return
    for run in list(state.runs.values()):
        runs.give_back(state, run, why[0], now)


def on_rules(state: State, rules: Rules, now: Now) -> None:
    """Take the manifest's rules for this host."""
    try:
        for text in rules.rules.quiet_hours:
            parse_hours(text)
    except ConfigError:
        state.drop("rules", "quiet hours that this agent does not understand")
        return
    state.rules, state.rules_digest = rules.rules, rules.digest
    look(state, now)
    state.beat_soon(now)


def look(state: State, now: Now) -> None:
    """Ask for a look at the machine now."""
    state.timers.set(("look",), now.mono_s + NO_ANSWER_S)
    state.do(Look(idle=wants_idle(state)))


def _holds(own: CorePart, manifest: HostRules, seen: Looked) -> Iterator[Hold]:
    snooze = seen.snooze
    if snooze is not None:
        until = "" if snooze.until is None else _minute(snooze.until)
        yield Hold(Why(code="snoozed", by="owner", until=until), release=snooze.now)
    sides: tuple[tuple[CorePart | HostRules, str], ...] = ((own, "owner"), (manifest, "manifest"))
    for rules, whose in sides:
        release = rules.on_busy == "release"
        ends = quiet_until(map(parse_hours, rules.quiet_hours), seen.local)
        if ends is not None:
            until = _minute(ends) if ends <= seen.local + ALWAYS else ""
            yield Hold(Why(code="quiet", by=whose, until=until), release)
    idle_only = [rules for rules, _ in sides if rules.idle_only]
    signs = dict(_signs(own, seen)) if idle_only else {}
    if signs:
        release = any(rules.on_busy == "release" for rules in idle_only)
        yield Hold(Why(code="in_use", **signs), release, at_once=False)


def _minute(moment: datetime) -> str:
    return moment.isoformat(timespec="minutes")


def _signs(own: CorePart, seen: Looked) -> Iterator[tuple[str, Any]]:
    """Yield the signs that somebody uses the machine, as figures of `Why`."""
    if seen.input_idle_s is not None and seen.input_idle_s < own.idle_after_s:
        yield "input_idle_s", round(seen.input_idle_s)
    if seen.gpu_users:
        yield "gpu_users", seen.gpu_users[:3]
    if seen.others_percent is not None and seen.others_percent >= own.busy_percent:
        yield "others_percent", round(seen.others_percent)
