"""Whether a coordinator may serve a fleet that another one has served: P9 of protocol.md."""

from __future__ import annotations

import pytest

from broker.protocol.link_events import Connected, Disconnected, Incoming
from broker.protocol.messages import Holder, Status, encode
from broker.protocol.topics import Topics
from coordinator.core.receipts import ledger_id
from coordinator.service.succession import (
    ANSWER_S,
    DENIED_S,
    HEARD_S,
    SUBSCRIBE_S,
    WAIT_S,
    Do,
    Step,
    Succession,
)

TOPICS = Topics("site/fleet")
OURS = Holder(ledger="mine", installation="here", machine="pi.lan", instance="i1")
THEIRS = Holder(ledger="theirs", installation="there", machine="desk.lan", instance="i2")
EARLIER = OURS.model_copy(update={"instance": "earlier"})
A_REPORT = Incoming(TOPICS.response("pi"), b"{}")


class Coming:
    """A coordinator on its way in, and a clock."""

    def __init__(self) -> None:
        self.one = Succession(TOPICS, OURS)
        self.now_s = 100.0
        self.sessions = 0

    def hears(self, event: Connected | Disconnected | Incoming) -> Step:
        return self.one.handle(event, self.now_s)

    def connects(self, *retained: Incoming) -> Step:
        """A new connection, on which it hears what is retained, and then itself."""
        self.sessions += 1
        assert self.hears(Connected(f"s{self.sessions}")).do is Do.ASK
        for message in retained:
            assert self.hears(message) == Step(Do.NOTHING)
        return self.hears(Incoming(TOPICS.echo("coordinator"), self.one.word))

    def is_granted(self) -> Step:
        return self.hears(Connected(f"s{self.sessions}"))

    def serves(self, *retained: Incoming, heard: bool = True) -> None:
        """It has come in, and perhaps heard itself as the holder."""
        self.connects(*retained)
        self.is_granted()
        if heard:
            self.hears(held_by(OURS, retained=False))

    def passes(self, seconds: float) -> Step:
        self.now_s += seconds
        return self.one.on_time(self.now_s)


@pytest.fixture
def coming() -> Coming:
    """A coordinator that has just been started."""
    return Coming()


def held_by(who: Holder, *, retained: bool = True) -> Incoming:
    return Incoming(TOPICS.holder(), encode(who), retained)


def status(reason: str, who: Holder = THEIRS, *, retained: bool = True) -> Incoming:
    state = "online" if reason == "birth" else "offline"
    said = Status.model_validate(
        {"state": state, "reason": reason, "session": "x", "instance": who.instance, "boot_id": "b"}
    )
    return Incoming(TOPICS.coordinator_status(), encode(said), retained)


@pytest.mark.parametrize(
    "retained",
    [
        (),
        (held_by(OURS), status("lost", OURS)),
        (held_by(EARLIER), status("birth", OURS)),
        (held_by(THEIRS), status("goodbye")),
        (status("goodbye"), held_by(THEIRS)),
        (Incoming(TOPICS.holder(), b"no holder", retained=True),),
        (held_by(THEIRS), Incoming(TOPICS.holder(), b"")),
    ],
    ids=["nobody", "ours", "an earlier process", "gone", "gone, said first", "garbage", "cleared"],
)
def test_who_is_alone_enters_at_once(coming: Coming, retained: tuple[Incoming, ...]) -> None:
    """Without any wait: when its own word is back it has heard all that is retained."""
    assert coming.connects(*retained) == Step(Do.ENTER)
    assert not coming.one.serves
    assert coming.is_granted() == Step(Do.SERVE)
    assert coming.one.serves
    assert coming.hears(A_REPORT) == Step(Do.PASS)
    assert coming.hears(held_by(OURS, retained=False)) == Step(Do.PASS)
    assert coming.one.next_deadline() is None


@pytest.mark.parametrize("reason", ["birth", "lost", None])
def test_who_finds_another_waits_and_then_takes_over(coming: Coming, reason: str | None) -> None:
    """Our own connecting may have had its will published, and a broker may have lost its status."""
    retained = [held_by(THEIRS), *([status(reason)] if reason else [])]
    step = coming.connects(*retained)
    assert step.do is Do.NOTHING
    assert "another ledger (on desk.lan, instance i2)" in step.said
    assert coming.one.next_deadline() == coming.now_s + WAIT_S
    assert coming.hears(A_REPORT) == Step(Do.NOTHING)
    assert coming.passes(WAIT_S - 0.1) == Step(Do.NOTHING)
    step = coming.passes(0.1)
    assert (step.do, bool(step.said)) == (Do.ENTER, True)
    assert coming.is_granted() == Step(Do.SERVE)


