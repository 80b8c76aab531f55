"""What trainers print goes out in numbered lines; what no coordinator has heard is sent again.

While none listens the last lines of each attempt are kept, `MAX_KEPT_BYTES` of each, also of those
that have ended meanwhile. They go out as one message when a coordinator listens again.
"""

from __future__ import annotations

from typing import Final

from agent.state import Run, State
from broker.clock import Now
from broker.loglines import MAX_KEPT_BYTES, MAX_LINE_BYTES, encode_lines
from broker.wire import Outgoing

LINES_A_SECOND: Final = 50
MAX_KEPT: Final = 64  # attempts


def say(state: State, run: Run, text: str, now: Now) -> None:
    """Publish a text, unless the trainer floods: the work folder's log has all of it."""
    if now.mono_s - run.lines_at_s >= 1.0:
        if run.left_out:
            text = f"... {run.left_out} lines left out\n{text}"
        run.lines_at_s, run.lines, run.left_out = now.mono_s, 0, 0
    run.lines += 1
    if run.lines > LINES_A_SECOND:
        run.left_out += 1
        return
    for line in text.split("\n"):
        run.said += 1
        _say_line(state, run, line.encode("utf-8", "replace")[:MAX_LINE_BYTES])


def tell_kept(state: State) -> None:
    """Send what was kept, if a coordinator listens; it may have heard some of it."""
    if not state.connected or not state.listening:
        return
    kept, state.kept = state.kept, {}
    for (job_id, attempt), (last, lines) in kept.items():
        topic = state.topics.log(state.settings.host, job_id)
        said = encode_lines(attempt, last - len(lines) + 1, lines)
        state.out.append(Outgoing(topic, said, 0))


def _say_line(state: State, run: Run, line: bytes) -> None:
    if not state.listening:
        _keep(state, run, line)
    if state.connected and ("birth",) not in state.timers:
        # Before a birth it would come in front of what is kept.
        topic = state.topics.log(state.settings.host, run.job_id)
        state.out.append(Outgoing(topic, encode_lines(run.attempt, run.said, [line]), 0))


def _keep(state: State, run: Run, line: bytes) -> None:
    key = (run.job_id, run.attempt)
    _, lines = state.kept.get(key, (0, []))
    lines.append(line)
    while sum(map(len, lines)) + len(lines) > MAX_KEPT_BYTES:
        del lines[0]
    state.kept[key] = (run.said, lines)
    while len(state.kept) > MAX_KEPT:
        del state.kept[next(iter(state.kept))]
