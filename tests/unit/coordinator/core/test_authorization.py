"""Who may change something: rights, signatures, replays; and forged reports. None changes anything.

O4 to O7 of docs/reference/protocol.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.errors import BadMessage
from broker.protocol import messages as m
from broker.protocol.signing import OperatorKey
from coordinator.core.effects import ManifestRead, PartStored, ReadManifest, Warn
from coordinator.core.state import MAX_ANSWERS
from coordinator.jobs.plan_entries import Plan
from coordinator.jobs.records import Action
from tests.harness.coordinator import HEX, OPERATOR, Fleet, joined, running, spec

KEY = OperatorKey("k" * 40)
OTHER = OperatorKey("j" * 40)
CANCEL = m.AskCancel(id="c", job="job")
REVOKE = m.AskIdentity(id="c", action="revoke", name="pi", made_at=1.8e9)
COMMANDS = [
    m.AskCancel(id="c", job="job"), m.AskRequeue(id="c", job="job"), m.AskReload(id="c"),
    m.AskDrain(id="c", host="pi"), m.AskResume(id="c", host="pi"), REVOKE,
    m.AskSnooze(id="c", host="pi", for_s=9.0), m.AskPause(id="c"),
    m.AskEach(id="c", action="cancel", jobs=("job",)),
    m.AskRun(id="c", job={"model": "gbt", "mode": "oracle"}),
]  # fmt: skip
READING = [
    m.AskStatus(id="r"), m.AskList(id="r"), m.AskWhy(id="r", job="job"), m.AskWorkers(id="r"),
    m.AskTrainers(id="r"),
]  # fmt: skip


def keyed(**settings: Any) -> Fleet:
    """A coordinator with a key, a job and a host that runs it."""
    fleet, _, _ = running(operator_key=KEY, **settings)
    return fleet


def state(fleet: Fleet) -> Any:
    return fleet.ledger, fleet.records, fleet.history, fleet.took(ReadManifest)


def asked(fleet: Fleet) -> list[Action]:
    """What operators asked for; a coordinator's own reloads are recorded as well."""
    return [one for one in fleet.actions if one.key]


def unsigned(answer: m.OperatorResponse) -> m.OperatorResponse:
    """An answer without its signature, which is made anew each time."""
    return answer.model_copy(update={"auth": None})


def refused(fleet: Fleet, kind: str) -> int:
    """How many `fleet status` counts of a kind."""
    count = fleet.status()["refused"].get(kind, 0)
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("command", COMMANDS, ids=lambda ask: ask.type)
def test_who_may_only_look_changes_nothing(command: Any) -> None:
    """The role in the topic decides; the broker sees to it that nobody uses another's."""
    fleet, _, _ = running()
    before = [*map(str, state(fleet))]
    answer = fleet.asks(command, "observer:bob/x")
    assert (answer.ok, answer.code) == (False, "refused")
    assert answer.why == {"code": "rights", "user": "observer:bob"}
    assert [*map(str, state(fleet))] == before
    assert refused(fleet, "rights") == 1
    assert [(one.who, one.action, one.outcome) for one in asked(fleet)] == [
        ("observer:bob", getattr(command, "action", command.type), "refused")
    ]


@pytest.mark.parametrize("ask", READING, ids=lambda ask: ask.type)
def test_who_may_only_look_may_look(ask: Any) -> None:
    """And needs no signature for it, whether the coordinator has a key or not."""
    assert keyed().asks(ask, "observer:bob/x").ok


@pytest.mark.parametrize("command", COMMANDS, ids=lambda ask: ask.type)
def test_a_coordinator_with_a_key_takes_signed_commands_only(command: Any) -> None:
    """Whoever has none is told what to do; with one it is done."""
    fleet = keyed()
    before = [*map(str, state(fleet))]
    answer = fleet.asks(command)
    assert answer.code == "refused"
    assert answer.why == {"code": "unsigned"}
    assert [*map(str, state(fleet))] == before
    assert refused(fleet, "unsigned") == 1
    if command.type == "resume":
        fleet.asks(fleet.signed(m.AskDrain(id="d", host="pi"), KEY))
    fleet.asks(fleet.signed(command, KEY))
    if command.type == "reload":
        assert fleet.took(ReadManifest)
        fleet.handle(ManifestRead(Plan((spec(),)), OPERATOR, "c"))
    word = getattr(command, "action", command.type)
    assert (fleet.actions[-1].action, fleet.actions[-1].outcome) == (word, "done")


