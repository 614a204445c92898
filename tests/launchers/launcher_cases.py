"""Launcher files as data, and the schemas that they must fit."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from export_cases import Case
from ruamel.yaml import YAML

from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.exporting.launcher_files import launch_files
from meshwright.launchers.launch_script import job_for

SCHEMAS = Path(__file__).parent / "schemas"
FILES = {"skypilot": "job.sky.yaml", "trainjob": "job.trainjob.yaml", "jobset": "job.jobset.yaml"}
KINDS = {"ConfigMap": "config_map", "TrainJob": "trainjob", "JobSet": "jobset"}


def launched(this: Case, launcher: str, target: str = "megatron") -> Export:
    """The export of a case with the files of a launcher."""
    return launch_files(this.to(target), job_for(this.cluster, this.model.name), launcher)


def documents(text: str) -> list[dict[str, Any]]:
    """The documents of a file, as readers of YAML 1.1 see them."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    return list(yaml.load_all(text))


@cache
def schema(name: str) -> jsonschema.Draft202012Validator:
    """The validator of one schema."""
    data = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(data)
    return jsonschema.Draft202012Validator(data)


def faults(document: dict[str, Any]) -> list[str]:
    """What a document breaks of the schema of its kind; a task of SkyPilot names no kind."""
    name = KINDS.get(document.get("kind", ""), "skypilot")
    return [f"{error.json_path}: {error.message}" for error in schema(name).iter_errors(document)]


def of_kind(text: str, kind: str) -> dict[str, Any]:
    """The one document of a kind."""
    (found,) = [document for document in documents(text) if document.get("kind") == kind]
    return found
