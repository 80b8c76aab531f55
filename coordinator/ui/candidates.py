"""What the shell completes: names of jobs and hosts, asked of the coordinator.

Whoever presses Tab waits: after `DEADLINE_S` there is no completion, and never an error.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from broker.figures import counted, size
from broker.wrapping import printable
from coordinator.jobs.result_words import metric_words
from coordinator.ui import words
from coordinator.ui.options import F, Where, option
from coordinator.ui.words import ID_CHARS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from coordinator.client.client import OperatorClient

DEADLINE_S: Final = 0.3
PATIENT_S: Final = 5.0  # where nobody has pressed Tab
MAX_ITEMS: Final = 1000
_SAFE: Final = re.compile(r"[\w.@:+=/-]{1,200}", re.ASCII)  # the shell takes such a word as it is
# Verbs that make sense for jobs in certain states only.
STATES: Final[dict[str, Sequence[str]]] = {
    "cancel": ("pending", "claimed", "running"),
    "requeue": ("claimed", "running", "completed", "failed", "cancelled"),
    "get": ("completed",),
    "predict": ("completed",),
    "report": ("completed",),
}
Found = list[tuple[str, str]]


def complete_job(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the jobs whose name, or else whose id, begins so; with their state and host."""
    states = STATES.get(ctx.info_name or "", ())
    if ctx.params.get("attempt"):
        states = ()  # what was set aside is of a job in any state

    def ask(client: OperatorClient) -> Found:
        rows = client.list_jobs(states)
        # A name means the job of the manifest, which may be in a state that was not asked for.
        has_left = any(not row["in_plan"] for row in rows)
        others = client.list_jobs() if states and has_left else rows
        planned = {row["name"] for row in others if row["in_plan"]}
        told = [
            _of_job(row, incomplete, by_id=not row["in_plan"] and row["name"] in planned)
            for row in rows
        ]
        in_line = ctx.params.get("jobs") or ()
        return [one for one in told if one[0] not in in_line]

    return _items(_within(ctx, ask), incomplete)


def complete_job_or_file(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the jobs that begin so; where there are none, the shell completes files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file"), *complete_job(ctx, param, incomplete)]


def complete_attempt(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the attempts of the job in the line whose results are there, and what those are."""
    # An option that lacks its value has click leave what comes before it as it is.
    job = ctx.params.get("job") or next(iter(ctx.params.get("jobs") or ctx.args), None)
    if not job:
        return []

    def ask(client: OperatorClient) -> Found:
        from broker.protocol.messages import AskShow
        from broker.system.machine import new_id

        shown = client.ask(AskShow(id=new_id(), job=job))
        there = [one for one in shown["results"] if one["is_there"]]
        return [(str(one["attempt"]), _of_result(one)) for one in there]

    return _items(_within(ctx, ask), incomplete)


def complete_host(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the hosts whose name begins so, with how they are."""

    def ask(client: OperatorClient) -> Found:
        return [(row["host"], row["presence"]) for row in client.list_workers()]

    return _items(_within(ctx, ask), incomplete)


def complete_model(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the models that begin so, of which some host has a trainer."""
    return _items(_within(ctx, _models), incomplete)


def models_of_hosts(ctx: click.Context) -> list[str]:
    """Return the models that hosts of the fleet have trainers for; none if nobody answers."""
    return [model for model, _ in _within(ctx, _models, PATIENT_S)]


def _models(client: OperatorClient) -> Found:
    """Return each model that a host has a trainer for, and how many hosts have one."""
    made = (row["capability"] for row in client.list_workers())
    counts = Counter(model for one in made if one for model in one["trainers"])
    return [(model, f"on {counted(count, 'host')}") for model, count in sorted(counts.items())]


def complete_pushed(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the programs or datasets whose name begins so, with their sizes.

    The parameter `program` is one; in an option, as `--data`, it stands after `NAME=`.
    """
    before, equals, _ = incomplete.rpartition("=")
    if param.param_type_name == "option" and not equals:
        return []
    begun = f"{before}{equals}"

    def ask(client: OperatorClient) -> Found:
        from broker.protocol.messages import AskPushed
        from broker.system.machine import new_id
        from coordinator.client.rows import title_of

        kind = "program" if param.name == "program" else "dataset"
        rows = client.ask(AskPushed(id=new_id(), kind=kind))["pushed"]
        return [
            (f"{begun}{title_of(row['name'], row['digest'])}", size(row["size_bytes"]))
            for row in reversed(rows)
        ]

    return _items(_within(ctx, ask), incomplete)


def complete_first_host(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return hosts for the first of several words, and nothing for those after it."""
    return [] if ctx.params.get(param.name or "") else complete_host(ctx, param, incomplete)


def _of_job(row: dict[str, Any], incomplete: str, *, by_id: bool = False) -> tuple[str, str]:
    """Return a job's name, or its id where the name does not fit, and its state."""
    where = f"{row['state']} on {row['host']}" if row["host"] else row["state"]
    if not by_id and _SAFE.fullmatch(row["name"]) and row["name"].startswith(incomplete):
        return row["name"], where
    return row["job_id"][:ID_CHARS], f"{row['name']}, {where}"


def _of_result(result: dict[str, Any]) -> str:
    said = [words.local(result["at"]), size(result["size_bytes"])]
    if metric := metric_words(result["metrics"]):
        said.insert(0, metric)
    if result["kept_until"]:
        said.append(f"kept until {words.local(result['kept_until'])}")
    return ", ".join(said)


def _items(found: Found, incomplete: str) -> list[CompletionItem]:
    """Return what begins so, and can be typed."""
    from click.shell_completion import CompletionItem

    safe = [one for one in found if one[0].startswith(incomplete) and _SAFE.fullmatch(one[0])]
    return [CompletionItem(value, help=printable(help_)) for value, help_ in safe[:MAX_ITEMS]]


def _within(
    ctx: click.Context, ask: Callable[[OperatorClient], Found], deadline_s: float = DEADLINE_S
) -> Found:
    """Ask on a thread of its own, which is left behind when the time is up."""
    found: list[Found] = []

    def run() -> None:
        with contextlib.suppress(Exception), _client(ctx, deadline_s) as client:
            found.append(ask(client))

    import coordinator.client.client  # noqa: F401 - before the clock starts: a small machine is slow

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(deadline_s)
    return found[0] if found else []


def _client(ctx: click.Context, timeout_s: float) -> OperatorClient:
    """Return a client by the options that are in the line so far, before the verb or after it."""
    from coordinator.client.client import OperatorClient

    at = Where.of(ctx.params, ctx.find_root().params)
    return OperatorClient(at.settings(), timeout_s)


def attempt_option(help_: str) -> Callable[[F], F]:
    """Return the option that names an attempt of the job in the line."""
    number = click.IntRange(1)
    return option("--attempt", "N", help_, type=number, shell_complete=complete_attempt)


job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)
host_argument = click.argument("host", metavar="HOST", shell_complete=complete_host)
