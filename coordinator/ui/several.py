"""Verbs for several jobs: named one by one, or chosen by what `fleet list` chooses them by.

Of one job that is named a verb tells as it always does: with `--json` an object, and an error is
the verb's own. Of several, or of those that were chosen, it tells what came of each: with `--json`
an array with an object for each, which has `ok`, and where that is false a `message`. The exit code
is 0 when all went well (and where none was chosen), 3 when the answer to one did not come, else 1.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from broker.errors import BadMessage, BadStream, ConfigError, LocalError, plain
from broker.protocol.messages import MAX_JOBS, AskEach, AskShow
from broker.sentences import counted, printable
from broker.system.machine import new_id
from coordinator.client.contact import NotDone, Unreachable
from coordinator.ui.candidates import STATES as SUITABLE
from coordinator.ui.candidates import complete_job, complete_model
from coordinator.ui.exit_codes import EXIT_REFUSED, EXIT_UNREACHABLE
from coordinator.ui.job_order import by_row
from coordinator.ui.options import is_confirmed
from coordinator.ui.progress import waiting
from coordinator.ui.words import print_json, say, told

if TYPE_CHECKING:
    from coordinator.client.client import OperatorClient

F = TypeVar("F", bound=Callable[..., Any])
Row = dict[str, Any]
STATES: Final = ("pending", "claimed", "running", "completed", "failed", "cancelled")
NAMED: Final = 8  # jobs of several
TOLD: Final = 20  # of those that were refused
_GOING: Final = {"cancel": "cancelling", "requeue": "requeueing"}

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
status_option = click.option(
    "--status", "states", type=click.Choice(STATES), multiple=True,
    help="Only jobs in this state; may be given several times.",
)  # fmt: skip
model_option = click.option(
    "--model", "models", multiple=True, metavar="MODEL", shell_complete=complete_model,
    help="Only jobs of this model; may be given several times.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs are meant: those that are named, or else those that the options choose."""

    names: tuple[str, ...]
    states: tuple[str, ...]
    models: tuple[str, ...]

    @property
    def only(self) -> str | None:
        """The one job that is named; none where there are several, or they are chosen."""
        return self.names[0] if len(self.names) == 1 else None

    def chosen(self, client: OperatorClient, verb: str) -> list[Row]:
        """Return the jobs that the options choose; without a state, those that a verb is for."""
        states = self.states or SUITABLE.get(verb, ())
        rows = client.list_jobs(states, self.models)
        # What no manifest names any more cannot be requeued.
        return sorted((row for row in rows if verb != "requeue" or row["in_plan"]), key=by_row)

    def asked(self, client: OperatorClient, verb: str) -> list[str]:
        """Return by what each of the jobs is asked for: as it was named, or its id."""
        return [*self.names] or [row["job_id"] for row in self.chosen(client, verb)]

    def none(self) -> str:
        """Say that no job was chosen."""
        states, models = " or ".join(self.states), " or ".join(self.models)
        return printable(" ".join(filter(None, ("no", states, models, "jobs"))))


def choosing(function: F) -> F:
    """Add the jobs of a verb, by name or by the options of `fleet list`, as its `choice`."""

    @functools.wraps(function)
    def wrapped(
        *args: Any, jobs: tuple[str, ...], states: tuple[str, ...], models: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        if not (jobs or states or models):
            raise click.UsageError("say which job, or choose several by --status and --model")
        if jobs and (states or models):
            raise click.UsageError("name jobs, or choose them by --status and --model; not both")
        choice = Choice(tuple(dict.fromkeys(jobs)), states, models)
        return function(*args, choice=choice, **kwargs)

    jobs = click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete_job)
    return jobs(status_option(model_option(wrapped)))  # type: ignore[return-value] # with options


