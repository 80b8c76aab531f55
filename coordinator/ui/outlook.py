"""How predictions are told, to people and to scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from broker.figures import counted, size
from broker.figures import span as words_of_span
from coordinator.jobs.reason_words import all_words, key
from coordinator.jobs.reasons import Wait
from coordinator.scheduler.estimates import Estimate, Span
from coordinator.scheduler.feasibility import MOST_HOSTS, Against
from coordinator.scheduler.forecast import Forecast, Outlook

SOON_S: Final = 5.0
BY_THE_WAY: Final = 2000  # unfinished jobs up to which `fleet status` predicts without being asked
HOSTS_BY_THE_WAY: Final = 500  # likewise: each is asked for all that it is


def at(in_s: float, now: datetime | None = None) -> str:
    """Return a moment that far ahead by this machine's clock: `14:05`, `Mon 14:05`, `Dec 24`."""
    here = (now or datetime.now(UTC)).astimezone()
    then = here + timedelta(seconds=in_s)
    days = (then.date() - here.date()).days
    if days == 0:
        return f"{then:%H:%M}"
    return f"{then:%a %H:%M}" if days < 7 else f"{then:%b} {then.day}"


def later(in_s: float) -> str:
    """Return a moment as a distance from another one: `+12 min`."""
    return f"+{words_of_span(in_s)}"


def between(span: Span, now: datetime | None = None) -> str:
    """Return the quick and the slow case of a moment, nothing where they are the same."""
    early, late = at(span.quick_s, now), at(span.slow_s, now)
    return "" if early == late else f"{early} to {late}"


def about(span: Span, now: datetime | None = None) -> str:
    """Return a moment with distance and spread: `about 14:05, in 12 min (13:58 to 14:20)`."""
    if span.median_s < SOON_S:
        return "any moment now"
    spread = between(span, now)
    text = f"about {at(span.median_s, now)}, in {words_of_span(span.median_s)}"
    return f"{text} ({spread})" if spread else text


def starting(count: int) -> str:
    """Return in words that so many hosts have yet to say what they are."""
    return f"{counted(count, 'host')} {'is' if count == 1 else 'are'} starting"


def end_of_plan(found: Forecast, hosts_starting: int = 0) -> str:
    """Return when the plan will be done, and what will be left, in one line."""
    words = []
    is_near = found.end is not None and found.end.median_s < SOON_S
    if found.unknown:
        words.append(f"how long {counted(found.unknown, 'job')} will take is unknown")
        if found.end is not None and not is_near:
            words.append(f"the part that can be predicted ends {about(found.end)}")
    elif is_near:
        words.append("about to be done")
    elif found.end is not None:
        left = words_of_span(found.end.median_s)
        spread = between(found.end)
        words.append(f"about {left} left, until {at(found.end.median_s)}")
        words[0] += f" ({spread})" if spread else ""
    if found.end is not None and not is_near and _is_far(found):
        words.append("it rests on runs of other epochs")
    text = "; ".join([*words, *_left_over(found, hosts_starting)])
    return f"paused; if it went on now: {text}" if found.waits_for_fleet() else text


def awaited(found: Forecast) -> Iterator[tuple[Wait, list[Outlook]]]:
    """Yield what the jobs wait for that no host can take as things are, each with these jobs."""
    absent = found.of("absent")
    for awaits in Wait:
        if ones := [one for one in absent if one.awaits is awaits]:
            yield awaits, ones


def _on_hosts(ones: Sequence[Outlook]) -> str:
    """Return the hosts that these jobs wait for, where that is the same few for all of them."""
    hosts = {one.awaited for one in ones}
    return ", ".join(*hosts) if len(hosts) == 1 and len(*hosts) <= MOST_HOSTS else ""


def _for_what(awaits: Wait, hosts: str) -> str:
    match awaits:
        case Wait.QUIET:
            return "for a host that takes none now"
        case Wait.RETURN:
            return "for a host to come back"
        case Wait.DATA:
            return f"for data on {hosts or 'their hosts'}"
        case Wait.PREDECESSOR:
            return "for earlier jobs that do not go on"
        case _:
            of = f" ({hosts})" if hosts else ""
            return f"for hosts that are drained or in quarantine{of}"


