"""The word that an agent leaves of its connection: what is said, since when, and by whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.doctor import check_its_session
from agent.service.status import NAME, Contact, read
from broker.clock import Now
from broker.protocol.link_events import Connected, Disconnected


def _at(seconds: float) -> Now:
    return Now(seconds, 1_780_000_000.0 + seconds)


def _word(folder: Path) -> Any:
    word = read(folder)
    assert word is not None
    return word


def test_it_says_since_when_and_why(tmp_path: Path) -> None:
    contact = Contact(tmp_path, _at(0), "pi", tmp_path / "pi", None)
    word = _word(tmp_path)
    assert (word.identity, word.connected, word.lost) == (str(tmp_path / "pi"), False, None)
    begun = word.since
    contact.tell(_at(5), Disconnected("connection lost"))
    contact.tell(_at(9), Disconnected("refused"))
    word = _word(tmp_path)
    assert (word.since, word.lost) == (begun, Disconnected("refused"))
    contact.tell(_at(20), Connected("s"))
    word = _word(tmp_path)
    assert (word.connected, word.since, word.lost) == (True, _at(20).text(), None)


def test_what_is_said_already_is_not_written_again(tmp_path: Path) -> None:
    """An agent that is refused for a month tries twice a minute."""
    contact = Contact(tmp_path, _at(0), "pi", None, None)
    contact.tell(_at(1), Disconnected("refused"))
    before = (tmp_path / NAME).stat()
    contact.tell(_at(2), Disconnected("refused"))
    after = (tmp_path / NAME).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_an_earlier_agent_has_said_holds_no_more(tmp_path: Path) -> None:
    Contact(tmp_path, _at(0), "pi", None, None).tell(_at(1), Connected("s"))
    contact = Contact(tmp_path, _at(60), "pi", None, None)
    word = _word(tmp_path)
    assert (word.connected, word.since) == (False, _at(60).text())
    for text in ("", "[]", '{"since": "yesterday"}', '{"later": 1}'):
        (tmp_path / NAME).write_text(text)
        assert read(tmp_path) is None
    (tmp_path / f"{NAME}.making").mkdir()  # as a disk that is full
    contact.tell(_at(61), Connected("s"))
    assert read(tmp_path) is None


def test_the_doctor_tells_it_with_what_helps(tmp_path: Path) -> None:
    def said() -> list[tuple[str, str]]:
        return [(one.check, one.level.value) for one in check_its_session(tmp_path, "attic")]

    assert said() == [("session", "skip"), ("coordinator", "skip")], "it has left no word"
    contact = Contact(tmp_path, _at(0), "pi", None, None)
    assert said() == [("session", "skip"), ("coordinator", "skip")], "it connects"
    again = "`fleet enroll attic --replace`"
    contact.tell(_at(1), Disconnected("mqtts://pi: refused", True, remedy=again))
    session, coordinator = check_its_session(tmp_path, "attic")
    assert session.level == "fail"
    assert session.text.endswith(": mqtts://pi: refused")
    assert session.remedy == again
    assert coordinator.text == "not asked: the agent that runs here is not connected"
    contact.tell(_at(2), Disconnected("the broker refused the subscription", True, denied=True))
    assert said() == [("rights", "fail"), ("coordinator", "skip")]
    contact.tell(_at(3), Disconnected("mqtts://pi: Connection refused"))
    assert said() == [("session", "fail"), ("coordinator", "skip")]
    contact.tell(_at(4), Connected("s"))
    assert said() == [("session", "ok"), ("coordinator", "skip")]