def test_who_is_thrown_off_meanwhile_yields(coming: Coming) -> None:
    """With what a person has to know: the root, who it is, what to do."""
    coming.connects(held_by(THEIRS))
    step = coming.hears(Disconnected("gone"))
    assert step.do is Do.YIELD
    for word in ("'site/fleet'", "on desk.lan, instance i2", "[broker] topic_root", "stop"):
        assert word in step.said


def test_who_hears_the_other_again_yields(coming: Coming) -> None:
    """Where a broker has both connected; what is retained is repeated by some, and no sign."""
    coming.connects(held_by(THEIRS))
    assert coming.hears(held_by(THEIRS)) == Step(Do.NOTHING)
    assert coming.hears(held_by(OURS, retained=False)) == Step(Do.NOTHING)
    assert coming.hears(held_by(THEIRS, retained=False)).do is Do.YIELD


def test_who_is_thrown_off_before_its_word_is_back_yields_if_it_knows_the_other(
    coming: Coming,
) -> None:
    """Else it would throw the other off again, and again."""
    coming.hears(Connected("s1"))
    assert coming.hears(Disconnected("gone")) == Step(Do.PASS)
    coming.hears(Connected("s2"))
    coming.hears(held_by(THEIRS))
    assert coming.hears(Disconnected("gone")).do is Do.YIELD


def test_a_copy_of_the_ledger_elsewhere_is_another(coming: Coming) -> None:
    """The old machine of a coordinator that was moved, for one, whatever its name."""
    coming.connects(held_by(OURS.model_copy(update={"installation": "old", "instance": "i0"})))
    step = coming.hears(Disconnected("gone"))
    assert step.do is Do.YIELD
    assert "a copy of this ledger (on pi.lan" in step.said


def test_who_served_yields_to_a_clone_of_its_machine(coming: Coming) -> None:
    """Everything is the same there but the process; of the two the older one ends."""
    coming.serves(held_by(EARLIER))
    coming.hears(Disconnected("thrown off"))
    step = coming.connects(held_by(OURS.model_copy(update={"instance": "clone"})))
    assert step.do is Do.NOTHING
    assert "a clone of this installation" in step.said
    assert coming.hears(Disconnected("thrown off again")).do is Do.YIELD


def test_who_served_comes_back_at_once(coming: Coming) -> None:
    """Whatever the will of one that has yielded says: it has left the holder as it was.

    A broker that crashed may recall an earlier process: it had not the newer word on its disk.
    """
    coming.serves(held_by(EARLIER))
    for lies_there in ((held_by(OURS), status("lost", THEIRS)), (held_by(EARLIER),)):
        assert coming.hears(Disconnected("thrown off")) == Step(Do.PASS)
        assert not coming.one.serves
        assert coming.connects(*lies_there) == Step(Do.ENTER)
        assert coming.is_granted() == Step(Do.SERVE)
        coming.hears(held_by(OURS, retained=False))


def test_who_served_yields_to_who_has_taken_over(coming: Coming) -> None:
    """It was cut off for longer than that one waited."""
    coming.serves(heard=False)
    coming.hears(Disconnected("cut off"))
    assert coming.connects(held_by(THEIRS), status("lost")).do is Do.NOTHING
    assert coming.hears(Disconnected("thrown off")).do is Do.YIELD


def test_what_an_earlier_connection_has_heard_is_forgotten(coming: Coming) -> None:
    """The broker may be another one by now."""
    coming.hears(Connected("s0"))
    coming.hears(status("goodbye"))
    coming.hears(Disconnected("gone"))
    assert coming.connects(held_by(THEIRS)).do is Do.NOTHING
    assert coming.one.next_deadline() is not None


def test_a_word_that_is_not_its_own_tells_nothing(coming: Coming) -> None:
    """One of an earlier connection, or of somebody who tries whether it gets through."""
    coming.hears(Connected("s1"))
    assert coming.hears(Incoming(TOPICS.echo("coordinator"), b"s0")) == Step(Do.NOTHING)
    assert coming.hears(Incoming(TOPICS.echo("coordinator"), b"s1")) == Step(Do.ENTER)


