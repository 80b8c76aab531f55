"""The word that an agent leaves of its connection: what is said, since when, and by whom."""

from __future__ import annotations

from pathlib import Path

from agent.doctor import check_its_session
from agent.service.status import NAME, Contact, read
from broker.client.connection import let_in
from broker.clock import Now


def _at(seconds: float) -> Now:
    return Now(seconds, 1_780_000_000.0 + seconds)


def test_it_says_since_when_and_why(tmp_path: Path) -> None:
    """Why it is not connected may become another; since when does not."""
    contact = Contact(tmp_path, _at(0), "pi", tmp_path / "pi", None)
    word = read(tmp_path)
    assert word is not None
    assert (word.identity, word.connected, word.why) == (str(tmp_path / "pi"), False, "")
    begun = word.since
    contact.tell(_at(5), why="connection lost")
    contact.tell(_at(9), why="refused")
    word = read(tmp_path)
    assert word is not None
    assert (word.since, word.why) == (begun, "refused")
    contact.tell(_at(20), connected=True)
    word = read(tmp_path)
    assert word is not None
    assert (word.connected, word.since, word.why) == (True, _at(20).text(), "")


def test_what_is_said_already_is_not_written_again(tmp_path: Path) -> None:
    """An agent that is refused for a month tries twice a minute."""
    contact = Contact(tmp_path, _at(0), "pi", None, None)
    contact.tell(_at(1), why="refused")
    before = (tmp_path / NAME).stat()
    contact.tell(_at(2), why="refused")
    after = (tmp_path / NAME).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_an_earlier_agent_has_said_holds_no_more(tmp_path: Path) -> None:
    """Nor what is no such word, or cannot be written."""
    Contact(tmp_path, _at(0), "pi", None, None).tell(_at(1), connected=True)
    contact = Contact(tmp_path, _at(60), "pi", None, None)
    word = read(tmp_path)
    assert word is not None
    assert (word.connected, word.since) == (False, _at(60).text())
    for text in ("", "[]", '{"since": "yesterday"}', '{"later": 1}'):
        (tmp_path / NAME).write_text(text)
        assert read(tmp_path) is None
    (tmp_path / f"{NAME}.making").mkdir()  # as a disk that is full
    contact.tell(_at(61), connected=True)
    assert read(tmp_path) is None


def test_the_doctor_tells_it_with_what_helps(tmp_path: Path) -> None:
    """A revoked host gets the command; rights that lack, and a first connection, are told apart."""

    def said() -> list[tuple[str, str]]:
        return [(one.check, one.level.value) for one in check_its_session(tmp_path, "attic")]

    assert said() == [("session", "skip"), ("coordinator", "skip")], "it has left no word"
    contact = Contact(tmp_path, _at(0), "pi", None, None)
    assert said() == [("session", "skip"), ("coordinator", "skip")], "it connects"
    contact.tell(_at(1), why=f"mqtts://pi: refused{let_in('attic')}")
    session, coordinator = check_its_session(tmp_path, "attic")
    assert session.level == "fail"
    assert session.text.endswith(": mqtts://pi: refused")
    assert "`fleet enroll attic --replace` on the CA's machine" in session.remedy
    assert coordinator.text == "not asked: the agent that runs here is not connected"
    contact.tell(_at(2), why="the broker refused the subscription", denied=True)
    assert said() == [("rights", "fail"), ("coordinator", "skip")]
    contact.tell(_at(3), why="mqtts://pi: Connection refused")
    assert said() == [("session", "fail"), ("coordinator", "skip")]
    contact.tell(_at(4), connected=True)
    assert said() == [("session", "ok"), ("coordinator", "skip")]
