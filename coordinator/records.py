"""What the ledger remembers besides the jobs: of hosts, and of what operators did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker.messages import OperatorResponse

RequestKey = tuple[str, str]  # the client, and what it called its request


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One row of the ledger's table of hosts.

    `drained`: an operator keeps new jobs off it. `quarantine` is why the fleet itself does; empty
    when it does not. `at` (RFC 3339) and `who` belong to the newest change.
    """

    host: str
    drained: bool = False
    quarantine: str = ""
    at: str = ""
    who: str = ""

    def barred(self) -> tuple[str, ...]:
        """Return every reason why it is given no jobs, with the remedy."""
        lifts = f"`fleet resume {self.host}` lifts it"
        found = [f"drained by {self.who} at {self.at}; {lifts}"] if self.drained else []
        if self.quarantine:
            found.append(f"in quarantine since {self.at}: {self.quarantine}; {lifts}")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class HostForgotten:
    """A host whose row in the ledger's table of hosts, if it has one, is to go."""

    host: str


@dataclass(frozen=True, slots=True)
class Action:
    """One row of the ledger's table of actions: who has asked for what change, and what came of it.

    `at` is RFC 3339. `key` is none for what the coordinator does by itself. An action with an
    `answer` was looked at, and is not carried out again; one without was turned away at the door.
    """

    at: str
    who: str
    action: str
    outcome: Literal["done", "refused"]
    what: str
    key: RequestKey | None = None
    job_id: str | None = None
    host: str | None = None
    answer: OperatorResponse | None = None


@dataclass(frozen=True, slots=True)
class StoryFilter:
    """Which part of the ledger's story is wanted.

    `since` is RFC 3339. `after` is a place in the tables of events and of actions, from 0. `who` is
    as it is recorded, `operator:alice`, or one of its halves.
    """

    since: str | None = None
    job_id: str | None = None
    host: str | None = None
    who: str | None = None
    after: tuple[int, int] = (0, 0)
    limit: int = 200


Record = HostRecord | HostForgotten | Action
