"""Start a job whose files are written: run the target's own program from their folder."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from meshwright.errors import InfeasibleError, RunError
from meshwright.verbs.launch.launch_targets import System, command_line, executable_words

PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""Signals for this process alone; SIGINT of a terminal reaches the job by itself."""


def submit(command: list[str], nodes: int, system: System, folder: Path) -> str:
    """Start the job of ``nodes`` and return the program's answer; empty if it stays with the job and writes itself.

    Raises InfeasibleError where the program is missing, and RunError where it fails.
    """
    by_hand = command_line(command, str(folder))
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if shutil.which(system.program, path=search) is None:
        reason = f"{system.program} is not installed here; the files are in {folder}"
        raise InfeasibleError("Nothing was started.", [reason], f"where it is installed: {by_hand}")
    if not system.launcher and nodes > 1:
        reason = f"torchrun starts one node, and the plan has {nodes}; the files are in {folder}"
        hint = f"on every node: export MASTER_ADDR=FIRST_NODE; {by_hand}"
        raise InfeasibleError("Nothing was started.", [reason], hint)
    words = executable_words(command)
    environment = {**os.environ, "PATH": search}
    code, said = _stay(words, folder, environment) if system.stays else _ask(words, folder, environment)
    if code != 0:
        raise RunError(f"{by_hand}\nended with {code}" + (f": {said}" if said else "."))
    return said


def _ask(words: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip()


def _stay(words: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run a program to its end; signals reach it, and it decides when to end."""
    process = subprocess.Popen(words, cwd=folder, env=environment, stdout=sys.stderr.fileno())

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait(), ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
