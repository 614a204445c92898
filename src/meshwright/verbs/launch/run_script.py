"""Write ``launch.sh``, which starts ``meshwright run`` on a node.

A job that is started again resumes with the same command. So RUN lies on storage that all nodes see.
"""

import shlex
from collections.abc import Sequence
from textwrap import wrap

from meshwright import __version__
from meshwright.launchers.job_nodes import Job
from meshwright.launchers.launch_script import header, launch_script, torchrun

COMMENT_WIDTH = 116


def run_script(
    job: Job,
    summary: str,
    words: Sequence[str],
    reasons: Sequence[str] = (),
    *,
    shared: bool,
    ranks_started: bool,
) -> str:
    """Return ``launch.sh``. ``words``: options of ``run``; ``shared``: nodes see the folder of the script itself.

    ``reasons``: sentences on the options, for comments. ``ranks_started``: the launcher runs the script once for every
    rank, so that torchrun is not needed.
    """
    comments = [line for reason in reasons for line in wrap(reason, COMMENT_WIDTH)]
    top = header("meshwright run", __version__, summary, *comments)
    run, options = 'meshwright run "${HERE}/plan.yaml"', ['--out "${RUN}"', *_option_lines(words), '"$@"']
    if ranks_started:
        start = " \\\n  ".join([f"exec {run}", *options])
    else:
        start = torchrun(job, [f"--no-python {run}", *options])
    return launch_script(
        top, job, [*_storage_lines(job, words, shared), start], sources=(), meets=not ranks_started
    )


def _option_lines(words: Sequence[str]) -> list[str]:
    """Return the options as shell text, one to a line. ``--out`` is in RUN; a number of steps may come from outside."""
    lines: list[str] = []
    for word in words:
        if word.startswith("--"):
            lines.append(word)
        else:
            lines[-1] += f" {shlex.quote(word)}"
    lines = [line for line in lines if line.partition(" ")[0] != "--out"]
    return lines if "--steps" in words else ['--steps "${STEPS}"', *lines]


def _storage_lines(job: Job, words: Sequence[str], shared: bool) -> list[str]:
    """Return shell text that sets RUN, and STEPS where the options name none."""
    lines = [
        "# RUN has the metrics and checkpoints of the run. A job that is started again resumes from them, perhaps on",
        "# other nodes: RUN must lie on storage that all nodes see and that outlives the job.",
    ]
    out = words[words.index("--out") + 1] if "--out" in words else ""
    if job.storage is not None:
        path = shlex.quote(job.storage.path)
        lines += [
            f"if [[ ! -d {path} ]]; then",
            f"  echo {shlex.quote(_not_mounted(job))} >&2",
            "  exit 2",
            "fi",
        ]
    if out or job.storage is not None:
        default = out or f"{job.storage.path if job.storage else ''}/{job.name}"
        lines.append(f"RUN={shlex.quote(default)}")
    elif shared:
        lines += [
            "# No --storage was given: RUN lies next to this script. Where other nodes do not see this folder,",
            "# --storage must name one that they do see.",
            'RUN="${RUN:-${HERE}/run}"',
        ]
    else:
        lines.append(
            'RUN="${RUN:?no --storage was given: name it, or set RUN to a folder that all nodes mount}"'
        )
    if "--steps" not in words:
        lines.append('STEPS="${STEPS:?how many steps to train must be said}"')
    return lines


def _not_mounted(job: Job) -> str:
    assert job.storage is not None
    return f"{job.storage.path} is no folder on this node: mount the shared storage there"
