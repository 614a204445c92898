"""Launchers start an export's scripts on all its nodes. ``LAUNCHERS`` lists the values of ``export --launcher``."""

from meshwright.launchers.jobset import jobset
from meshwright.launchers.launcher import Launcher
from meshwright.launchers.rayjob import rayjob
from meshwright.launchers.skypilot import skypilot
from meshwright.launchers.slurm import sbatch
from meshwright.launchers.trainjob import trainjob

LAUNCHERS: dict[str, Launcher] = {
    "sbatch": sbatch,
    "skypilot": skypilot,
    "trainjob": trainjob,
    "jobset": jobset,
    "rayjob": rayjob,
}
ORDERING = ("sbatch",)
"""Launchers that start nodes in a plan's order."""
