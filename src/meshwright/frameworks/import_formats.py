"""Recognise the framework of a file by its content. ``FORMATS`` lists the importers by name."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from meshwright.errors import InputError, Problem, nearest
from meshwright.frameworks.accelerate.importing.importer import import_accelerate
from meshwright.frameworks.deepspeed.importing.importer import import_deepspeed
from meshwright.frameworks.importing.imported_file import ALONE, ImportedFile, Importer, OutsideFacts
from meshwright.frameworks.megatron.importing.importer import import_megatron
from meshwright.frameworks.megatron_bridge.importing.importer import import_bridge
from meshwright.frameworks.torchtitan.importing.importer import import_torchtitan
from meshwright.frameworks.torchtitan.importing.job_file import MARK as JOB_FILE
from meshwright.frameworks.torchtitan.importing.job_file import is_job_file


class Format(NamedTuple):
    """An importer, what in a text betrays its format, and whether a text is a shell script to it."""

    read: Importer
    mark: str
    is_script: Callable[[str], bool] = lambda text: False


FORMATS: Mapping[str, Format] = {
    "torchtitan": Format(
        import_torchtitan,
        rf"--parallelism[.]|--training[.]|-m torchtitan|--job[.]config|{JOB_FILE}",
        is_script=lambda text: not is_job_file(text),
    ),
    "bridge": Format(
        import_bridge,
        r"(?m)^model:\s*$[\s\S]*^\s+tensor_model_parallel_size:|\bmodel\.[a-z_]*parallel_size="
        r"|_pretrain_\w*config",
        is_script=lambda text: True,
    ),
    "deepspeed": Format(
        import_deepspeed, r'"(zero_optimization|train_micro_batch_size_per_gpu|train_batch_size)"\s*:'
    ),
    "accelerate": Format(
        import_accelerate,
        r"(?m)^\s*(distributed_type|compute_environment|parallelism_config|fsdp_config)\s*:",
    ),
    "megatron": Format(
        import_megatron,
        r"-?-?tensor[-_]model[-_]parallel[-_]size|pretrain_gpt|--micro-batch-size|--num-layers\b",
        is_script=lambda text: True,
    ),
}
"""The most telling marks first."""
PLAN = re.compile(r"(?m)^plan\s*:\s*[0-9]+\s*(#.*)?$|\A\s*\{\s*\"plan\"\s*:\s*[0-9]+\s*[,}]")
"""A plan in YAML, or in JSON with `plan` first."""


def read_framework_file(
    text: str, source: str | None = None, variables: Iterable[str] = (), outside: OutsideFacts = ALONE
) -> ImportedFile:
    """Read a file; ``source`` names its format, which is recognised by content otherwise. Raises InputError.

    ``variables`` are ``NAME=value`` of the shell that a script would find; ``outside`` are facts besides the text.
    """
    if source is not None and source not in FORMATS:
        raise InputError(Problem("from", source, "is no format that can be read", nearest(source, FORMATS)))
    if source is None and is_plan(text):
        raise InputError(Problem("file", text[:60], "is a plan already", "meshwright check, or predict"))
    name = source or detected(text)
    assignments = [_assignment(variable) for variable in variables]
    if assignments and not FORMATS[name].is_script(text):
        rule = f"this file of {name} has no shell variables"
        raise InputError(Problem("variable", assignments[0], rule, "leave it out"))
    return FORMATS[name].read("".join(f"{assignment};" for assignment in assignments) + text, outside)


def _assignment(variable: str) -> str:
    name, equals, value = variable.partition("=")
    if not equals or not (name.isidentifier() or name.isdecimal()) or not value.isprintable():
        raise InputError(Problem("variable", variable, "must read NAME=value", "NNODES=8"))
    return f"readonly {name}={shlex.quote(value)}"


def is_plan(text: str) -> bool:
    """Return true if the text is a Meshwright plan."""
    return PLAN.search(text) is not None


def detected(text: str) -> str:
    """Return the name of the format. Raises InputError if it cannot be recognised."""
    for name, known_by in FORMATS.items():
        if re.search(known_by.mark, text):
            return name
    known = ", ".join(FORMATS)
    rule = f"is neither a plan nor a file of {known}"
    raise InputError(Problem("file", text[:60], rule, f"--from with one of {known}"))
