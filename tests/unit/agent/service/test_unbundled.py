"""An agent that has to end before a result is bundled: its next process bundles it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import zstandard

from agent.core.effects import Shutdown, TrainerExited, TrainerLine
from agent.spool.spool import Spool
from broker.protocol import messages as m
from tests.harness.agent import JOB, Agent
from tests.harness.agent_shell import AgentShell

DONE = '{"event":"result","metrics":{"auroc":0.9},"files":[]}'
WEIGHTS = b"weights" * 4000


def process(state: Path, instance: str, *, slow: bool) -> AgentShell:
    """One process of an agent; one that is `slow` gets nothing done in the background."""
    spool = Spool(state)
    left = spool.take_over(lambda *_: False)
    agent = Agent(left=left, instance=instance, alone=False)
    around = {"background": lambda _: None} if slow else {}
    made = AgentShell(state, agent, spool=spool, **around)
    made.happens(*agent.birth)
    return made


def trains(one: AgentShell) -> None:
    """It is given the job, whose trainer writes its result and ends well."""
    one.assigned(instance="one", receipt="5a" * 16)
    out = one.spool.work(JOB, 1) / "out"
    out.mkdir(parents=True)
    (out / "model.ubj").write_bytes(WEIGHTS)
    one.happens(TrainerLine(JOB, 1, DONE))
    one.agent.mono_s += 60.0


@pytest.mark.parametrize("told", ["while it bundles", "while it trains"])
def test_a_result_that_could_not_be_bundled_is_handed_over_by_the_next_process(
    told: str, tmp_path: Path
) -> None:
    one = process(tmp_path, "one", slow=True)
    trains(one)
    exited = TrainerExited(JOB, 1, 0)
    one.happens(*([exited, Shutdown()] if told == "while it bundles" else [Shutdown(), exited]))
    one.passes(20)
    assert one.shell.left, "nobody waits for ever"
    goodbye = one.shell.goodbye()
    assert goodbye is not None
    owed = (m.OwedResult(job_id=JOB, attempt=1),)
    assert m.decode(m.STATUS, goodbye.payload).owes == owed

    two = process(tmp_path, "two", slow=True)
    two.passes(1)
    (held,) = two.agent.said(m.Heartbeat)[-1].jobs
    assert (held.job_id, held.attempt, held.phase) == (JOB, 1, "bundling")

    three = process(tmp_path, "three", slow=False)
    (finished,) = three.agent.said(m.Finished)
    assert (finished.attempt, finished.metrics, finished.ran_s) == (1, {"auroc": 0.9}, 60.0)
    assert (finished.instance, finished.receipt) == ("three", "5a" * 16)
    assert not two.started + three.started
    bundle = (
        zstandard.ZstdDecompressor()
        .decompressobj()
        .decompress(three.spool.read_whole(finished.artifact_id))
    )
    with tarfile.open(fileobj=io.BytesIO(bundle)) as tar:
        (file,) = tar.getmembers()
        source = tar.extractfile(file)
        assert source is not None
        assert source.read() == WEIGHTS
    noted = m.Noted(
        id="n", report_id=finished.id, job_id=JOB, attempt=1, verdict="stored", state="completed"
    )
    three.hears(noted)
    assert not three.spool.work_folders()


def test_a_result_that_was_bundled_in_time_is_not_bundled_again(tmp_path: Path) -> None:
    one = process(tmp_path, "one", slow=False)
    trains(one)
    one.happens(Shutdown(), TrainerExited(JOB, 1, 0))
    two = process(tmp_path, "two", slow=False)
    assert len(two.agent.said(m.Finished)) == 1
    assert not two.spool.work_folders()

    one = process(tmp_path / "other", "one", slow=True)
    trains(one)
    one.happens(TrainerExited(JOB, 1, 0))
    cancel = m.Cancel(id="c", job_id=JOB, attempt=1)
    one.hears(cancel)
    one.happens(Shutdown())
    one.passes(20)
    goodbye = one.shell.goodbye()
    assert goodbye is not None
    assert not m.decode(m.STATUS, goodbye.payload).owes
    assert not process(tmp_path / "other", "two", slow=False).spool.work_folders()


@pytest.mark.parametrize("content", [b"", b"{", b'{"assign": {}}', b"[" * 10_000])
def test_what_is_not_usable_is_deleted_and_the_job_trained_anew(
    content: bytes, tmp_path: Path
) -> None:
    one = process(tmp_path, "one", slow=True)
    trains(one)
    (one.spool.work(JOB, 1) / "unbundled.json").write_bytes(content)
    two = process(tmp_path, "two", slow=False)
    assert not two.spool.work_folders()
    assert not two.agent.said(m.Finished)
