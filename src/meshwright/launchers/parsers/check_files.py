"""Check the files of a launch: job files by schemas, scripts by their shell, option lists by their parsers.

A job file of Kubernetes holds scripts, which are checked as if they lay next to it. ``schema/`` has the parts of
published schemas that are used here; each names its source and release.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from meshwright.errors import InputError
from meshwright.launchers.parsers.option_tables import sbatch_faults
from meshwright.launchers.parsers.script_parsers import bash_faults, python_faults, torchrun_faults
from meshwright.plans.files.plan_file import parse_any_plan

PLAN = "plan.yaml"
SCHEMAS = {
    "ConfigMap": "config_map",
    "PersistentVolumeClaim": "persistent_volume_claim",
    "TrainJob": "trainjob",
    "JobSet": "jobset",
    "RayJob": "rayjob",
    "": "skypilot",
}
"""Schemas by the kind of a document; a task of SkyPilot names no kind."""
JOB_FILE = re.compile(r"job\.[a-z]+\.yaml").fullmatch


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of one reader on one file: its faults, none where the file is accepted."""

    path: str
    by: str
    faults: tuple[str, ...] = ()


def verdicts(texts: Mapping[str, str]) -> list[Verdict]:
    """Return the verdicts of the readers of all files, at least one for each file that a system reads."""
    return [verdict for path, text in texts.items() for verdict in _of_file(path, text)]


def _of_file(path: str, text: str) -> Iterator[Verdict]:
    if path == PLAN:
        yield Verdict(path, "the reader of plan files", _plan_faults(text))
    elif JOB_FILE(path):
        yield from _of_documents(path, text)
    elif path.endswith(".py"):
        yield Verdict(path, "the compiler of Python", python_faults(text))
    elif path.endswith((".sh", ".sbatch")):
        yield Verdict(path, "bash -n", bash_faults(text))
        if path.endswith(".sbatch"):
            yield Verdict(path, *sbatch_faults(text))
        if "exec torchrun" in text:
            yield Verdict(path, *torchrun_faults(text))


def _of_documents(path: str, text: str) -> Iterator[Verdict]:
    try:
        found = documents(text)
    except YAMLError as error:
        yield Verdict(path, "YAML 1.1", (str(error),))
        return
    if not found:
        yield Verdict(path, "YAML 1.1", ("holds no document",))
    for document in found:
        kind = str(document.get("kind", ""))
        if kind not in SCHEMAS:
            yield Verdict(
                path, "the schemas of job files", (f"kind: {kind} is none of {', '.join(SCHEMAS)}",)
            )
            continue
        yield Verdict(path, f"the schema of {source(SCHEMAS[kind])}", tuple(schema_faults(document)))
        if kind == "ConfigMap":
            for name, script in document.get("data", {}).items():
                yield from (Verdict(path, f"{v.by} ({name})", v.faults) for v in _of_file(name, script))


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a YAML file, as readers of YAML 1.1 see them."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    return list(yaml.load_all(text))


def schema_faults(document: Mapping[str, Any]) -> list[str]:
    """Return what a document breaks of the schema of its kind."""
    name = SCHEMAS[str(document.get("kind", ""))]
    return [f"{error.json_path}: {error.message}" for error in schema(name).iter_errors(document)]


@cache
def schema(name: str) -> Draft202012Validator:
    """Return the validator of one schema."""
    path = files("meshwright.launchers").joinpath("schema", f"{name}.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(data)
    return Draft202012Validator(data)


def source(name: str) -> str:
    """Return the project and release of a schema: the beginning of its comment."""
    comment: str = schema(name).schema["$comment"]
    return re.split(r"[,:(]", re.sub(r"^(Parts used here of|An?) ", "", comment))[0].strip()


def _plan_faults(text: str) -> tuple[str, ...]:
    try:
        parse_any_plan(text)
    except InputError as error:
        return tuple(str(problem) for problem in error.problems)
    return ()