@pytest.mark.parametrize(("retained", "do"), [((), Do.ENTER), ((held_by(THEIRS),), Do.NOTHING)])
def test_a_broker_that_loses_the_word_holds_nobody_up(
    coming: Coming, retained: tuple[Incoming, ...], do: Do
) -> None:
    """It then goes by what it has heard."""
    coming.hears(Connected("s1"))
    for message in retained:
        coming.hears(message)
    assert coming.passes(ANSWER_S - 0.1) == Step(Do.NOTHING)
    assert coming.passes(0.1).do is do


def test_a_broker_that_does_not_answer_the_subscription_is_left(coming: Coming) -> None:
    coming.connects()
    assert coming.passes(SUBSCRIBE_S - 0.1) == Step(Do.NOTHING)
    assert coming.passes(0.1).do is Do.DROP
    assert coming.passes(60.0) == Step(Do.NOTHING)
    assert coming.hears(Disconnected("dropped")) == Step(Do.PASS)
    assert coming.connects() == Step(Do.ENTER)


DENIED = Disconnected("refused the subscription to x", answered=True, denied=True)
A_WORD = Incoming(TOPICS.holder(), b"a word")


def test_a_broker_that_drops_the_holder_is_told_of_and_served(coming: Coming) -> None:
    """One whose files are older; later it may end a connection without our leaving for it."""
    coming.serves(heard=False)
    assert coming.hears(held_by(THEIRS, retained=False)) == Step(Do.PASS)
    assert coming.passes(HEARD_S - 0.1) == Step(Do.NOTHING)
    step = coming.passes(0.1)
    assert step.do is Do.NOTHING
    assert f"{TOPICS.holder()} did not come back" in step.said
    assert "`fleet broker config mosquitto`" in step.said
    assert coming.one.serves
    assert coming.passes(1e6) == Step(Do.NOTHING)
    for _ in range(10):
        coming.now_s += DENIED_S
        assert coming.hears(DENIED).do is Do.PASS


def test_who_is_never_let_in_gives_up(coming: Coming) -> None:
    """Not at once: of a broker's cluster a node may be away. Then with what is wrong.

    A broker that is away in between may have been restarted with other files.
    """
    coming.hears(DENIED)
    coming.now_s += DENIED_S
    assert coming.hears(Disconnected("Connection refused")) == Step(Do.PASS)
    assert coming.hears(DENIED) == Step(Do.PASS)
    coming.now_s += DENIED_S - 1
    assert coming.hears(DENIED) == Step(Do.PASS)
    coming.now_s += 1
    step = coming.hears(DENIED)
    assert step.do is Do.YIELD
    assert f"has not let it serve for {DENIED_S:.0f} s: refused the subscription to x" in step.said


def test_a_broker_that_ends_whoever_says_who_it_is(coming: Coming) -> None:
    """The connection ends each time before the holder is back: that is said, and at last enough."""
    for _ in range(4):
        coming.serves(heard=False)
        step = coming.hears(Disconnected("connection lost"))
        assert step.do is Do.PASS
        assert f"before {TOPICS.holder()} came back" in step.said
        assert "definitions.json" in step.said
        coming.now_s += DENIED_S / 4
    coming.serves(heard=False)
    assert coming.hears(Disconnected("connection lost")).do is Do.YIELD


def test_who_was_let_in_once_comes_back_for_ever(coming: Coming) -> None:
    """Whatever a broker does meanwhile, the fleet is not left without its coordinator."""
    coming.serves()
    assert coming.hears(Disconnected("gone")) == Step(Do.PASS), "it said who it was"
    for _ in range(10):
        coming.now_s += DENIED_S
        assert coming.hears(DENIED) == Step(Do.PASS)


def test_a_word_on_the_holders_topic_is_no_holder(coming: Coming) -> None:
    """`fleet doctor` tries so whether it gets through."""
    coming.connects(held_by(THEIRS))
    assert coming.hears(A_WORD) == Step(Do.NOTHING)
    assert coming.hears(Disconnected("thrown off")).do is Do.YIELD


def test_a_ledgers_id_follows_from_its_key() -> None:
    """Moved aside or restored, a ledger is the same to others as long as the key is there."""
    assert ledger_id(b"a" * 32) == ledger_id(b"a" * 32) != ledger_id(b"b" * 32)