def _altered(payload: bytes, **fields: Any) -> bytes:
    return json.dumps(json.loads(payload) | fields).encode()


def _auth(payload: bytes, **fields: Any) -> bytes:
    return _altered(payload, auth=json.loads(payload)["auth"] | fields)


def _attacks() -> dict[str, Any]:
    """Name: what is published in place of a signed cancel, and what it is counted as."""
    return {
        "another key": lambda f, p: (f.signed(CANCEL, OTHER), "signature"),
        "other job": lambda f, p: (_altered(p, job="job2"), "signature"),
        "other id": lambda f, p: (_altered(p, id="c2"), "signature"),
        "other verb": lambda f, p: (_altered(p, type="requeue"), "signature"),
        "longer expiry": lambda f, p: (_altered(p, expires_at=9e9), "signature"),
        "a field more": lambda f, p: (_altered(p, more=1), "signature"),
        "a key twice": lambda f, p: (p.replace(b'{"v"', b'{"job":"job2","v"', 1), "signature"),
        "a later time": lambda f, p: (_auth(p, at=f.now.wall_s + 1), "signature"),
        "stale": lambda f, p: (f.signed(CANCEL, KEY, late_s=-61), "stale"),
        "of the future": lambda f, p: (f.signed(CANCEL, KEY, late_s=61), "stale"),
        "for another client": lambda f, p: (f.signed(CANCEL, KEY, "operator:op/x"), "signature"),
        "for another user": lambda f, p: (f.signed(CANCEL, KEY, "operator:al/cli"), "signature"),
        "a mac of zeros": lambda f, p: (_auth(p, mac="0" * 64), "signature"),
        "no signature": lambda f, p: (_altered(p, auth=None), "unsigned"),
    }


@pytest.mark.parametrize("name", _attacks())
def test_what_the_key_has_not_vouched_for_changes_nothing(name: str) -> None:
    """Each is refused, counted and recorded; the command itself is still taken afterwards."""
    fleet = keyed()
    fleet.plan(spec(), spec("job2"))
    before, good = [*map(str, state(fleet))], fleet.signed(CANCEL, KEY)
    payload, kind = _attacks()[name](fleet, good)
    answer = fleet.asks(payload)
    assert (answer.ok, answer.code) == (False, "refused")
    assert [*map(str, state(fleet))] == before
    assert refused(fleet, kind) == 1
    assert fleet.actions[-1].what["code"] == kind
    assert fleet.actions[-1].answer is None
    assert fleet.asks(good).ok, "somebody else's attempt does not spoil the real one"


@pytest.mark.parametrize(
    "auth",
    [
        {}, [], "x", 7, {"at": 0}, {"mac": "0" * 64}, {"at": None, "mac": "0" * 64},
        {"at": "now", "mac": "0" * 64}, {"at": 1e999, "mac": "0" * 64}, {"at": 0, "mac": "0" * 65},
        {"at": 0, "mac": "Z" * 64}, {"at": 0, "mac": "\u0660" * 64}, {"at": 0, "mac": ["0"] * 64},
        {"at": 0, "mac": "0" * 200_000}, {"at": [[[[[]]]]], "mac": {}},
    ],
    ids=lambda auth: json.dumps(auth)[:40],
)  # fmt: skip
def test_garbage_in_place_of_a_signature_is_dropped(auth: Any) -> None:
    """It does not fit the message: counted, not answered, and what it holds is told to nobody."""
    fleet = keyed()
    before = [*map(str, state(fleet))]
    for _ in range(2):
        assert fleet.asks(_altered(m.encode(CANCEL), auth=auth)) is None
    assert [*map(str, state(fleet))] == before
    assert fleet.status()["dropped"] == {"operator/request": 2}
    assert len(fleet.took(Warn)) == 1, "further ones are only counted"


def test_an_oversize_request_is_dropped_before_it_is_parsed() -> None:
    """M2."""
    fleet = keyed()
    assert fleet.asks(fleet.signed(CANCEL, KEY) + b" " * m.MAX_PAYLOAD_BYTES) is None
    assert fleet.status()["dropped"] == {"operator/request": 1}


