"""An export with the files of another launcher: the seam between targets, which write scripts, and launchers.

Every exporter writes ``launch.sh``, what it reads, and the job file of the first launcher. Files called ``job.…``
belong to launchers and are replaced; the comment at the top of ``launch.sh`` goes into the new ones.
"""

from dataclasses import replace
from itertools import takewhile
from pathlib import PurePosixPath

from meshwright.errors import InputError, Problem, UnsupportedError, nearest
from meshwright.frameworks.exporting.export_result import Export
from meshwright.launchers import LAUNCHERS, ORDERING
from meshwright.launchers.job_nodes import Job

SCRIPT = "launch.sh"


def launch_files(export: Export, job: Job, launcher_name: str) -> Export:
    """``export`` with the files of ``launcher_name`` in place of those of any other; what fits already stays.

    Raises InputError for an unknown launcher, and UnsupportedError where there is no ``launch.sh`` to start or the
    launcher has no word for the job.
    """
    if launcher_name not in LAUNCHERS:
        rule = "no launcher of that name"
        raise InputError(Problem("launcher", launcher_name, rule, nearest(launcher_name, LAUNCHERS)))
    if job.host_order is not None and launcher_name not in ORDERING:
        rule = f"{launcher_name} hands out nodes in an order of its own"
        hint = f"--launcher {ORDERING[0]}, or take node_order out"
        raise UnsupportedError(Problem("layout.node_order", list(job.host_order), rule, hint))
    places = [PurePosixPath(path).parent for path in export.files if PurePosixPath(path).name == SCRIPT]
    if not places:
        rule = f"{export.target} is started without {SCRIPT}: there is nothing for {launcher_name} to run"
        raise UnsupportedError(Problem("launcher", launcher_name, rule, "leave the launcher out"))
    files = {path: text for path, text in export.files.items() if not _is_launchers(path)}
    for place in places:
        own = {
            PurePosixPath(path).name: text
            for path, text in files.items()
            if PurePosixPath(path).parent == place
        }
        written = LAUNCHERS[launcher_name](_top(own[SCRIPT]), job, own)
        paths = {str(place / name): text for name, text in written.items()}
        files |= {path: export.files.get(path, text) for path, text in paths.items()}
    return replace(export, files=files)


def _is_launchers(path: str) -> bool:
    return PurePosixPath(path).name.startswith("job.")


def _top(script: str) -> str:
    """Return the comment lines between the first line of a script and its first command."""
    lines = script.splitlines()[1:]
    return "\n".join(takewhile(lambda line: line.startswith("#"), lines))
