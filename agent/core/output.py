"""What a trainer's output line means: progress, result, error, or plain text for the log.

The format is the one of docs/reference/trainers.md: one JSON object a line. Anything else is text.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Final

from pydantic import JsonValue

from agent.core.state import Kept, Run, State
from broker.clock import Now
from broker.figures import some
from broker.protocol.link_events import Outgoing
from broker.protocol.loglines import (
    MAX_KEPT_BYTES,
    MAX_LINE_BYTES,
    MAX_LINE_CHARS,
    MAX_METRICS,
    encode_lines,
)
from broker.protocol.messages import Progress

MAX_LEVELS: Final = 64  # of what is nested: messages bear some 250
_NAMED: Final = 3  # of those that are not kept
_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # `Word` of a message
_MOST_COUNT: Final = 1 << 53  # beyond it a JSON number is not exact everywhere


@dataclass(frozen=True, slots=True)
class Line:
    """One parsed line. `text` is for people; at most one of the others is set."""

    text: str
    phase: str | None = None
    progress: dict[str, Any] | None = None
    result: dict[str, JsonValue] | None = None
    error: str | None = None
    kind: str | None = None  # of the error
    unread: bool = False  # a result whose metrics are no object


def understand(line: str) -> Line:
    """Return what a line of output says; a line that is no event is text."""
    line = _plain(line[:MAX_LINE_CHARS].rstrip("\r\n"))
    match _event(line):
        case {"event": "phase", "phase": str(phase)}:
            return Line(f"phase {phase[:40]}", phase=phase[:40])
        case {"event": "progress"} as event:
            return _progress(event)
        case {"event": "checkpoint", "epoch": int(epoch)}:
            return Line(f"checkpoint after epoch {epoch}")
        case {"event": "log", "message": str(message)}:
            return Line(message)
        case {"event": "result", "metrics": metrics}:
            return _result(metrics)
        case {"event": "error", "message": str(message), **rest}:
            kind = rest.get("kind")
            if not isinstance(kind, str):
                return Line(message, error=message)
            error = f"{kind}: {message}"
            return Line(error, error=error, kind=kind if _KIND.fullmatch(kind) else None)
    return Line(line)


def _result(metrics: Any) -> Line:
    if not isinstance(metrics, dict):
        return Line("done; its metrics are not read", unread=True)
    kept = {key: clean(value) for key, value in metrics.items()}
    kept = marked(kept, "metrics_left_out") if len(kept) > MAX_METRICS else kept
    lost = [key for key in metrics if key != "marks" and kept.get(key) != metrics[key]]
    said = f"done; not kept, as not finite or beyond {MAX_METRICS}: {some(lost, _NAMED)}"
    return Line(said if lost else "done", result=kept)


def marked(metrics: dict[str, JsonValue], code: str) -> dict[str, JsonValue]:
    """Return at most `MAX_METRICS` of some metrics; among them `marks`, with one more code."""
    others, marks = dict(metrics), metrics.get("marks")
    others.pop("marks", None)
    codes = [code, *(marks if isinstance(marks, list) else [])]
    return {"marks": codes} | dict(list(others.items())[: MAX_METRICS - 1])


def _event(line: str) -> Any:
    """Return the JSON of a line, or none when it is plain text."""
    if not line.startswith("{"):
        return None
    try:
        # Escapes in JSON can spell half a surrogate pair, which is no text.
        return json.loads(_plain(json.dumps(json.loads(line), ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def clean(value: Any, levels: int = MAX_LEVELS) -> JsonValue:
    """Return a JSON value in which nothing is infinite or not a number: those become none.

    So does an integer that no float can hold, and what is nested more than `levels` deep.
    """
    if isinstance(value, int | float):
        return value if isinstance(value, bool) or _number(value) is not None else None
    if isinstance(value, dict) and levels:
        return {str(key): clean(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list) and levels:
        return [clean(item, levels - 1) for item in value]
    return value if isinstance(value, str) else None


def _progress(event: dict[str, Any]) -> Line:
    fields: dict[str, Any] = {
        "epoch": _count(event.get("epoch")),
        "epochs": _count(event.get("epochs")),
        "train_loss": _number(event.get("train_loss")),
        "val_loss": _number(event.get("val_loss")),
        "eta_s": _number(event.get("eta_s")),
    }
    metrics = event.get("metrics")
    if isinstance(metrics, dict):
        fields["metrics"] = {str(k): clean(v) for k, v in list(metrics.items())[:MAX_METRICS]}
    words = [f"epoch {fields['epoch']}/{fields['epochs']}"]
    words += [
        f"{name} {fields[name]:.4g}"
        for name in ("train_loss", "val_loss")
        if fields[name] is not None
    ]
    known = {key: value for key, value in fields.items() if value is not None}
    if known.get("eta_s", 0) < 0:
        del known["eta_s"]
    return Line("  ".join(words), progress=known)


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_COUNT
    return value if is_count else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


# What trainers print goes out in numbered lines, those of a moment in one message; of progress, the
# newest.
#
# While no coordinator listens the last lines of each attempt are kept, `MAX_KEPT_BYTES` of each,
# also of those that have ended meanwhile.

TELL_S: Final = 0.1
LINES_A_SECOND: Final = 50
MAX_KEPT: Final = 64  # attempts


def say(state: State, run: Run, text: str, now: Now) -> None:
    """Publish a text as log lines, at most `LINES_A_SECOND`; the log on disk has all of it.

    The last ones beyond are held back until the second or the trainer is over.
    """
    if ("log",) not in state.timers:
        state.timers.set(("log",), now.mono_s + TELL_S)
    if now.mono_s - run.lines_at_s >= 1.0:
        release_held(state, run)
        run.lines_at_s, run.lines = now.mono_s, 0
    run.lines += 1
    if run.lines <= LINES_A_SECOND:
        _put(state, run, text)
        return
    run.held.append(text)
    if len(run.held) > LINES_A_SECOND:
        del run.held[0]
        run.left_out += 1


def release_held(state: State, run: Run) -> None:
    """Publish what was held back, after how many lines were left out before it."""
    left_out = [f"... {run.left_out} lines left out"] if run.left_out else []
    for text in (*left_out, *run.held):
        _put(state, run, text)
    run.held, run.left_out = [], 0


def on_log_timer(state: State, now: Now) -> None:
    """Send what is new, and what was held back for a second."""
    for run in state.runs.values():
        if run.held and now.mono_s - run.lines_at_s >= 1.0:
            release_held(state, run)
        elif run.held:
            state.timers.set(("log",), run.lines_at_s + 1.0)
    tell(state)


def tell(state: State) -> None:
    """Send what is new; if a coordinator listens all that it may lack, and keep no more of that."""
    if not state.connected or ("birth",) in state.timers:
        return
    for run in state.runs.values():
        if run.has_news:
            _tell_progress(state, run)
    kept = state.kept
    if state.listening:
        state.kept = {}
    for (job_id, attempt), one in kept.items():
        new = len(one.lines) if state.listening else min(one.last - one.told, len(one.lines))
        if new:
            topic = state.topics.log(state.settings.host, job_id)
            said = encode_lines(attempt, one.last - new + 1, one.lines[-new:])
            state.out.append(Outgoing(topic, said, 0))
        one.told = one.last


def _tell_progress(state: State, run: Run) -> None:
    run.has_news = False
    fields = {key: value for key, value in run.progress.items() if value is not None}
    topic = state.topics.progress(state.settings.host, run.job_id)
    state.publish(topic, Progress(attempt=run.attempt, **fields), qos=0, retain=True)


def _put(state: State, run: Run, text: str) -> None:
    for line in text.split("\n"):
        run.said += 1
        _keep(state, run, line.encode("utf-8", "replace")[:MAX_LINE_BYTES])


def _keep(state: State, run: Run, line: bytes) -> None:
    one = state.kept.setdefault((run.job_id, run.attempt), Kept())
    one.lines.append(line)
    one.last = run.said
    if _size(one.lines) > MAX_KEPT_BYTES - MAX_LINE_BYTES:
        tell(state)
    while _size(one.lines) > MAX_KEPT_BYTES:
        del one.lines[0]
    while len(state.kept) > MAX_KEPT:
        del state.kept[next(iter(state.kept))]


def _size(lines: list[bytes]) -> int:
    return sum(map(len, lines)) + len(lines)
