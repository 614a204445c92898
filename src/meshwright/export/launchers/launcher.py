"""What every launcher is: the files that start a target's ``launch.sh`` on all nodes of one kind of cluster.

A launcher is given the text files of the target's folder by name; what starts them must carry them along or lie
beside them. ``launch.sh`` reads NNODES, MASTER_ADDR, MASTER_PORT and RDZV_ID; a launcher sets those that its
system knows. Files of launchers are called ``job.…``.
"""

from collections.abc import Mapping
from typing import Protocol

from meshwright.export.launch import Job

IMAGE = "SET-YOUR-IMAGE"
"""Stands for the image of a container: capitals are not allowed there, so that a job without one is refused."""


class Launcher(Protocol):
    """Writes the files of one launcher; names are relative to the target's folder."""

    def __call__(self, top: str, job: Job, scripts: Mapping[str, str]) -> dict[str, str]:
        """The files under the comment ``top``. Raises UnsupportedError where the launcher has no word for the job."""
        ...


def file_top(top: str, *remarks: str) -> str:
    """``top`` and further lines of comment."""
    return "\n".join([top, *(f"# {remark}".rstrip() for remark in remarks)])
