"""Write a Slurm job of one task per node, each of which runs ``launch.sh``."""

from collections.abc import Mapping

from meshwright.launchers.job_nodes import Job
from meshwright.launchers.launch_script import sbatch_script


def sbatch(top: str, job: Job, scripts: Mapping[str, str]) -> dict[str, str]:
    """Return ``job.sbatch``, submitted from the folder of the scripts."""
    return {"job.sbatch": sbatch_script(top, job)}
