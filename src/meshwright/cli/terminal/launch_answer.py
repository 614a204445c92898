"""Answer ``launch`` from its arguments by name: check them, write the job's files, and start it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright import api
from meshwright.cli.options.run_arguments import run_words
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import write_tree
from meshwright.cli.terminal.search_answer import several
from meshwright.errors import InputError, Problem, attempted
from meshwright.present.job_files import render_launch
from meshwright.verbs.launch.launch_request import LaunchRequest
from meshwright.verbs.launch.start_job import submit

USUAL_FOLDER = "launch"
"""Where the files of a job are written unless a folder is named."""
OF_REQUEST = ("on", "storage", "image", "address")


def launched(given: Mapping[str, Any]) -> Answer:
    """Answer ``launch``: all problems of its options, of those of ``run`` and of the plan are raised at once."""
    problems: list[Problem] = []
    words = attempted(lambda: run_words(several(given["run_options"])), problems)
    dry = bool(given["dry_run"])
    request = LaunchRequest(words=words or (), dry=dry, **{name: given[name] for name in OF_REQUEST})
    job = attempted(lambda: api.launch(given["plan"], request), problems)
    if problems or job is None:
        raise InputError(problems)
    folder = Path(given["output"] or USUAL_FOLDER)
    if given["output"] or not dry:
        write_tree(folder, job.files)
    data = job.to_json(str(folder))
    if not dry:
        data["submitted"] = submit(job.command, job.nodes, request.system, folder)
    written = str(folder) if given["output"] or not dry else None
    return Answer(data, lambda data: render_launch(data, written), remarks=job.remarks)
