"""Read a process's rank in a job that torchrun or Slurm started from their environment variables.

torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT (PyTorch 2.13, page "torchrun"). ``srun`` sets
SLURM_PROCID, SLURM_NTASKS and SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST and SLURM_JOB_NODELIST (manual
page of srun, "Output environment variables"); task 0 is on the first host of the list under the usual distributions.
The port then follows from the job's number, which all tasks know.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from meshwright.errors import InputError, Problem

FIRST_PORT, PORTS = 20_000, 20_000
"""Ports for jobs without MASTER_PORT: below those that Linux hands out by itself (32768 and up) for most jobs."""
FEW_BRACKETS = re.compile(r"[\w.-]*(?:\[[\d,-]+\][\w.-]*)*")
Launcher = Literal["torchrun", "slurm", "local"]


@dataclass(frozen=True, slots=True)
class Place:
    """One process of a job; rank 0 listens at ``address`` and ``port`` (empty in local jobs)."""

    rank: int
    ranks: int
    local_rank: int
    launcher: Launcher
    address: str = ""
    port: int = 0


def launched_place(environ: Mapping[str, str]) -> Place | None:
    """Return the place that a launcher gave this process; None if it was not launched. Raises InputError.

    A single Slurm task, such as a batch script, does not count as launched.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        read = _Numbers(environ)
        rank, ranks = read.number("RANK"), read.number("WORLD_SIZE")
        place = Place(
            rank,
            ranks,
            read.number("LOCAL_RANK"),
            "torchrun",
            read.text("MASTER_ADDR"),
            read.number("MASTER_PORT"),
        )
        return read.checked(place)
    tasks = next((name for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") if name in environ), None)
    if "SLURM_PROCID" in environ and tasks and environ[tasks] != "1":
        return _slurm_place(_Numbers(environ), environ, tasks)
    return None


def _slurm_place(read: "_Numbers", environ: Mapping[str, str], tasks: str) -> Place:
    hosts = next((n for n in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST") if n in environ), "SLURM_NODELIST")
    address = environ.get("MASTER_ADDR") or first_host(read.text(hosts))
    given = "MASTER_PORT" in environ
    port = read.number("MASTER_PORT") if given else FIRST_PORT + read.number("SLURM_JOB_ID") % PORTS
    rank, local = read.number("SLURM_PROCID"), read.number("SLURM_LOCALID")
    return read.checked(Place(rank, read.number(tasks), local, "slurm", address, port))


def first_host(hosts: str) -> str:
    """Return the first host of a Slurm list: ``node007`` of ``node[007-012,20],gpu3``."""
    match = FEW_BRACKETS.match(hosts)
    return re.sub(r"\[(\d*)[^\]]*\]", r"\1", match[0]) if match else ""


class _Numbers:
    """Reader of environment variables that collects their problems."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: list[Problem] = []

    def text(self, name: str) -> str:
        value = self.environ.get(name, "")
        if not value:
            self._wrong(name, "is needed beside the launcher's other variables")
        return value

    def number(self, name: str) -> int:
        value = self.text(name)
        if re.fullmatch(r"[0-9]{1,9}", value):
            return int(value)
        if value:
            self._wrong(name, "must be a whole number")
        return 0

    def checked(self, place: Place) -> Place:
        """Return the place if all variables could be read and the rank is valid. Raises InputError."""
        if not self.problems and not place.rank < place.ranks:
            rule = f"the rank must be below the number of processes, {place.ranks}"
            self.problems.append(Problem("environment.rank", place.rank, rule))
        if self.problems:
            raise InputError(self.problems)
        return place

    def _wrong(self, name: str, rule: str) -> None:
        value = self.environ.get(name)
        self.problems.append(
            Problem(f"environment.{name}", value, rule, "start it with torchrun or srun, or by itself")
        )
