"""Read a job file (TOML) of torchtitan 0.1.0 to 0.2.2 as a job with today's options.

Source: the classes of the two wheels (``release_keys.py``), and what reads them, in
``distributed/activation_checkpoint.py``, ``distributed/pipeline.py`` and ``components/quantization``. Sizes of models
stand in ``torchtitan-0.2.2-models.csv``, read from ``models/*/__init__.py``. A file does not say its release: it is the
one that knows most of its keys.
"""

import csv
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from meshwright.errors import InputError, Problem, nearest
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.config_values import TRUTHS
from meshwright.frameworks.importing.imported_file import Fact, UnmappedOption
from meshwright.frameworks.importing.toml_text import read_toml
from meshwright.frameworks.torchtitan import options as names
from meshwright.frameworks.torchtitan.importing.job import Job, recomputation
from meshwright.frameworks.torchtitan.importing.job_precision import quantization
from meshwright.frameworks.torchtitan.importing.release_keys import (
    DEFAULT,
    Given,
    by_newest_name,
    likely_release,
    unknown_options,
    wrong_sections,
)
from meshwright.frameworks.torchtitan.importing.split_points import stage_modules
from meshwright.frameworks.torchtitan.importing.unread_options import lost_options

SECTIONS = (
    "parallelism|training|activation_checkpoint|model|job|optimizer|lr_scheduler|checkpoint|float8|quantize"
    "|compile"
)
MARK = (
    rf"(?m:^[ \t]*(?:\[[ \t]*(?:{SECTIONS})[ \t]*[.\]]"
    rf"|(?:{SECTIONS})(?:\.\w+)+[ \t]*=|(?:{SECTIONS})[ \t]*=[ \t]*\{{))"
)
"""What betrays a job file: the header of a section, a dotted key, or a section in braces."""
FLAVORS = "torchtitan-0.2.2-models.csv"
MODEL, FLAVOR = "model.name", "model.flavor"
MODE, OPTION = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
SPLIT_POINTS = "parallelism.pipeline_parallel_split_points"
DEFAULTS: Mapping[str, Any] = {
    "training.local_batch_size": 8,
    "training.seq_len": 2048,
    "training.mixed_precision_param": "bfloat16",
    MODEL: "llama3",
    MODE: "selective",
    OPTION: "2",
}
"""Values of both releases that today's torchtitan does not have as its own."""
USUAL: Mapping[str, Any] = {"parallelism.context_parallel_load_balancer": "headtail"}
"""Defaults that change nothing where a file states them."""


def is_job_file(text: str) -> bool:
    """Return true if the text is TOML with torchtitan's sections."""
    return re.search(MARK, text) is not None


def read_job_file(text: str) -> Job:
    """Read a job file. Raises InputError if it cannot be parsed, or its sections are none."""
    data = read_toml(text, "file")
    wrong = [*wrong_sections(data)]
    if wrong:
        raise InputError(wrong)
    release = f"torchtitan {likely_release(data)}"
    rule = f"is a job file of {release}; today's {names.TABLE.full_name} is priced"
    hint = "meshwright export --to torchtitan writes today's options"
    problems = [Problem("file", release, rule, hint, "warning")]
    stated = by_newest_name(data, problems)
    values = {name: Given(value, name, stated=False) for name, value in DEFAULTS.items()} | stated
    recompute, layers = _recomputation(values, problems)
    precision, lost = quantization(values)
    facts = _model(values, problems) | recompute | precision
    options = _options(values, problems) | stage_modules(values.get(SPLIT_POINTS), facts, problems)
    return Job(
        release=release,
        options=options,
        facts=facts,
        problems=problems,
        unread=(*lost_options(values), *layers, *lost, *unknown_options(data)),
        labels={f"--{name}": given.key for name, given in values.items()},
    )


def _model(values: Mapping[str, Given], problems: list[Problem]) -> dict[str, Fact]:
    """Return the sizes of the model: variants such as ``simple_fsdp.llama3`` have those of the model they name."""
    if FLAVOR not in values:
        return {}
    table = files("meshwright.frameworks.torchtitan").joinpath(FLAVORS).read_text(encoding="utf-8")
    rows = [*csv.DictReader(table.splitlines())]
    name, flavor = values[MODEL].text, values[FLAVOR]
    own = [row for row in rows if row["name"] in name]
    row = next((row for row in own if row["flavor"] == flavor.text), None)
    if row is None:
        rule = f"is no flavor of {name} that we know by shape"
        hint = nearest(flavor.text, [row["flavor"] for row in own]) or "--model"
        problems.append(Problem(flavor.key, flavor.text[:80], rule, hint, "warning"))
        return {}
    sizes = {f"model.{size}": int(text) for size, text in [*row.items()][2:] if text}
    shape = {"shape.gated": True, "shape.rmsnorm": True} if row["name"] == "llama3" else {}
    return {path: Fact(value, flavor.words) for path, value in (sizes | shape).items()}


def _recomputation(
    values: Mapping[str, Given], problems: list[Problem]
) -> tuple[dict[str, Fact], list[UnmappedOption]]:
    """Read the recomputation, and what is lost of it: selective by layers is selective by operators today."""
    mode, option = values[MODE], values[OPTION]
    if mode.value != "selective":
        return recomputation(mode.key, mode.text.replace("_", "-"), mode.words, problems), []
    each = option.text
    if each != "op" and not each.isdecimal():
        problems.append(Problem(option.key, each[:80], "must be op, or n for every n-th layer", "op"))
    whole = each.isdecimal() and int(each[:9]) < 2
    name, words = "full" if whole else "selective", f"{mode.words}, {option.words}"
    found = recomputation(mode.key, name, words, problems)
    why = "this release recomputes every n-th layer whole; today's choice by operator is priced"
    lost = [UnmappedOption(option.key, each[:80], why)] if each != "op" and not whole else []
    return found, lost


def _options(values: Mapping[str, Given], problems: list[Problem]) -> dict[str, GivenOption]:
    """Return the values whose keys are options today, flags that are off and empty values left out."""
    found = {}
    for name, given in values.items():
        option = f"--{name}"
        if option not in names.TABLE.names or given.value in ("", []) or given.value == USUAL.get(name):
            continue
        if not _is_flag(option):
            found[option] = GivenOption(option, _words(given), 0)
        elif _truth(given, problems):
            found[option] = GivenOption(option, (), 0)
    return found


def _is_flag(option: str) -> bool:
    """Return true if the option is on or off: tyro has a second one that turns it off."""
    section, _, name = option.rpartition(".")
    return f"{section}.no_{name}" in names.TABLE.names


def _truth(given: Given, problems: list[Problem]) -> bool:
    """Return whether a flag is on."""
    value = TRUTHS.get(given.text.lower())
    if value is None:
        problems.append(Problem(given.key, given.text[:80], "must be true or false", "false"))
    return bool(value)


def _words(given: Given) -> tuple[str, ...]:
    """Return a value as words of a command line: one for each item, commas between the items of an inner list."""
    if not isinstance(given.value, list):
        return (given.text,) if given.stated else (given.text, DEFAULT)
    return tuple(",".join(map(str, item)) if isinstance(item, list) else str(item) for item in given.value)
