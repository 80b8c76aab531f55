"""`fleet cancel` and `fleet requeue`, for one job or several."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import click

from broker.errors import ConfigError
from broker.figures import counted, some
from broker.protocol.messages import MAX_JOBS, AskCancel, AskEach, AskRequeue, AskShow
from broker.system.machine import new_id
from broker.wrapping import printable
from coordinator.client.contact import NotDone, Unreachable
from coordinator.jobs.causes import in_words, set_aside
from coordinator.jobs.result_words import command, kept_words, share_of
from coordinator.ui import EXIT_REFUSED
from coordinator.ui.options import OperatorClient, client_options, flag, is_confirmed
from coordinator.ui.progress import waiting
from coordinator.ui.several import (
    STATES,
    Choice,
    Row,
    choosing,
    complain,
    failure,
    one_by_one,
    tell,
)
from coordinator.ui.words import answer, is_json, say, short, tell_of_namesakes

Action = Literal["cancel", "requeue"]
NAMED: Final = 8  # jobs of several
_GOING: Final = {"cancel": "cancelling", "requeue": "requeueing"}
yes_option = flag("--yes -y", "Do not ask.")


def change(client: OperatorClient, action: Action, choice: Choice, *, yes: bool) -> int:
    """Cancel or requeue several jobs after one question (in a script: only if chosen by state)."""
    asks = sys.stdin.isatty() and not yes
    rows: list[Row] = []
    failed: list[Row] = []
    if asks and choice.names:
        rows, failed = _looked_up(client, choice.names)
    elif not choice.names:
        rows = choice.chosen(client, action)
    asked = [row["job_id"] for row in rows] if asks or rows else [*choice.names]
    states = choice.states
    if rows and not yes:
        if not asks:
            them = "it" if len(rows) == 1 else "them"
            raise ConfigError(f"{_counts(rows)}: say --yes to {action} {them}")
        complain(failed)  # of a name that was mistyped, who is asked hears before
        say("; ".join([_counts(rows), *_lost(action, rows)]), err=True)
        question = f"{action.capitalize()} {counted(len(rows), 'job')}?"
        if not is_confirmed(question):
            return EXIT_REFUSED
        if action == "requeue":  # of a job in another state something else would be lost
            states = tuple(sorted({row["state"] for row in rows}))
    with waiting(f"{_GOING[action]} {counted(len(asked), 'job')}"):
        done = [*failed, *_carried_out(client, action, asked, states)]
    return tell(done, choice, _say_moved, failed if rows else ())


def _looked_up(client: OperatorClient, names: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Return the jobs as they are now, and why some could not be looked at."""
    rows = [*one_by_one(names, lambda job: client.ask(AskShow(id=new_id(), job=job)))]
    failed = [row for row in rows if not row["ok"]]
    for row in failed:
        if row["code"] == "unreachable":
            raise Unreachable("answer", in_words(row["why"]))
    return [*{row["job_id"]: row for row in rows if row["ok"]}.values()], failed


def _counts(rows: Sequence[Row]) -> str:
    """Return how many jobs there are, of them in each state, and the names of the first."""
    states = Counter(row["state"] for row in rows)
    by_state = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    names = printable(some([row["name"] for row in rows], NAMED))
    return f"{counted(len(rows), 'job')} ({by_state}): {names}"


def _lost(action: Action, rows: Sequence[Row]) -> list[str]:
    """Say what is lost of jobs that are requeued."""
    states = Counter(row["state"] for row in rows)
    runs, results = states["running"] + states["claimed"], states["completed"]
    lost = []
    if action == "requeue" and runs:
        many = f"{counted(runs, 'job')} that run begin again"
        lost.append(many if runs > 1 else "what runs begins again")
    if action == "requeue" and results:
        lost.append(f"{counted(results, 'result')} set aside")
    return lost


