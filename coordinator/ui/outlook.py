"""Predictions for the verbs: what is asked of the coordinator for them, and how they are told.

The plan is played through here and not by the coordinator, which has heartbeats to listen to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from broker.errors import RemoteError
from broker.protocol.messages import AskAttempts, AskPlan, Capability, Heartbeat, TrainerInfo
from broker.sentences import counted
from broker.sentences import span as words_of_span
from broker.system.machine import new_id
from coordinator.jobs import host_paging
from coordinator.jobs.plan_entries import HostPolicy, JobSpec, policy_from_dict, spec_from_dict
from coordinator.scheduler.durations import History, default_epochs
from coordinator.scheduler.estimates import Earlier, Span
from coordinator.scheduler.feasibility import MOST_HOSTS, ORDER, Waiting, What
from coordinator.scheduler.forecast import Forecast, Held, Outlook, forecast
from coordinator.scheduler.rules import HostView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from coordinator.client.client import OperatorClient

LIVE: Final = ("pending", "claimed", "running")
HISTORY: Final = 4000  # attempts that a prediction rests on
SOON_S: Final = 5.0
BY_THE_WAY: Final = 2000  # unfinished jobs up to which `fleet status` predicts without being asked
HOSTS_BY_THE_WAY: Final = 500  # likewise: each is asked for all that it is


@dataclass(frozen=True, slots=True)
class Planned:
    """A job of the running plan, as the coordinator tells it: `row` has the rest of it."""

    spec: JobSpec
    row: Mapping[str, Any]

    def waiting(self, spec: JobSpec | None = None) -> Waiting:
        """Return it as a job to be placed, with another spec if there is one."""
        row = self.row
        return Waiting(
            spec or self.spec,
            row["created_at"],
            row.get("waited_s", 0.0),
            row.get("ready_in_s", 0.0),
            row["host"],
            tuple(sorted(row.get("refused", {}).items())),
            _earlier(row),
        )

    def held(self) -> Held:
        """Return it as a job that a host is at."""
        row = self.row
        return Held(
            self.spec,
            row["host"],
            row["elapsed_s"],
            row.get("share"),
            row.get("eta_s"),
            row["uses_slot"],
            _earlier(row),
            is_stuck=bool(row.get("no_room")),
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a prediction is made of, at one moment.

    A `paused` fleet is predicted as if it went on now. `policies` are those in force, of each host
    that is known or that the plan names, `known` the names of the former. `plans_grace_s` is none
    where `grace_s` is the coordinator's own, whatever a plan says.
    """

    jobs: Sequence[Planned]
    views: Sequence[HostView]
    history: History
    grace_s: float
    plans_grace_s: float | None = None
    name: str = ""
    policies: Mapping[str, HostPolicy] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    paused: bool = False

    def held(self) -> list[Held]:
        """Return the jobs that hosts are at."""
        return [job.held() for job in self.jobs if job.row["state"] in {"claimed", "running"}]

    def forecast(self) -> Forecast:
        """Return what is to be expected of the running plan."""
        waiting = [
            job.waiting()
            for job in self.jobs
            if job.row["state"] == "pending" and job.row["in_plan"]
        ]
        return self.predict(waiting, self.views, self.grace_s)

    def predict(
        self, waiting: Sequence[Waiting], views: Sequence[HostView], grace_s: float
    ) -> Forecast:
        """Return what is to be expected if these jobs were to be placed, on hosts such as these."""
        found = forecast(waiting, self.held(), views, self.history, grace_s)
        return replace(found, paused=self.paused)


def look(client: OperatorClient, states: Sequence[Any] = LIVE) -> Picture:
    """Ask the coordinator for the jobs in `states`, the hosts, and what is over.

    Raises what `OperatorClient.ask` does, and `RemoteError` for an answer that makes no sense.
    """
    try:
        jobs, said = _plan(client, states)
        views, policies, known = _hosts(client)
        grace_s, plans_grace_s = said["grace_s"], said["plans_grace_s"]
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise RemoteError(f"the coordinator's answer cannot be used: {error!r}"[:300]) from None
    wanted = AskAttempts(id=new_id(), ends=("completed",))
    past = History(attempts(client, wanted, HISTORY), epochs_by_default(views))
    return Picture(
        jobs, views, past, grace_s, plans_grace_s, said["name"], policies, known,
        paused=bool(said["paused"]),
    )  # fmt: skip


