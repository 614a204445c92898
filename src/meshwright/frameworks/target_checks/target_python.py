"""Checks that each target offers, and how to run a script in a Python that has the target.

Scripts lie in ``scripts/``: they run there as programs of their own, on a folder of exported files, and print one JSON
line. Nothing of a target is imported here. A new target is its scripts and one row of ``TARGET_CHECKS``.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, MeasurementError, Problem

LONGEST_S = 600
NEEDS_GPU = (
    "on a machine with GPUs run a few steps of the exported job and hand its log to `meshwright ingest`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCheck:
    """Checks that a target offers.

    ``module`` is what a Python must have; ``parser`` and ``steps`` name the scripts that hand files to its parser and
    that take a step of it on a fake process group, None where ``why_not`` says that this can not be. ``stack`` is the
    name of the stack file of what the exported files run on.
    """

    module: str
    parser: str | None
    steps: str | None
    stack: str
    why_not: str = ""


TARGET_CHECKS: Mapping[str, TargetCheck] = {
    "megatron": TargetCheck(
        module="megatron.training",
        parser="megatron_parser_check.py",
        steps=None,
        stack="megatron-core",
        why_not="Megatron's layers and its distributed optimizer allocate on CUDA devices and run CUDA kernels",
    ),
    "bridge": TargetCheck(
        module="megatron.bridge",
        parser=None,
        steps=None,
        stack="megatron-bridge",
        why_not="Megatron-Bridge needs CUDA libraries to be imported; its override tree is held against its release's "
        "field names when it is written",
    ),
    "torchtitan": TargetCheck(
        module="torchtitan",
        parser="torchtitan_parser_check.py",
        steps="torchtitan_dry_run.py",
        stack="torchtitan",
    ),
    "deepspeed": TargetCheck(
        module="deepspeed",
        parser="deepspeed_parser_check.py",
        steps="deepspeed_dry_run.py",
        stack="deepspeed",
    ),
    "accelerate": TargetCheck(
        module="accelerate",
        parser="accelerate_parser_check.py",
        steps="accelerate_dry_run.py",
        stack="accelerate",
    ),
}
"""Every target of export."""


def require_module(python: str, module: str) -> None:
    """Raise InputError where the interpreter ``python`` can not be run, or has no such module."""
    found = run_program([python, "-c", f"import importlib.util as u; print(bool(u.find_spec({module!r})))"])
    if found.stdout.strip().endswith("True"):
        return
    rule = f"{python} has no {module}"
    hint = "--python of an environment that has it; scripts/parsers.sh makes one"
    raise InputError(Problem("python", python, rule, hint))


@contextmanager
def temporary_folder(texts: Mapping[str, str]) -> Iterator[tuple[Path, Path]]:
    """Provide a folder with the texts, and the folder of the scripts, while they are needed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        as_file(files("meshwright.frameworks.target_checks") / "scripts") as scripts,
    ):
        for name, text in texts.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield Path(folder), scripts


def run_json_script(command: Sequence[str]) -> dict[str, Any]:
    """Return a script's last line of JSON; frameworks print much before it. Raises MeasurementError."""
    said = run_program(command)
    for line in reversed(said.stdout.splitlines()):
        if line.startswith("{"):
            try:
                data = json.loads(line)
            except ValueError:
                continue
            if isinstance(data, dict):
                return data
    last = (said.stderr.strip().splitlines() or ["nothing"])[-1]
    raise MeasurementError(f"the target ended without a verdict; it said last: {last[:300]}")


def run_program(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end. Raises InputError where there is none, MeasurementError where it takes too long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    except OSError as error:
        rule = f"cannot be run: {error.strerror or error}"
        raise InputError(Problem("python", command[0], rule, "the path of a Python interpreter")) from error
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"the target did not answer in {LONGEST_S} s") from error
