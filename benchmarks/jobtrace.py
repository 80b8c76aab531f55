"""Run one of the fleet's programs and write down when what passed: for `benchmarks.jobs`.

    python -m benchmarks.jobtrace FILE MODULE [ARGUMENT …]

FILE gets a line of JSON for each message that came into the mailbox, each packet that was handed to
the socket, and each step that a shell took: `at` (monotonic seconds), `what`, `name`, `took` (s),
and of a message its topic and what of its payload tells it from others. The program itself is not
changed: what it calls is wrapped.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

_PUBLISH = 3
Row = tuple[float, float, str, str, bytes]


class Tracer:
    """What was seen, in memory until the program ends."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._start_s: float | None = None

    def mark_start(self) -> None:
        """Leave the processor time until the first call of this out of the total."""
        if self._start_s is None:
            self._start_s = time.process_time()

    def around(
        self, owner: Any, name: str, what: str, tell: Callable[..., Iterable[tuple[str, bytes]]]
    ) -> None:
        """Have each call of `owner.name` noted, as often as `tell` makes something of it."""
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def noted(*args: Any, **named: Any) -> Any:
            begun_s = time.monotonic()
            try:
                return inner(*args, **named)
            finally:
                took_s = time.monotonic() - begun_s
                self.rows.extend((begun_s, took_s, what, *told) for told in tell(*args))

        setattr(owner, name, noted)

    def save(self, path: Path) -> None:
        """Write all rows."""
        with path.open("w") as file:
            for at, took, what, name, payload in self.rows:
                row = {"at": at, "took": took, "what": what, "name": name, **_facts(payload)}
                file.write(json.dumps(row) + "\n")
            spent_s = time.process_time() - (self._start_s or 0.0)
            total = {"at": 0, "took": spent_s, "what": "cpu", "name": "process"}
            file.write(json.dumps(total) + "\n")


def _facts(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except ValueError:
        return {}
    keys = ("type", "job_id", "artifact_id", "name", "verdict", "state", "request_id", "id")
    return {"of": {key: found[key] for key in keys if key in found}}


def _arrived(tracer: Tracer, _mailbox: Any, event: Any, *_: Any) -> list[tuple[str, bytes]]:
    tracer.mark_start()  # of what there is to do: the interpreter and its imports are there
    if hasattr(event, "topic"):
        return [(event.topic, event.payload[:4096])]
    about = {"job_id": getattr(event, "job_id", getattr(event, "artifact_id", ""))}
    return [(type(event).__name__, json.dumps(about).encode())]


def _packets(_client: Any, buffer: Any, *_: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the topic of each PUBLISH in what is handed to the socket, and its payload's begin."""
    data = b"".join(buffer) if isinstance(buffer, list) else bytes(buffer)
    end = 0
    while end < len(data) and data[end] >> 4 == _PUBLISH:
        first, size, shift, at = data[end], 0, 0, end + 1
        while data[at] & 0x80:
            size, shift, at = size | (data[at] & 0x7F) << shift, shift + 7, at + 1
        size, at = size | data[at] << shift, at + 1
        end = at + size
        topic_end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        start = topic_end + (2 if first & 0x06 else 0)
        yield data[at + 2 : topic_end].decode(), data[start : min(end, start + 4096)]


def main() -> None:
    """Wrap, then run the program under its own name."""
    path, module = Path(sys.argv[1]), sys.argv[2]
    tracer = Tracer()
    from paho.mqtt.client import Client

    from broker.client.mailbox import Mailbox

    tracer.around(Mailbox, "_add", "in", functools.partial(_arrived, tracer))
    tracer.around(Client, "_sock_send", "wire", _packets)
    tracer.around(os, "fsync", "fsync", lambda *_: [("fsync", b"")])
    if module.startswith("coordinator"):
        from coordinator.ledger.ledger import Ledger
        from coordinator.service.performer import Performer
        from coordinator.service.shell import Shell
        from coordinator.store.store import Store

        tracer.around(
            Ledger, "commit", "step", lambda _, changes: [("commit", b"")] if changes else []
        )
        for way in ("finish", "put"):
            tracer.around(Store, way, "step", lambda *_: [("store", b"")])
    else:
        from agent.process.supervisor import Trainer
        from agent.service.shell import Shell  # type: ignore[assignment]
        from agent.service.shell import Shell as Performer  # type: ignore[assignment]
        from agent.spool.spool import Spool

        tracer.around(Spool, "make_bundle", "step", lambda *_: [("bundle", b"")])
        tracer.around(Trainer, "__init__", "step", lambda *_: [("spawn", b"")])
    tracer.around(Shell, "turn", "step", lambda *_: [("turn", b"")])
    tracer.around(
        Performer, "_perform", "step", lambda _, effect, *__: [(f"do {type(effect).__name__}", b"")]
    )
    atexit.register(tracer.save, path)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