def _left_over(found: Forecast, hosts_starting: int) -> Iterator[str]:
    """Yield how many jobs are not given to anybody as things are."""
    for awaits, ones in awaited(found):
        waits = "waits" if len(ones) == 1 else "wait"
        yield f"{counted(len(ones), 'job')} {waits} {_for_what(awaits, _on_hosts(ones))}"
    if stuck := len(found.of("stuck")):
        yet = f" yet ({starting(hosts_starting)})" if hosts_starting else ""
        yield f"{counted(stuck, 'job')} no known host can run{yet}"


def _is_far(found: Forecast) -> bool:
    """Whether what can be predicted rests on runs of many more epochs, or far fewer."""
    known = (one.estimate for one in found.outlooks.values() if one.ends_known)
    return any(estimate is not None and estimate.is_far for estimate in known)


def rests_on(found: Estimate, *, in_full: bool = False) -> str:
    """Return what an estimate rests on; `in_full`: with how far those runs were like it."""
    runs = counted(found.runs, "run")
    theirs = f" of {counted(found.scaled_from, 'epoch')}" if found.scaled_from else ""
    own = "-".join(filter(None, (found.model, found.mode))) + theirs
    other = f"{found.model} in another mode{theirs}"
    text = {
        "here": f"{runs} of {own} here",
        "model-here": f"{runs} of {other} here",
        "elsewhere": f"{runs} of {own} on other hosts",
        "model-elsewhere": f"{runs} of {other} on other hosts",
        "eta": "its trainer's own ETA",
        "progress": "its progress so far",
        "overdue": f"longer already than {runs} of its like",
    }.get(found.basis, "no basis: never completed yet")
    scaled = f", scaled to {found.epochs}" if found.is_history and found.scaled_from else ""
    aside = _left_aside(found) if in_full else ""
    return ", ".join(filter(None, (f"{text}{scaled}", aside)))


def _left_aside(found: Estimate) -> str:
    if not found.is_history:
        return ""
    if not found.epochs:
        return "whatever their parameters"
    alike = "" if found.scaled_from else "of as many epochs, "
    return f"{alike}whatever their other parameters"


def basis(one: Outlook, *, in_full: bool = False) -> str:
    """Return what an outlook rests on, and what comes before its trainer starts."""
    text = rests_on(one.estimate, in_full=in_full) if one.estimate else ""
    lead = one.lead
    if lead.then().median_s < SOON_S:
        return text
    text += f", after {words_of_span(lead.fetch_s)} to fetch {size(lead.lacks_bytes)}"
    install_s = lead.prepare.median_s
    return text + (f" and {words_of_span(install_s)} to install its packages" if install_s else "")


def likely(one: Outlook, found: Forecast) -> str:
    """Say when a job will start, or end, and what that rests on."""
    by = basis(one, in_full=True)
    match one.verdict:
        case "running" if one.ends_known and one.end is not None:
            return f"It will likely end {about(one.end)}, by {by}."
        case "running" if one.vague:
            return ""  # its host is away: what is to be expected of it is said already
        case "running" if one.estimate and one.estimate.basis == "overdue":
            return f"When it ends is unknown: it has run {by}."
        case "running":
            return "How long it will take is unknown: nothing like it was ever completed."
        case "starts":
            it = "If the fleet goes on now, it" if found.paused else "It"
            return _start(it, one, found, by)
        case _:
            return ""


