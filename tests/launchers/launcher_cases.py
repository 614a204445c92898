"""Launcher files as data, and the schemas that they must fit."""

from typing import Any

from export_cases import Case

from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.exporting.launcher_files import launch_files
from meshwright.launchers.job_nodes import job_for
from meshwright.launchers.parsers.check_files import documents

FILES = {
    "skypilot": "job.sky.yaml",
    "trainjob": "job.trainjob.yaml",
    "jobset": "job.jobset.yaml",
    "rayjob": "job.rayjob.yaml",
}


def launched(this: Case, launcher: str, target: str = "megatron") -> Export:
    """The export of a case with the files of a launcher."""
    return launch_files(this.to(target), job_for(this.cluster, this.model.name), launcher)


def of_kind(text: str, kind: str) -> dict[str, Any]:
    """The one document of a kind."""
    (found,) = [document for document in documents(text) if document.get("kind") == kind]
    return found
