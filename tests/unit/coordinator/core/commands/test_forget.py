"""`fleet forget`: a host leaves the coordinator's view, its ledger, and the broker."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol import messages as m
from broker.protocol.link_events import Incoming
from coordinator.faces.homeassistant import CLEAR_AFTER_S
from tests.harness.coordinator import joined, running, spec
from tests.harness.home import home

__all__ = ["home"]


def forget(host: str = "pi") -> m.AskForget:
    return m.AskForget(id=f"forget-{host}", host=host)


def test_a_host_that_is_gone_is_forgotten(home: Any) -> None:
    """Its drain as well, and what is retained of it; that it was so is on record, with its name."""
    fleet = home()
    pi = fleet.host("pi")
    fleet.asks(m.AskDrain(id="d", host="pi"))
    assert "pi" in fleet.ledger.load_hosts()
    pi.status("offline", "goodbye")
    topics = (fleet.topics.status("pi"), fleet.topics.capability("pi"))
    fleet.retained |= dict.fromkeys(topics, b"x")
    assert fleet.asks(forget()).data == {"host": "pi", "forgotten": True}
    assert not {*topics} & fleet.retained.keys()
    fleet.handle(Incoming(topics[0], b""), Incoming(topics[1], b""))
    assert fleet.asks(m.AskWorkers(id="w")).data["workers"] == []
    assert fleet.ledger.load_hosts() == {}
    told = fleet.asks(m.AskEvents(id="e")).data["events"][-1]
    assert (told["event"], told["outcome"], told["host"]) == ("forget", "done", "pi")
    again = fleet.asks(m.AskForget(id="again", host="pi"))
    assert (again.code, again.why["code"]) == ("not_found", "no_host")


def test_its_entities_go_and_then_the_state_that_they_read(home: Any) -> None:
    """A template without a message would be a warning in Home Assistant's log."""
    fleet = home()
    pi = fleet.host("pi")
    fleet.host("other")
    pi.status("offline", "goodbye")
    fleet.passes(2)
    others = fleet.configs("other")
    fleet.asks(forget())
    fleet.passes(1.5)
    assert fleet.configs("pi") == {}
    assert fleet.configs("other") == others
    assert fleet.topics.home_state("pi") in fleet.retained
    fleet.passes(CLEAR_AFTER_S)
    assert fleet.topics.home_state("pi") not in fleet.retained
    assert fleet.state("coordinator")["hosts"] == 1


@pytest.mark.parametrize("passed_s", [0.0, 1.5])
def test_a_restart_meanwhile_leaves_none_of_its_entities(home: Any, passed_s: float) -> None:
    """Nor its state: what had yet to be removed is removed after it, and not for ever."""
    fleet = home()
    pi = fleet.host("pi")
    fleet.host("other")
    pi.status("offline", "goodbye")
    fleet.asks(forget())
    fleet.passes(passed_s)
    fleet.start(fleet.kept)
    fleet.passes(CLEAR_AFTER_S + 5)
    assert fleet.configs("pi") == {}
    assert fleet.topics.home_state("pi") not in fleet.retained
    assert fleet.configs("other")
    fleet.published.clear()
    fleet.start(fleet.kept)
    fleet.passes(CLEAR_AFTER_S + 5)
    assert not [topic for topic, _ in fleet.published if "pi" in topic]


def test_one_that_comes_back_is_new(home: Any) -> None:
    fleet = home()
    pi = fleet.host("pi")
    before = fleet.configs("pi")
    fleet.asks(m.AskDrain(id="d", host="pi"))
    pi.status("offline", "goodbye")
    fleet.asks(forget())
    pi.returns()
    fleet.passes(20)
    assert fleet.configs("pi") == before
    assert fleet.state()["accepts"] is True


def test_a_host_that_is_there_is_not_forgotten() -> None:
    """It would be back with its next heartbeat."""
    fleet, _ = joined()
    answer = fleet.asks(forget())
    assert (answer.code, answer.why["code"]) == ("refused", "host_online")
    assert "pi" in fleet.core.world.hosts


def test_a_host_with_a_job_is_not_forgotten() -> None:
    """Its work may still come; when the job is lost, it may go."""
    fleet, pi = joined(spec())
    pi.runs()
    pi.status("offline", "lost")
    answer = fleet.asks(forget())
    assert answer.code == "refused"
    assert answer.why == {"code": "host_holds", "host": "pi", "jobs": ["job"], "more": 0}
    fleet.passes(3600)
    assert fleet.job().host is None or not fleet.job().is_held
    assert fleet.asks(m.AskForget(id="f2", host="pi")).ok


def test_nothing_is_left_that_would_speak_to_it() -> None:
    """Timers and repeated messages of a forgotten host end."""
    fleet, pi, job = running()
    fleet.asks(m.AskCancel(id="c", job="job"))
    pi.status("offline", "lost")
    assert fleet.asks(forget()).ok
    fleet.sent.clear()
    fleet.passes(4000)
    assert not [topic for topic, _ in fleet.sent if topic.host == "pi"]
    assert not fleet.core.world.stops
    assert job.job_id in fleet.ledger
