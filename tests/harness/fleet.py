"""A whole fleet for tests: the real programs as real processes on a real broker."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from broker.errors import BadMessage
from broker.protocol import messages as m
from broker.protocol.topic_table import Kind
from broker.system.machine import new_id
from broker.system.settings import BrokerSettings
from coordinator import cli
from coordinator.client.client import OperatorClient
from coordinator.store.store import BUNDLE
from tests.harness.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
SHORT = "hyper.epochs = 3\nn_resamples = 20"
LONG = """hyper.epochs = 20000
hyper.patience = 10000
hyper.lr = 0.0001
hyper.max_depth = 16
hyper.min_child_weight = 0.0
hyper.colsample = 1.0"""


def bare_environment() -> dict[str, str]:
    """Return the environment of the tests, without this machine's own `FLEET_` variables."""
    return {key: one for key, one in os.environ.items() if not key.startswith("FLEET_")}


def prepared_data(folder: Path) -> Path:
    """Simulate a small data set in a folder, and prepare it."""
    raw, data = folder / "raw", folder / "data"
    for arguments in (
        ["agent.trainer.simulate", "--out-dir", str(raw), "--rows", "400"],
        ["agent.trainer.prepare", "--raw", str(raw / "simulated.parquet"), "--out-dir", str(data)],
    ):
        subprocess.run(
            [sys.executable, "-m", *arguments], check=True, capture_output=True, timeout=120,
            cwd=ROOT,
        )  # fmt: skip
    return data


