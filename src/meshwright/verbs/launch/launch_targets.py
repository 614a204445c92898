"""The targets of ``launch``: their writer of job files, the program that submits, and what they can do."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass

from meshwright.launchers.job_nodes import Job
from meshwright.launchers.rayjob import ray_words


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One target. ``command`` returns the words that start the job from the folder of its files.

    ``launcher``: its writer among the launchers of ``export``; empty: torchrun needs no job file. ``program`` must be
    installed. ``containers``: ranks run in containers, with files of their own; ``images``: which must be named.
    ``stays``: the command lasts as long as the job. ``starts_ranks``: the system starts every rank, without torchrun.
    """

    launcher: str
    program: str
    command: Callable[[Job, str | None], list[str]]
    containers: bool = False
    images: bool = False
    buckets: bool = False
    addresses: bool = False
    stays: bool = False
    starts_ranks: bool = False


def _ray_command(job: Job, address: str | None) -> list[str]:
    """Return the words for a cluster at an address; without one Ray starts or joins a cluster on this machine."""
    words = ray_words(job, "", ["bash", "launch.sh"])
    if address is None:
        return words
    return ["ray", "job", "submit", "--address", address, "--working-dir", ".", "--", *words]


SYSTEMS = {
    "slurm": System(launcher="sbatch", program="sbatch", command=lambda job, _: ["sbatch", "job.sbatch"]),
    "kubernetes": System(
        launcher="jobset",
        program="kubectl",
        command=lambda job, _: ["kubectl", "apply", "-f", "job.jobset.yaml"],
        containers=True,
        images=True,
    ),
    "ray": System(
        launcher="rayjob",
        program="ray",
        command=_ray_command,
        containers=True,
        addresses=True,
        stays=True,
        starts_ranks=True,
    ),
    "skypilot": System(
        launcher="skypilot",
        program="sky",
        command=lambda job, _: ["sky", "jobs", "launch", "--yes", "job.sky.yaml"],
        containers=True,
        images=True,
        buckets=True,
    ),
    "torchrun": System(
        launcher="", program="torchrun", command=lambda job, _: ["bash", "launch.sh"], stays=True
    ),
}


def command_line(words: list[str], folder: str) -> str:
    """Return the shell text that starts a job from its folder."""
    return f"cd {shlex.quote(folder)} && {shlex.join(words)}"


def executable_words(words: list[str]) -> list[str]:
    """Return the words with this interpreter in the place of ``python``."""
    return [sys.executable, *words[1:]] if words[0] == "python" else words