def change(
    client: OperatorClient, action: Literal["cancel", "requeue"], choice: Choice, *, yes: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Cancel or requeue several jobs, after one question, and return the exit code.

    Who has named jobs in a script has said which: only what was chosen needs `--yes` there.
    """
    asks = sys.stdin.isatty() and not yes
    rows, failed = _looked_up(client, choice, action) if asks or not choice.names else ([], [])
    asked = [row["job_id"] for row in rows] or ([] if asks else [*choice.names])
    states = choice.states
    if rows and not yes:
        if not asks:
            them = "it" if len(rows) == 1 else "them"
            raise ConfigError(f"{_counts(rows)}: say --yes to {action} {them}")
        complain(failed)  # of a name that was mistyped, who is asked hears before
        if not _is_meant(action, rows, as_json=as_json):
            return EXIT_REFUSED
        if action == "requeue":  # of a job in another state something else would be lost
            states = tuple(sorted({row["state"] for row in rows}))
    with waiting(f"{_GOING[action]} {counted(len(asked), 'job')}"):
        done = [*failed, *_carried_out(client, action, asked, states)]
    return _tell(done, choice, as_json=as_json, told_of=failed if rows else ())


def one_by_one(asked: Iterable[str], do: Callable[[str], Row]) -> Iterator[Row]:
    """Yield what `do` returns for each job, or why it was not done; after a silence no more."""
    for job in asked:
        try:
            yield {**do(job), "ok": True}
        except Unreachable as error:
            yield _failure(job, "unreachable", error)
            return
        except (NotDone, LocalError, BadStream, BadMessage, OSError) as error:
            code = error.code if isinstance(error, NotDone) else "refused"
            yield _failure(job, code, error)


def exit_code(rows: Iterable[Row]) -> int:
    """Return the exit code of what came of several jobs."""
    codes = {row["code"] for row in rows if not row["ok"]}
    if "unreachable" in codes:
        return EXIT_UNREACHABLE
    return EXIT_REFUSED if codes else 0


def complain(rows: Iterable[Row]) -> None:
    """Say on standard error of each job that failed why."""
    failed = [row for row in rows if not row["ok"]]
    for row in failed[:TOLD]:
        say(f"error: {told(row['message'])}", err=True)
    if len(failed) > TOLD:
        say(f"and {len(failed) - TOLD} more errors (--json has them)", err=True)


def some(names: Sequence[str]) -> str:
    """Return the first names of several jobs."""
    more = len(names) - NAMED
    return printable(", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else ""))


def _failure(job: str, code: str, error: Exception) -> Row:
    message = plain(error) if isinstance(error, OSError) else str(error)
    return {"ok": False, "job": job, "code": code, "message": message}


def _looked_up(client: OperatorClient, choice: Choice, action: str) -> tuple[list[Row], list[Row]]:
    """Return the jobs as they are now, and why some that were named could not be looked at."""
    if not choice.names:
        return choice.chosen(client, action), []
    found: dict[str, Row] = {}
    failed = []
    for row in one_by_one(choice.names, lambda job: client.ask(AskShow(id=new_id(), job=job))):
        if row["ok"]:
            found[row["job_id"]] = row
        elif row["code"] == "unreachable":
            raise Unreachable(row["message"])
        else:
            failed.append(row)
    return [*found.values()], failed


def _counts(rows: Sequence[Row]) -> str:
    """Return how many jobs there are, of them in each state, and the names of the first."""
    states = Counter(row["state"] for row in rows)
    by_state = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    return f"{counted(len(rows), 'job')} ({by_state}): {some([row['name'] for row in rows])}"


def _is_meant(action: str, rows: Sequence[Row], *, as_json: bool) -> bool:
    states = Counter(row["state"] for row in rows)
    lost = []
    if action == "requeue":
        if runs := states["running"] + states["claimed"]:
            lost.append(f"{counted(runs, 'job')} that run begin again" if runs > 1 else
                        "what runs begins again")  # fmt: skip
        if results := states["completed"]:
            lost.append(f"{counted(results, 'result')} set aside")
    say("; ".join([_counts(rows), *lost]), err=True)
    return is_confirmed(f"{action.capitalize()} {counted(len(rows), 'job')}?", as_json=as_json)


def _carried_out(
    client: OperatorClient, action: Literal["cancel", "requeue"], asked: Sequence[str],
    states: Any,
) -> Iterator[Row]:  # fmt: skip
    """Yield what came of each job. A request names as many as an answer holds."""
    for begin in range(0, len(asked), MAX_JOBS):
        some_jobs = tuple(asked[begin : begin + MAX_JOBS])
        ask = AskEach(
            id=new_id(), action=action, jobs=some_jobs, states=states,
            expires_at=time.time() + client.timeout_s,
        )  # fmt: skip
        try:
            rows = client.ask(ask)["jobs"]
        except (Unreachable, NotDone) as error:
            if not begin:
                raise  # nothing is to be told beside
            code = error.code if isinstance(error, NotDone) else "unreachable"
            yield from (_failure(job, code, error) for job in asked[begin:])
            return
        yield from ({**row, "job": job} for job, row in zip(some_jobs, rows, strict=True))


def _tell(
    rows: Sequence[Row], choice: Choice, *, as_json: bool, told_of: Sequence[Row]
) -> int:  # fmt: skip
    """Say what came of several jobs, and return the exit code; some were told of already."""
    if as_json:
        print_json(rows)
        return exit_code(rows)
    moved: dict[str, list[str]] = {}
    for row in rows:
        if row["ok"]:
            moved.setdefault(row["state"], []).append(row["name"])
    for state, names in moved.items():
        are = "is" if len(names) == 1 else "are"
        say(f"{counted(len(names), 'job')} {are} {state}: {some(names)}")
    if any(row.get("artifact_id") for row in rows):
        say("`fleet show JOB` tells what was set aside, and how to fetch it", err=True)
    if not rows:
        say(choice.none())
    complain([row for row in rows if row not in told_of])
    return exit_code(rows)