def epochs_by_default(views: Iterable[HostView]) -> dict[tuple[str, str], float]:
    """Return the epochs of a job that sets none, by model and host, as the hosts announce them.

    By model and "": where the host is not known any more.
    """
    from coordinator.manifest.builtin import builtin_trainers

    found: dict[tuple[str, str], float] = {}
    by_set: dict[int, dict[str, float]] = {}  # many hosts have one: see `views_of`
    for view in views:
        trainers = view.capability.trainers
        if (epochs := by_set.get(id(trainers))) is None:
            epochs = by_set[id(trainers)] = {
                model: default_epochs(trainer.hyper_schema) for model, trainer in trainers.items()
            }
        for model, most in epochs.items():
            found[model, view.host] = found[model, ""] = most
    for model, schema in builtin_trainers().items():
        found[model, ""] = default_epochs(schema)
    return found


def attempts(
    client: OperatorClient, wanted: AskAttempts, most: int | None = None
) -> list[dict[str, Any]]:
    """Return attempts that have ended, newest first: all, or about as many as `most`."""
    found: list[dict[str, Any]] = []
    before = wanted.before
    while most is None or len(found) < most:
        page = client.ask(wanted.model_copy(update={"id": new_id(), "before": before}))
        found += page["attempts"]
        before = page["next"]
        if before is None:
            break
    return found


def _plan(client: OperatorClient, states: Sequence[Any]) -> tuple[list[Planned], Mapping[str, Any]]:
    """Return the jobs in `states`, and what the last page says of the plan as a whole."""
    jobs: dict[str, Planned] = {}  # a job that moves while we page may come twice
    offset: int | None = 0
    while True:
        page = client.ask(AskPlan(id=new_id(), states=tuple(states), offset=offset or 0))
        for row in page["jobs"]:
            spec = spec_from_dict(row["spec"])
            jobs[spec.job_id] = Planned(spec, row)
        offset = page["next"]
        if offset is None:
            return list(jobs.values()), page


def _hosts(
    client: OperatorClient,
) -> tuple[list[HostView], dict[str, HostPolicy], frozenset[str]]:
    """Return the hosts that have said what they are, the policies of all, and who is known.

    There are some that have yet to say it, and some that only the ledger or the plan names.
    """
    views: list[HostView] = []
    policies: dict[str, HostPolicy] = {}
    known: set[str] = set()
    for page in client.host_pages(absent=True):
        rows = host_paging.whole(page)
        there = views_of(rows)
        views += there
        policies |= {view.host: view.policy for view in there}
        for row in (*rows, *page["others"]):
            if row["host"] not in policies:
                policies[row["host"]] = policy_from_dict(row["policy"])
        known |= host_paging.known_names(page)
    return views, policies, frozenset(known)


def _earlier(row: Mapping[str, Any]) -> Earlier | None:
    found = row.get("earlier")
    return Earlier(**found) if found else None


def views_of(rows: Iterable[Mapping[str, Any]]) -> list[HostView]:
    """Return as matchmaking sees them those of `hostpages.whole` that have said what they are."""
    # The rows of a page have their trainers in common; to look through them takes fifty times what
    # the rest of a host does.
    known: dict[int, Mapping[str, TrainerInfo]] = {}
    found = []
    for row in rows:
        if (told := row["capability"]) is None:
            continue
        trainers = known.get(id(told["trainers"]), told["trainers"])
        capability = Capability.model_validate({**told, "trainers": trainers})
        known[id(told["trainers"])] = capability.trainers
        found.append(_view(row, capability))
    return found


def _view(row: Mapping[str, Any], capability: Capability) -> HostView:
    return HostView(
        host=row["host"],
        online=row["status"] == "online",
        offline_why=row["presence"],
        capability=capability,
        heartbeat=Heartbeat.model_validate(row["heartbeat"]) if row["heartbeat"] else None,
        policy=policy_from_dict(row["policy"]),
        revoked=row["revoked"],
        barred=tuple(row["drained"]),
        snoozed=row["snoozed"],
        twins=row["presence"] == "twins",
    )


# How predictions are told


def say(out: Console, text: str | Text, indent: int = 0, *, hang: int = 0) -> None:
    """Print a paragraph: on a terminal it wraps between words, elsewhere it is one line.

    What does not fit goes on `hang` blanks further in than it begins.
    """
    from coordinator.ui import terminal

    if isinstance(text, str):
        text = terminal.Text(terminal.told(text))
    line = terminal.Text(" " * indent).append(text)
    if out.is_terminal:
        out.print(terminal.Line(line, indent=indent + hang))
    else:
        out.print(line, soft_wrap=True)


def say_beside(out: Console, title: Text, texts: Sequence[str], indent: int) -> None:
    """Print paragraphs beside a title, each below the other; as `say` does it."""
    from coordinator.ui import terminal

    beside = title.cell_len
    say(out, title + terminal.Text(texts[0]), indent, hang=beside)
    for text in texts[1:]:
        say(out, text, indent + beside)


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
    """Return when the plan will be done, and what will be left, in one line.

    What nobody can run, one of the hosts that are `hosts_starting` may be able to.
    """
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


