"""A Ctrl-C at whatever instant of a question: the command ends, and nothing waits for ever."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dis
import itertools
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from broker.protocol.messages import AskStatus
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator.cli import fleet, main
from coordinator.client.client import OperatorClient
from coordinator.client.contact import Unreachable
from tests.harness.brokers import BrokerProcess

END_S = 2.0  # less than any wait that is given up
ROOT = Path(__file__).resolve().parents[4]
CLIENT = ("connection.py", "link.py", "mailbox.py")
WITH_LOCKS = {str(ROOT / "broker" / "client" / name) for name in CLIENT} | {
    str(ROOT / "coordinator" / "client" / "session.py"),
    threading.__file__,
    mqtt.__file__,
    concurrent.futures._base.__file__,
}
# After these Python looks whether a signal has come.
LOOKS_AFTER = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME"}


class CtrlC:
    """Interrupts what is run, once, at an instant where it has not been interrupted yet."""

    def __init__(self) -> None:
        self.instants: set[tuple[CodeType, int]] = set()
        self._looks: dict[CodeType, set[int]] = {}
        self._fell = False

    def falls_into(self, what: Callable[[], object]) -> bool:
        """Run it; return whether there may be another such instant."""
        self._fell = False
        known = len(self._looks)
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            what()
        finally:
            sys.settrace(before)
        # Since Python 3.12 a trace is told of a function's instructions if an earlier one met it.
        return self._fell or len(self._looks) > known

    def _on_call(self, frame: FrameType, _event: str, _more: Any) -> Any:
        if frame.f_code.co_filename not in WITH_LOCKS:
            return None
        frame.f_trace_opcodes = True
        if frame.f_code not in self._looks:
            self._looks[frame.f_code] = _after_looks(frame.f_code)
        return self._on_instruction

    def _on_instruction(self, frame: FrameType, event: str, _more: Any) -> Any:
        code, at = frame.f_code, frame.f_lasti
        if event != "opcode" or self._fell or (code, at) in self.instants:
            return self._on_instruction
        if at in self._looks[code]:
            self.instants.add((code, at))
            self._fell = True
            raise KeyboardInterrupt
        return self._on_instruction


def _after_looks(code: CodeType) -> set[int]:
    found = list(dis.get_instructions(code))
    jumps = {one.argval for one in found if one.opname == "JUMP_BACKWARD"}
    calls = {
        after.offset
        for one, after in itertools.pairwise(found)
        if one.opname in LOOKS_AFTER - {"JUMP_BACKWARD"}
    }
    return jumps | calls


def _asks(client: OperatorClient) -> None:
    broken: RuntimeError | None = None
    with contextlib.suppress(KeyboardInterrupt, Unreachable):
        try:
            client.ask(AskStatus(id=new_id()))
        except RuntimeError as error:  # a wait was to give a lock back that it had not taken again
            broken = error
    assert broken is None or isinstance(broken.__context__, KeyboardInterrupt)


def test_wherever_it_falls_the_client_ends(embedded_broker: BrokerProcess) -> None:
    """The threads of its connection wait for no lock that the interrupted one has kept.

    No coordinator answers there.
    """
    root = f"t{new_id()[:8]}"
    settings = BrokerSettings(url=f"mqtt://127.0.0.1:{embedded_broker.port}", topic_root=root)
    interrupt = CtrlC()
    there_are_more = True
    while there_are_more:
        client = OperatorClient(settings, END_S, watch=[f"{root}/#"])  # it hears its own question
        client.__enter__()
        client.timeout_s = 0.1  # of the question: a busy machine takes longer to connect
        there_are_more = interrupt.falls_into(lambda client=client: _asks(client))
        ending = threading.Thread(target=client.__exit__, daemon=True)
        ending.start()
        ending.join(END_S)
        assert not ending.is_alive(), "it hangs"
    places = {"Client.publish", "Session.send", "Future.result"}
    # From 3.12 on a trace is not told of all functions' instructions.
    if sys.version_info < (3, 12):
        places.add("Connection.publish")
    assert places <= {code.co_qualname for code, _ in interrupt.instants}


def test_what_it_breaks_on_its_way_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wait that it falls into may fail at its own end."""

    def breaks(**_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            threading.Lock().release()

    monkeypatch.setattr(fleet, "invoke", lambda _context: breaks())
    assert main(["status"]) == 130
    assert "Traceback" not in capsys.readouterr().err
