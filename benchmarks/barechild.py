"""The Python child of `benchmarks.child`, which see; imports nothing that an interpreter lacks."""

import time

BEGAN = time.monotonic_ns()

import os  # noqa: E402 - the clock is read first
import sys  # noqa: E402

words = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
os.makedirs(words["--out-dir"], exist_ok=True)  # noqa: PTH103 - pathlib takes longer than this job
with open(f"{words['--out-dir']}/done", "w") as file:  # noqa: PTH123
    file.write(words["--seed"])
times = os.open(sys.argv[1].removeprefix("--times="), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(times, f"{words['--seed']} {BEGAN} {time.monotonic_ns()}\n".encode())