def awaited(found: Forecast) -> Iterator[tuple[What, list[Outlook]]]:
    """Yield what the jobs wait for that no host can take as things are, each with these jobs."""
    absent = found.of("absent")
    for awaits in ORDER:
        if ones := [one for one in absent if one.awaits == awaits]:
            yield awaits, ones


def _on_hosts(ones: Sequence[Outlook]) -> str:
    """Return the hosts that these jobs wait for, where that is the same few for all of them."""
    hosts = {one.awaited for one in ones}
    return ", ".join(*hosts) if len(hosts) == 1 and len(*hosts) <= MOST_HOSTS else ""


def _for_data(ones: Sequence[Outlook]) -> str:
    return f"for data on {_on_hosts(ones) or 'their hosts'}"


def _for_resume(ones: Sequence[Outlook]) -> str:
    hosts = _on_hosts(ones)
    return f"for hosts that are drained or in quarantine{f' ({hosts})' if hosts else ''}"


_FOR_WHAT: Final[Mapping[What, Callable[[Sequence[Outlook]], str]]] = {
    "quiet": lambda _: "for a host that takes none now",
    "return": lambda _: "for a host to come back",
    "data": _for_data,
    "resume": _for_resume,
}


def _left_over(found: Forecast, hosts_starting: int) -> Iterator[str]:
    """Yield how many jobs are not given to anybody as things are."""
    for awaits, ones in awaited(found):
        waits = "waits" if len(ones) == 1 else "wait"
        yield f"{counted(len(ones), 'job')} {waits} {_FOR_WHAT[awaits](ones)}"
    if stuck := len(found.of("stuck")):
        yet = f" yet ({starting(hosts_starting)})" if hosts_starting else ""
        yield f"{counted(stuck, 'job')} no known host can run{yet}"


def _is_far(found: Forecast) -> bool:
    """Whether what can be predicted rests on runs of many more epochs, or far fewer."""
    known = (one.estimate for one in found.outlooks.values() if one.ends_known)
    return any(estimate is not None and estimate.is_far for estimate in known)


def to_dict(one: Outlook, now: datetime, *, paused: bool) -> dict[str, Any]:
    """Return an outlook as JSON values: spans in seconds from now, medians as RFC 3339 as well.

    Of a job that waits for a `paused` fleet no moment is known: its spans begin when that goes on.
    """
    moment = _unknown if paused and one.verdict != "running" else _moment
    return {
        "job_id": one.spec.job_id,
        "name": one.spec.name,
        "verdict": one.verdict,
        "host": one.host,
        "starts_in_s": _spread(one.start),
        "ends_in_s": _spread(one.end),
        "starts_at": moment(one.start, now),
        "ends_at": moment(one.end, now),
        "basis": one.estimate.basis if one.estimate else None,
        "runs": one.estimate.runs if one.estimate else None,
        "scaled_from": (one.estimate.scaled_from or None) if one.estimate else None,
        "rests_on": one.estimate.words() if one.estimate else None,
        "vague": one.vague,
        "after": one.after,
        "ahead": one.ahead,
        "awaits": one.awaits,
        "against": [{"reason": text, "hosts": count} for text, count in one.against],
    }


def summary_to_dict(found: Forecast, now: datetime, hosts_starting: int = 0) -> dict[str, Any]:
    """Return the whole of a forecast as JSON values; when a paused plan will end is not known."""
    moment = _unknown if found.waits_for_fleet() else _moment
    return {
        "ends_in_s": _spread(found.end),
        "ends_at": moment(found.end, now),
        "unknown": found.unknown,
        "paused": found.paused,
        "absent": len(found.of("absent")),
        "awaits": {awaits: len(ones) for awaits, ones in awaited(found)},
        "stuck": len(found.of("stuck")),
        "text": end_of_plan(found, hosts_starting),
    }


def grouped(outlooks: Iterable[Outlook]) -> list[tuple[str, list[str]]]:
    """Return reasons with the names of the jobs that have them, the most frequent first."""
    found: dict[str, list[str]] = {}
    for one in outlooks:
        texts = [text if count == 1 else f"{text} ({count} hosts)" for text, count in one.against]
        found.setdefault("; ".join(texts) or "no host is known", []).append(one.spec.name)
    return sorted(found.items(), key=lambda one: -len(one[1]))


def _spread(span: Span | None) -> dict[str, float] | None:
    if span is None:
        return None
    figures = (round(value, 1) for value in span)
    return dict(zip(("quick", "median", "slow"), figures))


def _unknown(_span: Span | None, _now: datetime) -> None:
    return None


def _moment(span: Span | None, now: datetime) -> str | None:
    if span is None:
        return None
    then = now + timedelta(seconds=span.median_s)
    return then.isoformat(timespec="seconds").replace("+00:00", "Z")
