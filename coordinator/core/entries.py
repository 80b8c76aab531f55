"""What the tables of `World` hold: requests that are not answered yet, artifacts on their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.protocol.messages import (
    Assign,
    Finished,
    OperatorResponse,
    Released,
)
from broker.stream.stream import Receiver, Sender


@dataclass(frozen=True, slots=True)
class Claim:
    """An assignment that has not been answered yet."""

    request: Assign
    host: str
    until_s: float
    sent: int


@dataclass(frozen=True, slots=True)
class Stop:
    """A cancel that has not been answered yet."""

    why: str
    sent: int
    keep_finished: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """An artifact that is awaited, by the report that announces it."""

    host: str
    report: Finished | Released

    @property
    def job_id(self) -> str:
        """The job."""
        return self.report.job_id

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a checkpoint of a job that is given back, not a result."""
        return isinstance(self.report, Released)


@dataclass(slots=True)
class Upload:
    """An artifact on its way in. `receiver` is none until its part file is open.

    `host` sends it; of what is pushed, the operator's client. In the store it is under `model` and
    `mode`.
    """

    artifact_id: str
    host: str
    size_bytes: int
    chunk_bytes: int
    model: str
    mode: str
    is_push: bool = False
    part: int = 0  # which opening of its part file
    receiver: Receiver | None = None
    finishing: bool = False

    def cut(self) -> tuple[str, int, int]:
        """Return who sends it, and how it is cut into chunks."""
        return self.host, self.size_bytes, self.chunk_bytes


@dataclass(slots=True)
class Download:
    """An artifact on its way to an operator's client, or to a `host`."""

    artifact_id: str
    sender: Sender
    last_s: float
    topic_of: Callable[[int], str]
    host: str = ""


@dataclass(slots=True)
class Evidence:
    """What speaks against one host: jobs that failed on it, and those that work elsewhere."""

    failed: dict[str, None] = field(default_factory=dict)
    proven: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a command, none while it is carried out, and when that was (wall clock)."""

    response: OperatorResponse | None
    wall_s: float
