"""The jobs' book and the real ledger, step by step against a model of ten lines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.clock import Now
from coordinator.jobs.jobs import JobBook
from coordinator.jobs.states import Event
from coordinator.ledger.ledger import Ledger, LedgerConflict
from tests.harness.coordinator import HEX, spec
from tests.harness.replay import contradiction

# Written out by hand: where each event may come, and where it leads (none: it stays).
P, C, R, DONE, FAIL, GONE = "pending", "claimed", "running", "completed", "failed", "cancelled"
MODEL = {
    "assigned": ({P}, C), "unanswered": ({C}, P), "refused": ({C}, P), "started": ({C}, R),
    "released": ({C, R}, P), "lost": ({C, R}, P), "exhausted": ({C, R}, FAIL), "resumed": ({P}, R),
    "retried": ({C, R, P}, P), "failed": ({C, R, P}, FAIL), "completed": ({C, R, P}, DONE),
    "kept": ({FAIL}, None), "cancelled": ({C, R, P}, GONE),
    "requeued": ({C, R, DONE, FAIL, GONE}, P), "changed": ({P, C, R, DONE, FAIL, GONE}, None),
}  # fmt: skip
NAMES = ("a", "b", "c")
SPECS = {name: spec(name) for name in NAMES}


class LedgerMachine(RuleBasedStateMachine):
    """Any events in any order, with crashes between them."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.ledger = Ledger(Path(self._folder.name) / "jobs.db")
        self.book = JobBook()
        self.model: dict[str, tuple[str, int]] = {}  # name -> state, attempt
        self.committed: dict[str, tuple[str, int]] = {}
        self.clock_s = 0.0

    def _now(self) -> Now:
        self.clock_s += 1.0
        return Now(self.clock_s, 1.8e9 + self.clock_s)

    @rule(name=st.sampled_from(NAMES))
    def add(self, name: str) -> None:
        """A new job is pending, with no attempt."""
        if name not in self.model:
            self.book.add(SPECS[name], self._now(), "test")
            self.model[name] = (P, 0)

    @rule(name=st.sampled_from(NAMES), word=st.sampled_from(sorted(MODEL)))
    def move(self, name: str, word: str) -> None:
        """An event is carried out where the model allows it, and nowhere else."""
        if name not in self.model:
            return
        (state, attempt), (sources, target) = self.model[name], MODEL[word]
        job = self.book.get(SPECS[name].job_id)
        assert job is not None
        changes: dict[str, object] = {}
        if word in {"assigned", "resumed"}:
            changes = {"host": "pi", "attempt": attempt + (word == "assigned") or 1}
        if word in {"failed", "exhausted"}:
            changes = {"error": "e"}
        if word in {"completed", "kept"}:
            changes = {"artifact_id": HEX, "metrics": {"val_loss": 1, "auroc": 0.5}}
        if state not in sources:
            with pytest.raises(AssertionError):
                self.book.move(job, Event(word), self._now(), "test", **changes)
            return
        after = self.book.move(job, Event(word), self._now(), "test", **changes)
        self.model[name] = (target or state, after.attempt)

    @rule()
    def commit(self) -> None:
        self.ledger.commit(self.book.take_changes())
        self.committed = dict(self.model)
        assert self.ledger.load() == {job.job_id: job for job in self.book.all()}

    @rule()
    def crash(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(Path(self._folder.name) / "jobs.db")
        self.book = JobBook(self.ledger.load())
        self.model = dict(self.committed)

    @precondition(lambda self: P in {state for state, _ in self.committed.values()})
    @rule()
    def conflict(self) -> None:
        """A mirror that has left the ledger changes nothing."""
        self.commit()
        stale = JobBook(self.ledger.load())
        pending = [job for job in stale.all() if job.state == P]
        if not pending:
            return
        job, now = pending[0], self._now()
        mine = self.book.get(job.job_id)
        assert mine is not None
        self.book.move(mine, Event.CANCELLED, now, "test")
        self.model[job.spec.name] = (GONE, mine.attempt)
        self.commit()
        stale.move(job, Event.ASSIGNED, now, "test", host="pi", attempt=job.attempt + 1)
        with pytest.raises(LedgerConflict):
            self.ledger.commit(stale.take_changes())

    @invariant()
    def the_ledger_has_what_was_committed(self) -> None:
        """Rows equal the model; each history replays to its row."""
        rows = self.ledger.load()
        found = {job.spec.name: (job.state.value, job.attempt) for job in rows.values()}
        assert found == self.committed
        for job_id, job in rows.items():
            assert not contradiction(job, self.ledger.events(job_id, 10_000))
        mirrored = {job.spec.name: (job.state.value, job.attempt) for job in self.book.all()}
        assert mirrored == self.model

    def teardown(self) -> None:
        self.ledger.close()
        self._folder.cleanup()


LedgerMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)  # fmt: skip
TestLedger = LedgerMachine.TestCase
