"""Findings of `fleet doctor`: lines for people, JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, TextIO

from broker.sentences import counted, json_text, laid_out
from broker.system.process import nobody_reads

EXIT_FINE: Final = 0
EXIT_FAILS: Final = 1
EXIT_INTERRUPTED: Final = 130
INDENT: Final = 19  # as far as the words of a line


class Level(StrEnum):
    """How bad it is: `warn` costs something, `fail` keeps the program from its work.

    `skip`: it was not looked at.
    """

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `remedy` is what to do about it, in the imperative."""

    check: str
    level: Level
    text: str
    remedy: str = ""

    def line(self) -> str:
        """Return it as one line without control characters."""
        said = f"{self.text}; {self.remedy}" if self.remedy else self.text
        plain = "".join(one if one.isprintable() else " " for one in said)
        return f"{self.level:<5} {self.check:<12} {plain}"


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, text)


def skip(check: str, text: str, remedy: str) -> Finding:
    """It was not looked at; `remedy` says how else one finds out."""
    return Finding(check, Level.SKIP, text, remedy)


def skipped(checks: Iterable[str], text: str, remedy: str) -> Iterator[Finding]:
    """None of these was looked at, for one reason."""
    return (skip(check, text, remedy) for check in checks)


def warn(check: str, text: str, remedy: str) -> Finding:
    """It works, at a price."""
    return Finding(check, Level.WARN, text, remedy)


def fail(check: str, text: str, remedy: str) -> Finding:
    """It will not work."""
    return Finding(check, Level.FAIL, text, remedy)


def summary(findings: Iterable[Finding]) -> str:
    """Return in a line how many findings are bad, and of which checks they are."""
    checks: dict[Level, list[str]] = {level: [] for level in Level}
    for finding in findings:
        checks[finding.level].append(finding.check)
    said = [
        f"{counted(len(found), what)}: {', '.join(dict.fromkeys(found))}"
        for level, what in ((Level.FAIL, "problem"), (Level.WARN, "warning"))
        if (found := checks[level])
    ]
    said = said or ["all is well"]
    if skipped := checks[Level.SKIP]:
        said.append(f"not looked at: {', '.join(dict.fromkeys(skipped))}")
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}."


def show(role: str, findings: Iterable[Finding], *, as_json: bool) -> int:
    """Write the findings to standard output; a closed pipe is no fault, and Ctrl-C ends it."""
    try:
        code = tell(role, findings, sys.stdout, as_json=as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        nobody_reads()
        return EXIT_FINE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def tell(role: str, findings: Iterable[Finding], out: TextIO, *, as_json: bool) -> int:
    """Write each finding as soon as it is there, or all as JSON; return the exit code."""
    found = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            line = finding.line()
            out.write(laid_out(line, out, indent=INDENT, least=2 * INDENT) + "\n")
            out.flush()
    fine = all(finding.level is not Level.FAIL for finding in found)
    text = summary(found)
    if as_json:
        checks = [asdict(finding) for finding in found]
        told = {"role": role, "ok": fine, "checks": checks, "summary": text}
        out.write(json_text(told) + "\n")
    else:
        out.write(laid_out(text, out) + "\n")
    return EXIT_FINE if fine else EXIT_FAILS