def test_a_replay_is_answered_and_does_nothing() -> None:
    """O5: cancel, requeue, and the cancel once more from somebody's recording.

    A patient client signs each repetition anew, under the same id: it is done once as well.
    """
    fleet = keyed()
    recorded = fleet.signed(CANCEL, KEY)
    first = fleet.asks(recorded)
    assert fleet.asks(fleet.signed(m.AskRequeue(id="r", job="job"), KEY)).ok
    fleet.passes(10)
    moved = len(fleet.history)
    for _ in range(3):
        assert unsigned(fleet.asks(recorded)) == unsigned(first)
    fleet.start()
    assert unsigned(fleet.asks(recorded)) == unsigned(first), "a restart does not make it new"
    assert fleet.history[moved:] == []
    fleet.passes(120)
    assert fleet.asks(recorded).why == {"code": "stale", "apart_s": 130.0, "window_s": 60.0}
    assert unsigned(fleet.asks(fleet.signed(CANCEL, KEY))) == unsigned(first)
    assert ("job", "cancelled") not in fleet.history[moved:]
    assert refused(fleet, "stale") == 1


def test_an_answer_is_not_forgotten_while_its_signature_holds() -> None:
    """O5: bounded memory; more commands than it holds have to wait."""
    fleet = keyed()
    recorded = fleet.signed(CANCEL, KEY)
    first = fleet.asks(recorded)
    for number in range(MAX_ANSWERS - 1):
        fleet.asks(fleet.signed(m.AskCancel(id=f"x{number}", job="nothing"), KEY))
    late = fleet.asks(fleet.signed(m.AskRequeue(id="r", job="job"), KEY))
    assert late.why == {"code": "too_many", "most": MAX_ANSWERS}
    assert unsigned(fleet.asks(recorded)) == unsigned(first)
    fleet.passes(121)
    assert fleet.asks(fleet.signed(m.AskRequeue(id="r", job="job"), KEY)).ok
    assert len(fleet.core.world.answers) == MAX_ANSWERS


def test_those_who_are_turned_away_fill_no_disk() -> None:
    """30 a minute are recorded, all are counted, the log has one line."""
    fleet = keyed()
    for number in range(100):
        fleet.asks(m.AskCancel(id=f"x{number}", job="job"))
    assert len(asked(fleet)) == 30
    assert refused(fleet, "unsigned") == 100
    said = [one.text for one in fleet.took(Warn)]
    assert len(said) == 1
    assert "refused cancel of operator:op/cli" in said[0]
    fleet.passes(60)
    fleet.asks(m.AskCancel(id="later", job="job"))
    assert len(asked(fleet)) == 31


def test_the_key_shows_itself_nowhere() -> None:
    """Not in the repr of what holds it, nor in anything that is sent, logged or recorded."""
    fleet = keyed()
    for payload in (fleet.signed(CANCEL, KEY), fleet.signed(CANCEL, OTHER), m.encode(CANCEL)):
        assert b"kkkk" not in payload
        fleet.asks(payload)
    everything = repr((KEY, fleet.settings, fleet.core.world, fleet.actions, fleet.effects))
    assert "kkkk" not in everything
    assert "jjjj" not in everything
    assert "kkkk" not in str(KEY)


# What operators did


def test_every_action_is_recorded_with_what_came_of_it() -> None:
    """Who, when, what, on which job or host; those that were refused with the reason."""
    fleet, _, _ = running()
    for ask in (
        m.AskDrain(id="1", host="pi"), m.AskDrain(id="2", host="pi"),
        m.AskResume(id="3", host="pi"),
        m.AskCancel(id="4", job="job"), m.AskCancel(id="5", job="job"),
        m.AskRequeue(id="6", job="nothing"), m.AskDrain(id="7", host="nobody"),
    ):  # fmt: skip
        fleet.asks(ask, "operator:alice/cli-1")
    fleet.asks(m.AskReload(id="8"), "operator:alice/cli-1")
    fleet.handle(ManifestRead(Plan((spec(), spec("new"))), "operator:alice/cli-1", "8"))
    told = [(one.action, one.outcome, one.host, one.job_id, one.what) for one in asked(fleet)]
    job_id = fleet.job().job_id
    assert told[1][:4] == ("drain", "refused", "pi", None)
    assert told[2][:2] == ("resume", "done")
    assert told[3][:4] == ("cancel", "done", None, job_id)
    assert told[4][:4] == ("cancel", "refused", None, job_id)
    what = [one[-1] for one in told]
    assert (what[0]["code"], what[0]["jobs"]) == ("host", ["job"])
    assert what[1] == {"code": "drained_already", "host": "pi"}
    (was,) = what[2]["was"]
    assert (was["code"], was["who"], was["at"][:4]) == ("drained", "operator:alice", "2027")
    assert what[3:5] == [{}, {"code": "over_already", "name": "job", "state": "cancelled"}]
    assert told[5][1:4] == ("refused", None, None)
    assert told[6][1:4] == ("refused", None, None)
    assert told[7][:2] == ("reload", "done")
    assert (what[7]["code"], what[7]["added"], what[7]["unchanged"]) == ("plan", 1, 1)
    assert {one.who for one in asked(fleet)} == {"operator:alice"}
    assert all(one.at == fleet.now.text() for one in asked(fleet))