def _carried_out(
    client: OperatorClient, action: Action, asked: Sequence[str], states: Any
) -> Iterator[Row]:
    """Yield what came of each job. A request names as many as an answer holds."""
    for begin in range(0, len(asked), MAX_JOBS):
        some_jobs = tuple(asked[begin : begin + MAX_JOBS])
        ask = AskEach(id=new_id(), action=action, jobs=some_jobs, states=states)
        try:
            rows = client.ask(ask)["jobs"]
        except (Unreachable, NotDone) as error:
            if not begin:
                raise  # nothing is to be told beside
            code = error.code if isinstance(error, NotDone) else "unreachable"
            yield from (failure(job, code, error) for job in asked[begin:])
            return
        yield from ({**row, "job": job} for job, row in zip(some_jobs, rows, strict=True))


def _say_moved(rows: Sequence[Row]) -> None:
    moved: dict[str, list[str]] = {}
    for row in rows:
        moved.setdefault(row["state"], []).append(row["name"])
    for state, names in moved.items():
        are = "is" if len(names) == 1 else "are"
        say(f"{counted(len(names), 'job')} {are} {state}: {printable(some(names, NAMED))}")
    if any(row.get("artifact_id") for row in rows):
        say("`fleet show JOB` tells what was set aside, and how to fetch it", err=True)


@click.command("cancel")
@choosing
@yes_option
@client_options
def cancel_command(client: OperatorClient, choice: Choice, yes: bool) -> int:
    """Cancel jobs in any state but the final ones; what runs is stopped.

    Of several jobs it asks once, and tells what came of each. What --status and --model choose has
    to be confirmed, in a script by --yes. A job that is in none of the states of --status by then
    is left as it is.

    \b
    Examples:
      fleet cancel mlp-oracle
      fleet cancel mlp-oracle gru-oracle
      fleet cancel --status pending --model gbt
    """  # noqa: D301 - \b is click's
    if choice.only is None:
        return change(client, "cancel", choice, yes=yes)
    data = client.ask(AskCancel(id=new_id(), job=choice.only))
    tell_of_namesakes(data, choice.only)
    answer(data, f"{data['name']} ({short(data['job_id'])}) is {data['state']}")
    return 0


@click.command("requeue")
@choosing
@yes_option
@client_options
def requeue_command(client: OperatorClient, choice: Choice, yes: bool) -> int:
    """Put jobs back into the queue, from any state but pending; what runs is stopped.

    Each is trained from the beginning, with fresh retries and losses: a checkpoint that was kept is
    left aside. Only a result that came after the job was given up is taken as it is.

    The result of a completed job is set aside: `fleet get JOB --attempt N` fetches it as long as it
    is kept, and `fleet show` lists it. On a terminal that is asked first, as is whether a job that
    runs is to begin again.

    Of several jobs it asks once, and tells what came of each. What --status and --model choose has
    to be confirmed, in a script by --yes; of jobs that no manifest names any more, none is chosen.

    \b
    Examples:
      fleet requeue mlp-oracle
      fleet requeue mlp-oracle gru-oracle
      fleet requeue --status failed
    """  # noqa: D301 - \b is click's
    if choice.only is None:
        return change(client, "requeue", choice, yes=yes)
    job = choice.only
    if not yes and sys.stdin.isatty() and not _is_meant(client, job):
        return EXIT_REFUSED
    data = client.ask(AskRequeue(id=new_id(), job=job))
    tell_of_namesakes(data, job)
    told = f"{data['name']} ({short(data['job_id'])}) is {data['state']}"
    lost = in_words(data["set_aside"])
    answer(data, f"{told}; {lost}" if lost else told)
    if lost and data.get("artifact_id") and not is_json():
        job = short(data["job_id"]) if data["others"] else data["name"]
        kept = kept_words(data["keep_results_s"])
        say(printable(f"{command(job, data['attempt'])} fetches it, {kept}"), err=True)
    return 0


def _is_meant(client: OperatorClient, job: str) -> bool:
    """Ask whoever would lose something by it, by the job as it is now."""
    row = client.ask(AskShow(id=new_id(), job=job))
    tell_of_namesakes(row, job)
    lost = in_words(
        set_aside(row["state"], row["host"], share_of(row), row["metrics"], row["artifact_id"])
    )
    if not lost:
        return True
    keeps = ""
    if row["state"] == "completed":
        keeps = f", and kept {kept_words(row['keep_results_s'])}"
    say(printable(f"{row['name']} is {row['state']}; requeued, {lost}{keeps}"), err=True)
    return is_confirmed(f"Requeue {printable(row['name'])}?")
