"""Runs whose ranks are killed and joined while they train; each command is a process of its own."""

import json
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from training_runs import SmallRun

from meshwright import api

PATIENCE_S = 120.0
MANY = 100_000
"""Steps that no test takes: a run is stopped when it has shown what it must."""
OPTIONS = {"lr": 1e-2, "schedule": "constant", "on_fault": "shrink"}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@dataclass
class ChangingRun:
    """The first command of a run and those that join; ``steps`` are those in its log."""

    run: SmallRun
    output: str = "run"
    options: dict = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    commands: list = field(default_factory=list)

    @property
    def folder(self):
        return self.run.path.parent / self.output

    @property
    def lines(self):
        path = self.folder / "metrics.jsonl"
        text = path.read_bytes().decode() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def steps(self):
        return [line for line in self.lines if "loss" in line]

    def begin(self, steps=MANY):
        self._command("first", lambda: self.run.train(self.output, steps, **self._listening()))
        return self

    def join(self):
        where = {"options": {"output": self.folder}, "join": f"127.0.0.1:{self.port}"}
        self._command(f"joined-{len(self.commands)}", lambda: api.run(self.run.path, **where))
        self._wait(lambda: self.members and self.members[-1]["ranks"] == self.ranks)

    def kill(self, *places, of=0):
        """Kill ranks by their place among those that a command began, and wait until the run has shrunk."""
        before, children = len(self.members), self.children(of)
        for place in places:
            os.kill(children[place], signal.SIGKILL)
        self._wait(lambda: len(self.members) > before)

    def silence(self, of):
        """Stop a command and its ranks, as a host that is silent, until the run has shrunk; then let them go on."""
        before, processes = len(self.members), [self.commands[of][0].pid, *self.children(of)]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        self._wait(lambda: len(self.members) > before)
        for pid in processes:
            os.kill(pid, signal.SIGCONT)

    def wait_steps(self, count):
        """Wait for further steps."""
        end = self.steps[-1]["step"] + count if self.steps else count - 1
        self._wait(lambda: self.steps and self.steps[-1]["step"] >= end)

    def stop(self):
        """End the run by a signal, and return the answer of each command."""
        os.kill(self.commands[0][0].pid, signal.SIGTERM)
        return self.end()

    def end(self):
        for process, _ in self.commands:
            process.join(PATIENCE_S)
            assert not process.is_alive()
        return [json.loads(answer.read_text()) for _, answer in self.commands]

    @property
    def ranks(self):
        return int(json.loads(self.run.path.read_text())["cluster"].rpartition(" ")[2])

    @property
    def members(self):
        """The numbers of ranks after the first, by the starts in the log."""
        starts = [line for line in self.lines if "meshwright" in line]
        return [{"ranks": _devices(line["plan"])} for line in starts[1:]]

    def children(self, of=0):
        pid = self.commands[of][0].pid
        return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def reference(self):
        """The losses and norms of as many steps without faults."""
        found = self.run.train("reference", len(self.steps), lr=1e-2, schedule="constant").outcome
        return found.losses, found.norms

    def _listening(self):
        return {**OPTIONS, "listen": f"127.0.0.1:{self.port}", **self.options}

    def _command(self, name, work):
        answer = self.run.path.parent / f"{name}.json"

        def keep():
            try:
                found = work().to_json()
            except Exception as error:
                found = {"error": str(error), "type": type(error).__name__}
            answer.write_text(json.dumps(found))

        process = get_context("fork").Process(target=keep)
        process.start()
        self.commands.append((process, answer))

    def _wait(self, until):
        end = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < end, "the run does not go on"
            assert self.commands[0][0].is_alive(), self.commands[0][1].read_text()
            time.sleep(0.02)


def _devices(plan):
    layout = next(iter(plan["layouts"].values()))["grid"] if "layouts" in plan else plan["layout"]
    pipeline = plan["pipeline"].get("placement")
    pp = max(pipeline) + 1 if pipeline else layout.get("pp", 1)
    degrees = [layout.get(name, 1) for name in ("dp_replicate", "dp_shard", "cp", "tp")]
    for degree in degrees:
        pp *= degree
    return pp


def largest_difference(found, expected):
    """The largest relative difference of two lists of numbers."""
    return max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
