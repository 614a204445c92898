"""Export a plan: one that trains to a framework with the files of a launcher, one that serves to an engine."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, Problem, UnsupportedError, nearest
from meshwright.frameworks.export_targets import TARGET_NAMES, TARGETS
from meshwright.frameworks.exporting.launcher_files import launch_files
from meshwright.frameworks.serving.serving_targets import SERVING_TARGETS
from meshwright.launchers.job_nodes import job_for
from meshwright.plans.files.plan_file import load_any_plan, parse_any_plan
from meshwright.plans.resolve import with_nouns_from
from meshwright.plans.serving.resolve_serving import resolve_serving
from meshwright.plans.serving.serving_file import ServingFile
from meshwright.verbs.export_check import checked
from meshwright.verbs.load_plan import PlanSource, load

USUAL_LAUNCHER = "sbatch"


def exported(
    path: PlanSource, to: str, launcher: str, check: str | None, python: str | None
) -> dict[str, Any]:
    """Return the files and what they leave unsaid. Raise InputError with everything that is wrong or unsayable."""
    if to not in TARGET_NAMES:
        raise InputError(Problem("to", to, "is no target of export", nearest(to, TARGET_NAMES)))
    read = _read(path)
    if isinstance(read, ServingFile):
        return _served(read, to, {"launcher": launcher, "check": check, "python": python})
    if to in SERVING_TARGETS:
        raise UnsupportedError(Problem("to", to, "serves, and the plan trains", _one_of(TARGETS)))
    resolved = load(path, stack_binds=True)
    setting = resolved.setting
    written = TARGETS[to](resolved.long, setting.model, setting.cluster, setting.stack)
    written = launch_files(written, job_for(setting.cluster, setting.model.name, resolved.long), launcher)
    if check is None:
        return written.to_json()
    verdict = checked(check, to, written.files, resolved, python or sys.executable)
    return written.to_json() | {"check": verdict}


def _read(path: PlanSource) -> object:
    """Return the plan of a file, with paths of a serving plan's nouns from its folder."""
    if isinstance(path, Mapping):
        return parse_any_plan(json.dumps(path))
    read = load_any_plan(path)
    return with_nouns_from(read, Path(path).parent) if isinstance(read, ServingFile) else read


def _served(read: ServingFile, to: str, options: Mapping[str, str | None]) -> dict[str, Any]:
    rule = "is an option for plans that train, and this one serves"
    problems = [
        Problem(name, value, rule, f"leave {name} out")
        for name, value in options.items()
        if value is not None and (name, value) != ("launcher", USUAL_LAUNCHER)
    ]
    if to not in SERVING_TARGETS:
        problems.insert(0, Problem("to", to, "trains, and the plan serves", _one_of(SERVING_TARGETS)))
    if problems:
        raise UnsupportedError(problems)
    return SERVING_TARGETS[to](resolve_serving(read)).to_json()


def _one_of(names: Mapping[str, object]) -> str:
    return f"--to {', '.join(names)}"