def _start(it: str, one: Outlook, found: Forecast, by: str) -> str:
    assert one.start is not None  # noqa: S101 - it starts
    assert one.end is not None  # noqa: S101 - likewise
    before = found.outlooks.get(one.after or "")
    after = f", when that has finished {before.spec.name}" if before else ""
    if one.ahead:
        others = "1 other pending job goes" if one.ahead == 1 else f"{one.ahead} others go"
        after += f"; {others} there first"
    if one.vague:
        why = "since it comes after a job whose end nobody knows"
        return f"{it} will likely go to {one.host}{after}; when is unknown, {why}."
    text = f"{it} will likely start {about(one.start)}, on {one.host}{after}."
    if one.after is None and one.start.median_s < SOON_S:
        text = f"{it} will likely start {'now' if found.paused else 'soon'}, on {one.host}."
    if one.ends_known:
        return f"{text} Likely done {about(one.end)}, by {by}."
    return f"{text} How long it takes is unknown: nothing like it was ever completed."


def to_dict(one: Outlook, now: datetime, *, paused: bool) -> dict[str, Any]:
    """Return an outlook as JSON values: spans in seconds from now, medians as RFC 3339 as well.

    Of a job that waits for a `paused` fleet no moment is known: its spans begin when that goes on.
    """
    is_timed = not paused or one.verdict == "running"
    return {
        "job_id": one.spec.job_id,
        "name": one.spec.name,
        "verdict": one.verdict,
        "host": one.host,
        "starts_in_s": _spread(one.start),
        "ends_in_s": _spread(one.end),
        "starts_at": _moment(one.start, now) if is_timed else None,
        "ends_at": _moment(one.end, now) if is_timed else None,
        "basis": one.estimate.basis if one.estimate else None,
        "runs": one.estimate.runs if one.estimate else None,
        "scaled_from": (one.estimate.scaled_from or None) if one.estimate else None,
        "epochs": (one.estimate.epochs or None) if one.estimate else None,
        "fetches_bytes": one.lead.lacks_bytes,
        "lead_s": _spread(one.lead.then()),
        "vague": one.vague,
        "after": one.after,
        "ahead": one.ahead,
        "awaits": None if one.awaits is None else one.awaits.name.lower(),
        "against": [_told(against) for against in one.against],
    }


def _told(against: Against) -> dict[str, Any]:
    return {
        "host": against.host,
        "hosts": against.hosts,
        "reasons": [reason.to_dict() for reason in against.reasons],
    }


def summary_to_dict(found: Forecast, now: datetime) -> dict[str, Any]:
    """Return the whole of a forecast as JSON values; when a paused plan will end is not known."""
    return {
        "ends_in_s": _spread(found.end),
        "ends_at": None if found.waits_for_fleet() else _moment(found.end, now),
        "unknown": found.unknown,
        "paused": found.paused,
        "absent": len(found.of("absent")),
        "awaits": {awaits.name.lower(): len(ones) for awaits, ones in awaited(found)},
        "stuck": len(found.of("stuck")),
        "other_epochs": _is_far(found),
    }


def grouped(outlooks: Iterable[Outlook]) -> list[tuple[str, list[str]]]:
    """Return reasons with the names of the jobs that have them, the most frequent first."""
    found: dict[str, tuple[str, list[str]]] = {}
    for one in outlooks:
        text = _against(one.against) or "no host is known"
        against = key([_told(told) for told in one.against])
        found.setdefault(against, (text, []))[1].append(one.spec.name)
    return sorted(found.values(), key=lambda one: -len(one[1]))


def _against(against: Iterable[Against]) -> str:
    """Say what is against hosts: what is against several alike is said once."""
    found: dict[str, list[str]] = {}
    for told in against:
        text = all_words(told.reasons)
        if told.host is None and told.hosts > 1:
            text += f" ({told.hosts} hosts)"
        found.setdefault(text, []).extend(filter(None, [told.host]))
    return "; ".join(
        f"{', '.join(names)}: {text}" if names else text for text, names in found.items()
    )


def _spread(span: Span | None) -> dict[str, float] | None:
    if span is None:
        return None
    figures = (round(value, 1) for value in span)
    return dict(zip(("quick", "median", "slow"), figures))


def _moment(span: Span | None, now: datetime) -> str | None:
    if span is None:
        return None
    then = now + timedelta(seconds=span.median_s)
    return then.isoformat(timespec="seconds").replace("+00:00", "Z")