@dataclass
class Program:
    """One of the fleet's programs as a process."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    log: Path
    prefix: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] = field(init=False)
    ready: dict[str, Any] = field(init=False)  # its newest ready line

    def start(self, *, wait: bool = True) -> dict[str, Any]:
        """Start it and return its ready line, if it is to be waited for."""
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", self.module, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.environment,
                cwd=ROOT,
            )
        assert self.process.stdout is not None
        if not wait:
            return {}
        line = self.process.stdout.readline()
        assert line, f"{self.module} did not start:\n{self.said()}"
        self.ready = json.loads(line)
        return self.ready

    def is_ready(self) -> bool:
        """Whether it was started without waiting, and its ready line has come since."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0.0)[0])

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def kill(self) -> None:
        """End it as a power cut would."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end and wait until it has."""
        self.end(signal.SIGTERM)

    def end(self, how: int) -> int:
        """Send a signal, wait for the end, return the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)
        try:
            code = self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait(DEADLINE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


class Fleet:
    """Broker, coordinator and agents of one test, each under the test's own topic root."""

    def __init__(self, tmp: Path, broker_url: str, data: Path) -> None:
        self.tmp = tmp
        self.root = f"t{uuid.uuid4().hex[:12]}"
        self.data = data
        self.manifest = tmp / "manifest.toml"
        self.broker_url = broker_url
        self.environment = bare_environment() | {
            "FLEET_BROKER": broker_url, "FLEET_TOPIC_ROOT": self.root
        }  # fmt: skip
        self.programs: list[Program] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self._client: OperatorClient | None = None

    def plan(self, *jobs: str, top: str = "") -> None:
        """Write the manifest: each job is the body of a [[jobs]] table."""
        text = f"schema_version = 1\n{top}\n" + "".join(f"\n[[jobs]]\n{job}\n" for job in jobs)
        making = self.manifest.with_suffix(".making")
        making.write_text(text, "utf-8")
        making.replace(self.manifest)

    def coordinator(
        self, *, wait: bool = True, broker_url: str = "", more: str = "", **settings: Any
    ) -> Program:
        """Start the coordinator on the manifest; `more` are other sections of its file."""
        config = self.tmp / "coordinator.toml"
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        config.write_text("[coordinator]\n" + "\n".join(lines) + f"\n{more}\n", "utf-8")
        arguments = ["--config", str(config), "--state", str(self.tmp / "coordinator")]
        if self.manifest.exists():
            arguments += ["--manifest", str(self.manifest)]
        program = self._program("coordinator.service", arguments, "coordinator", broker_url)
        program.start(wait=wait)
        return program

    def agent(
        self,
        host: str = "pi",
        *,
        wait: bool = True,
        prefix: tuple[str, ...] = (),
        broker_url: str = "",
        more: str = "",
        **settings: Any,
    ) -> Program:
        """Start an agent; settings go to its section of the configuration file.

        `prefix` is a command that runs it, in another network for one, where `broker_url` holds;
        `more` are other sections of that file.
        It is ready when its trainers are probed; what it owes, it begins to hand over before.
        """
        config = self.tmp / f"{host}.toml"
        settings = {"heartbeat_s": 0.5, "threads": 1, "stop_grace_s": 3.0} | settings
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        config.write_text("[agent]\n" + "\n".join(lines) + f"\n{more}\n", "utf-8")
        arguments = ["--config", str(config), "--state", str(self.tmp / host)]
        arguments += ["--data", str(self.data), "--host", host]
        program = self._program("agent.service", arguments, host, broker_url)
        program.prefix = prefix
        program.start(wait=wait)
        return program

    def _program(
        self, module: str, arguments: list[str], name: str, broker_url: str = ""
    ) -> Program:
        log = self.tmp / f"{name}.log"
        # The broker may not be of this machine: chaos has a network of its own.
        where = {"FLEET_BROKER": broker_url, "FLEET_PLAIN": "1"}
        environment = self.environment | where if broker_url else self.environment
        program = Program(module, arguments, environment, log)
        self.programs.append(program)
        return program

    @property
    def client(self) -> OperatorClient:
        """An operator's client that watches every job."""
        if self._client is None:
            self._client = self.another_client().__enter__()
        return self._client

    def another_client(self) -> OperatorClient:
        """A client that has no connection yet."""
        settings = BrokerSettings(url=self.broker_url, topic_root=self.root)
        watch = [f"{self.root}/jobs/+"]
        return OperatorClient(settings, DEADLINE_S, watch=watch, patient=True)

    def ask(self, kind: Any, /, **fields: Any) -> dict[str, Any]:
        """Ask the coordinator as an operator does; the answer's data."""
        found: dict[str, Any] = self.client.ask(kind(id=new_id(), **fields))
        return found

    def show(self, job: str) -> dict[str, Any]:
        return self.ask(m.AskShow, job=job)

    def status(self) -> dict[str, Any]:
        return self.ask(m.AskStatus)

    def why(self, job: str) -> dict[str, Any]:
        return self.ask(m.AskWhy, job=job)

    def cancel(self, job: str) -> dict[str, Any]:
        return self.ask(m.AskCancel, job=job)

    def requeue(self, job: str) -> dict[str, Any]:
        return self.ask(m.AskRequeue, job=job)

    def reload(self) -> dict[str, Any]:
        return self.ask(m.AskReload)

    def until(self, job: str, what: str | Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a job is in a state, or fits a condition; return its row."""
        fits = (lambda row: row["state"] == what) if isinstance(what, str) else what
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            for row in self.rows.values():
                if row["name"] == job and fits(row):
                    return row
            self.look(0.5)
        known = {row["name"]: row["state"] for row in self.rows.values()}
        logs = "\n".join(f"--- {p.log.name}\n{p.said()[-3000:]}" for p in self.programs)
        raise AssertionError(f"{job} did not become {what}; known: {known}\n{logs}")

    def digest(self, row: dict[str, Any]) -> str:
        """Wait for the file of a completed job's artifact, which follows its row; its sha256."""
        folder = self.tmp / "coordinator" / "models" / f"{row['model']}_{row['mode']}"
        bundle = folder / row["artifact_id"] / BUNDLE
        wait_until(bundle.exists, str(bundle))
        return hashlib.sha256(bundle.read_bytes()).hexdigest()

    def look(self, wait_s: float) -> None:
        """Take what is said of jobs for a while."""
        for topic, payload in self.client.messages(wait_s):
            with contextlib.suppress(BadMessage):
                if topic.kind is Kind.JOB and payload:
                    row = m.decode(m.JOB_ROW, payload).model_dump()
                    self.rows[row["job_id"]] = row

    def events(self, job: str) -> list[str]:
        return [event["event"] for event in self.show(job)["events"]]

    def close(self) -> None:
        """End everything, whatever does not end as it should."""
        with contextlib.ExitStack() as stack:
            for program in self.programs:
                if program.process.poll() is None:
                    stack.callback(program.stop)
                elif program.process.stdout is not None:
                    stack.callback(program.process.stdout.close)
            if self._client is not None:
                stack.callback(self._client.__exit__)


def patient(*words: str) -> list[str]:
    """Give a verb a minute for its answer, unless it is told another time: machines are busy."""
    verb = cli.fleet.get_command(click.Context(cli.fleet), words[0])
    takes = verb is not None and any(one.name == "timeout" for one in verb.params)
    return [*words, "--timeout=60"] if takes and "--timeout" not in words else list(words)
