"""What starts an export's scripts on all its nodes. ``LAUNCHERS`` lists what ``export --launcher`` accepts."""

from meshwright.export.launchers.jobset import jobset
from meshwright.export.launchers.launcher import Launcher
from meshwright.export.launchers.sbatch import sbatch
from meshwright.export.launchers.skypilot import skypilot
from meshwright.export.launchers.trainjob import trainjob

LAUNCHERS: dict[str, Launcher] = {
    "sbatch": sbatch,
    "skypilot": skypilot,
    "trainjob": trainjob,
    "jobset": jobset,
}
ORDERING = ("sbatch",)
"""Those that start nodes in a plan's order."""
