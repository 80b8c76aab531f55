"""The job of `benchmarks.jobs`: a program that does nothing but say when it began and ended.

    PROGRAM [--times=]TIMES --seed=N --out-dir=DIR [anything else]

It appends `N began ended` to the file TIMES (monotonic nanoseconds, one line a job), and writes N
into DIR/done, which is what a trainer's contract demands. Its first instruction reads the clock. It
comes as a small static program, made by the machine's C compiler where there is one, and as this
Python program, whose first instruction comes after the interpreter's start.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

int main(int count, char **words) {
    long long began = now();
    const char *seed = "", *folder = "";
    char text[4096];
    for (int at = 2; at < count; at++) {
        if (!strncmp(words[at], "--seed=", 7)) seed = words[at] + 7;
        if (!strncmp(words[at], "--out-dir=", 10)) folder = words[at] + 10;
    }
    mkdir(folder, 0777);
    snprintf(text, sizeof text, "%s/done", folder);
    int file = open(text, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || write(file, seed, strlen(seed)) < 0) return 2;
    close(file);
    const char *times = strncmp(words[1], "--times=", 8) ? words[1] : words[1] + 8;
    file = open(times, O_WRONLY | O_CREAT | O_APPEND, 0666);
    int length = snprintf(text, sizeof text, "%s %lld %lld\n", seed, began, now());
    return write(file, text, length) == length ? 0 : 1;
}
"""


def static(folder: Path) -> list[str] | None:
    """Make the small program in `folder`; return its command, none without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, program = folder / "child.c", folder / "child"
    source.write_text(SOURCE, "utf-8")
    command = [compiler, "-O2", "-static", "-o", str(program), str(source)]
    made = subprocess.run(command, capture_output=True, check=False)
    return [str(program)] if made.returncode == 0 else None


def python() -> list[str]:
    """Return the command of this program, on an interpreter without site packages."""
    return [sys.executable, "-I", "-S", str(BARE)]


BARE = Path(__file__).with_name("barechild.py")


def times_of(path: Path) -> dict[int, tuple[float, float]]:
    """Return when each job began and ended (monotonic seconds), as far as the file tells."""
    found = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        seed, began, ended = line.split()
        found[int(seed)] = (int(began) / 1e9, int(ended) / 1e9)
    return found
