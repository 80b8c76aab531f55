"""A trainer that takes some seconds, keeps a checkpoint at each step, and notes when it runs.

    python -I -S trainer.py JOURNAL HOST --seed=N --out-dir=DIR --checkpoint-dir=DIR [--resume] ...

What it notes are lines of JSON that it appends to JOURNAL, each in one write; `tests.chaos.journal`
reads them.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

STEP_S = 0.1
INTERRUPTED = 75


def main() -> int:
    """Train; see docs/reference/trainers.md, "Your own trainer"."""
    file, host, *words = sys.argv[1:]
    given = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    out = Path(given["out-dir"])
    job_id, _, attempt = out.parent.name.rpartition(".")
    journal = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(what: str) -> None:
        line = {"what": what, "at_s": time.monotonic(), "host": host, "job_id": job_id,
                "attempt": int(attempt), "pid": os.getpid(), "step": step}  # fmt: skip
        os.write(journal, json.dumps(line).encode() + b"\n")

    kept = Path(given["checkpoint-dir"], "step")
    step = int(kept.read_text()) if "resume" in given and kept.exists() else 0
    note("begun")
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    rng = random.Random(int(given["seed"]))
    steps = rng.randint(80, 120) if rng.random() < 0.1 else rng.randint(10, 50)
    while step < steps:
        time.sleep(STEP_S)
        step += 1
        making = kept.with_name("making")
        making.write_text(str(step))
        making.replace(kept)
        note("step")
        print(json.dumps({"event": "progress", "epoch": step, "epochs": steps}), flush=True)
        if asked:
            note("stopped")
            return INTERRUPTED
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.bin").write_bytes(rng.randbytes(rng.choice((1000, 20_000, 100_000))))
    print(json.dumps({"event": "result", "metrics": {"steps": steps}, "files": ["model.bin"]}))
    note("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
