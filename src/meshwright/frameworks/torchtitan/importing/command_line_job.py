"""Read a torchtitan 0.3.0 command line, in a launch script or by itself.

Source: torchtitan 0.3.0, ``config/job_config.py`` defaults. tyro takes hyphens for underscores. What the configuration
function sets in Python and the line does not override (degrees, batch, recomputation) stands in
``frameworks/torchtitan/torchtitan-0.3.0-defaults.csv``, read from the release's own functions; of the three in 8 bit,
which start on newer devices only, from their siblings and the repository of August 2026.
"""

import csv
from collections.abc import Mapping
from importlib.resources import files

from meshwright.errors import InputError, Problem, nearest
from meshwright.frameworks.importing.command_line import (
    GivenOption,
    conditional_variables,
    given_options,
    last_of_each,
    raise_on_unknown_options,
    repeated,
    unknown_option_problems,
)
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.importing.shell_script import Script, Word, read_script
from meshwright.frameworks.torchtitan import options as names
from meshwright.frameworks.torchtitan.importing.job import Job, recomputation
from meshwright.stack.load import load_stack
from meshwright.stack.stack_model import StackModel

DEFAULTS = "torchtitan-0.3.0-defaults.csv"
JOB_FILE = "--job.config_file"
OWN_CHECKPOINT = "--activation_checkpoint"
"""The column of the defaults that is a subcommand on the line."""


def read_command_line(text: str) -> Job:
    """Read a torchtitan command line."""
    script = read_script(text)
    options = [_normal(option) for option in given_options(script.words)]
    kept = last_of_each(options)
    if not any(name.startswith((names.P, names.T)) or name in (names.MODULE, JOB_FILE) for name in kept):
        rule = "has none of torchtitan's options"
        raise InputError(
            Problem("file", " ".join(list(kept)[:5]), rule, f"{names.P}tensor_parallel_degree 8")
        )
    if JOB_FILE in kept:
        rule = "names a job file of a release before 0.3: the file says the plan, and it is read by itself"
        hint = f"meshwright check {' '.join(kept[JOB_FILE].values)}"
        raise InputError(Problem(JOB_FILE, " ".join(kept[JOB_FILE].values), rule, hint))
    defaults = _defaults(kept)
    said, kept = kept, {**defaults, **kept}
    problems = list(
        unknown_option_problems(said, names.TABLE.names, names.TABLE.other_names, names.TABLE.full_name)
    )
    raise_on_unknown_options(problems)
    problems += [*repeated(options, names.NUMBERS), *conditional_variables(script)]
    shipped = _shipped(kept, problems)
    facts = _model_facts(shipped) | _devices(kept, script) | _precision(shipped)
    facts |= _recompute(script.words, kept, problems)
    release, complete = names.TABLE.full_name, bool(defaults)
    return Job(release=release, options=kept, facts=facts, problems=problems, complete=complete)


def _normal(option: GivenOption) -> GivenOption:
    """Return the option with underscores, without the subcommand words that follow it."""
    name = "--" + option.name[2:].replace("-", "_")
    values = tuple(value for value in option.values if not value.startswith("activation-checkpoint:"))
    return GivenOption(name, values, option.line, option.known, option.conditional)


def _shipped(options: Mapping[str, GivenOption], problems: list[Problem]) -> StackModel | None:
    given = options.get(names.CONFIG)
    if given is None or not given.values:
        return None
    models = {model.config: model for model in load_stack("torchtitan").models or ()}
    if given.values[0] not in models:
        rule = "is none of the configurations that we know by shape"
        problems.append(
            Problem(names.CONFIG, given.values[0], rule, nearest(given.values[0], models), "warning")
        )
    return models.get(given.values[0])


def _model_facts(shipped: StackModel | None) -> dict[str, Fact]:
    """Return the shape of the configuration's model as fields of ``Architecture``."""
    if shipped is None:
        return {}
    names = ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "experts")
    words = f"--config {shipped.config}"
    return {f"model.{n}": Fact(value, words) for n in names if (value := getattr(shipped, n)) is not None}


def _devices(options: Mapping[str, GivenOption], script: Script) -> dict[str, Fact]:
    nodes = next((options[n] for n in ("--nnodes", "--nodes") if n in options), None)
    each = options.get("--nproc_per_node")
    if nodes and each and _count(nodes) and _count(each):
        return {"devices": Fact(_count(nodes) * _count(each), f"{nodes.words} {each.words}")}
    alone = script.variables.get("NGPU", "")
    return {"devices": Fact(int(alone[:9]), f"NGPU={alone}")} if alone.isdecimal() and nodes is None else {}


def _count(option: GivenOption) -> int:
    text = option.values[0] if option.values else ""
    return int(text[:9]) if text.isdecimal() else 0


def _precision(shipped: StackModel | None) -> dict[str, Fact]:
    """Return the precision of the configuration: bf16 where it may be that."""
    if shipped is None:
        return {}
    quantised = not {"bf16", "fp32"} & set(shipped.precisions)
    precision = shipped.precisions[0] if quantised else "bf16"
    return {names.PRECISION: Fact(precision, f"--config {shipped.config}")}


def _defaults(options: Mapping[str, GivenOption]) -> dict[str, GivenOption]:
    """Return the options that the line's configuration function sets by itself."""
    config = options.get(names.CONFIG)
    if config is None or not config.values:
        return {}
    table = files("meshwright.frameworks.torchtitan").joinpath(DEFAULTS).read_text(encoding="utf-8")
    rows = {row.pop("config"): row for row in csv.DictReader(table.splitlines())}
    found = rows.get(config.values[0], {})
    set_ = ((f"--{name}", value) for name, value in found.items() if value)
    return {name: GivenOption(name, (value,), config.line) for name, value in set_}


def _recompute(
    words: tuple[Word, ...], options: Mapping[str, GivenOption], problems: list[Problem]
) -> dict[str, Fact]:
    """Read the recomputation subcommand; without one the configuration's own choice holds."""
    chosen = [word.text for word in words if word.text.startswith("activation-checkpoint:")]
    if not chosen:
        own = options.get(OWN_CHECKPOINT)
        return {"recompute": Fact(own.values[0], options[names.CONFIG].words)} if own else {}
    return recomputation("activation-checkpoint", chosen[-1].partition(":")[2], chosen[-1], problems)