# Forged reports: of a job that is somebody else's, of an old attempt, with a strange attempt


FORGED: dict[Any, dict[str, Any]] = {
    m.Finished: {"artifact_id": HEX, "size_bytes": 5, "metrics": {"auroc": 1.0}},
    m.Failed: {"error": "forged"},
    m.Released: {"why": m.Why(code="lease")},
    m.Started: {"slot": 0, "pid": 1},
    m.Refused: {"request_id": "r", "reasons": (m.Objection(code="forged"),)},
    m.Accepted: {"request_id": "r"},
}
forged = pytest.mark.parametrize("kind", FORGED)


@forged
@pytest.mark.parametrize("ahead", [0, 1, 1000], ids=lambda n: f"attempt+{n}")
def test_a_report_about_another_hosts_job_changes_nothing(kind: Any, ahead: int) -> None:
    """J1: host A speaks for the job of B, with B's attempt or one that is to come.

    Nor does its heartbeat: it is told to stop.
    """
    fleet = Fleet(spec())
    fleet.host("b").joins().runs()
    evil, job = fleet.host("a").joins(), fleet.job()
    before = str(fleet.ledger)
    evil.reports(kind, job, job.attempt + ahead, **FORGED[kind])
    evil.uploads()
    evil.beats((job.job_id, job.attempt + ahead, "running"))
    assert evil.heard(m.Cancel)
    assert str(fleet.ledger) == before
    assert not fleet.core.world.uploads
    assert refused(fleet, "report") == 1


@forged
def test_a_report_of_an_attempt_that_is_over_changes_nothing(kind: Any) -> None:
    """J1: even of the host that has the newest one."""
    fleet, pi = joined(spec())
    pi.runs()
    fleet.asks(m.AskRequeue(id="q", job="job"))
    pi.reports(m.Stopped, fleet.job(), 1, request_id=pi.heard(m.Cancel)[-1].id)
    pi.runs()
    assert fleet.job().attempt == 2
    before = str(fleet.ledger)
    pi.reports(kind, fleet.job(), 1, **FORGED[kind])
    assert str(fleet.ledger) == before
    assert refused(fleet, "report") == 1


@forged
@pytest.mark.parametrize("attempt", [1, 1 << 31])
def test_an_attempt_that_nobody_was_given_is_void(kind: Any, attempt: int) -> None:
    """Also of a job that nobody has, and also with a receipt that somebody has made up."""
    fleet = Fleet(spec())
    fleet.host("a").reports(kind, fleet.job(), attempt, receipt="ab" * 16, **FORGED[kind])
    assert (fleet.job().state, fleet.job().attempt) == ("pending", 0)
    assert refused(fleet, "report") == 1
    with pytest.raises(BadMessage):
        m.decode(m.AGENT_RESPONSE, b'{"type":"accepted","attempt":2147483649}')
    assert fleet.host("b").joins().heard(m.Assign)[0].attempt == 1


def test_to_claim_somebodys_artifact_takes_nothing_from_them() -> None:
    """A host may say of its own job what it likes; the other's job is completed all the same."""
    fleet = Fleet(spec("mine", priority=1), spec("theirs"))
    a, b = fleet.host("a").joins(), fleet.host("b").joins()
    mine, theirs = a.runs("mine"), b.runs("theirs")
    assert b.finishes(theirs) == "wanted"
    assert a.finishes(mine) == "wanted", "the same bytes, it says"
    b.uploads()
    fleet.handle(PartStored(HEX, 2000))
    b.finishes(theirs)
    fleet.passes(5)
    assert b.finishes(theirs) == "stored"
    done = fleet.job("theirs")
    assert (done.state, done.host, done.artifact_id) == ("completed", "b", HEX)
