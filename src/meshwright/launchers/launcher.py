"""Interface of a launcher: it writes the files that start a target's ``launch.sh`` on all nodes of a cluster.

A launcher gets the text files of the target's folder by name; its files must include them or lie next to
them. ``launch.sh`` reads NNODES, MASTER_ADDR, MASTER_PORT and RDZV_ID; a launcher sets those that its
system knows. Files of launchers are called ``job.…``.
"""

from collections.abc import Mapping
from typing import Protocol

from meshwright.launchers.job_nodes import IMAGE, Job


class Launcher(Protocol):
    """Writer of the files of one launcher; names are relative to the target's folder."""

    def __call__(self, top: str, job: Job, scripts: Mapping[str, str]) -> dict[str, str]:
        """Return the files under the comment ``top``.

        Raises UnsupportedError if the launcher cannot express the job.
        """
        ...


def image_remarks(job: Job, variables: str) -> tuple[str, ...]:
    """Return the line of comment about an image that is not set; ``variables`` is the key of a container's own."""
    if job.image != IMAGE:
        return ()
    start = f"Set first: the image ({IMAGE}), with what launch.sh starts in it"
    return (f"{start}; variables of launch.sh go under {variables}.",)


def file_top(top: str, *remarks: str) -> str:
    """Return ``top`` and further lines of comment."""
    return "\n".join([top, *(f"# {remark}".rstrip() for remark in remarks)])
