"""Constants of the cost model that the user gives by name, in a file (``--constants FILE``) or as a mapping.

    # my-constants.yaml
    nic_efficiency: 0.74
    h100:gemm_efficiency: 0.71
    megatron-core/host_s_per_layer: 0.0002
    oversubscription.pod: 2

Given constants have no spread. They go before the cluster's own calibration. Of two names of one constant the one
with the narrower owner counts: ``h100:gemm_efficiency`` before ``*:gemm_efficiency``. Those of other devices, stacks
and tiers change nothing, so that one file serves several clusters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

from meshwright.cluster.catalog import is_device
from meshwright.cost.constant_values import ANY, is_used, narrowness, parts_of_name, with_values
from meshwright.cost.constants import kernels
from meshwright.cost.named_constants import constant_named, full_names, owners, usual_value
from meshwright.errors import InputError, Problem, nearest
from meshwright.plans.files.yaml_text import read_file, read_mapping
from meshwright.plans.setting import GivenConstants, Setting

FIELD = "constants"
EXAMPLE = "e.g. nic_efficiency: 0.74"
AS_MAPPING = "the mapping of constants"
"""The source of constants that are given in Python."""
Given = str | Path | Mapping[str, float]
NO_CONSTANTS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants by name, those with narrower owners last, and where they were given."""

    values: Mapping[str, float] = field(default_factory=lambda: NO_CONSTANTS)
    source: str = ""

    def on(self, setting: Setting) -> Setting:
        """Return the setting with its constants."""
        if not self.values:
            return setting
        used = {name: value for name, value in self.values.items() if is_used(name, setting)}
        own = {parts_of_name(name)[2]: (name, value) for name, value in used.items()}
        unused = tuple(name for name in self.values if name not in used)
        given = GivenConstants(self.source, tuple(own.values()), unused)
        return replace(with_values(setting, used, f"given in {self.source}"), given=given)


def read_constants(given: Given | None, own: Iterable[str] | None = None) -> Constants:
    """Return the constants of a file (YAML or JSON) or mapping. Raise InputError with all problems.

    ``own`` are the stacks of the question, which need not be known ones; None: their names are not known.
    """
    if given is None:
        return Constants()
    if isinstance(given, Mapping):
        data, source = dict[str, Any](given), AS_MAPPING
    else:
        text = read_file(given, FIELD, f"a file of names and values, {EXAMPLE}")
        data, source = _read(text, str(given)), str(given)
    stacks = None if own is None else sorted({*owners("stack"), *own})
    problems = [problem for name, value in data.items() for problem in _problems(str(name), value, stacks)]
    if problems:
        raise InputError(problems)
    names = sorted(data, key=lambda name: narrowness(str(name)))
    return Constants({str(name): float(data[name]) for name in names}, source)


def with_constants(setting: Setting, given: Given | None) -> Setting:
    """Return a setting with constants that were given. Raise InputError with all problems."""
    return read_constants(given, [setting.stack.name]).on(setting)


def _read(text: str, source: str) -> dict[str, Any]:
    """Return the names and values of a file's text. Raise InputError that names the file."""
    try:
        return read_mapping(text, FIELD, EXAMPLE, finite=False)
    except InputError as error:
        rules = [replace(problem, rule=f"{problem.rule}, in {source}") for problem in error.problems]
        raise InputError(rules) from None


def _problems(name: str, value: object, stacks: Sequence[str] | None) -> Iterator[Problem]:
    """Yield the problems of one constant. ``stacks``: all that exist; None: a stack may have any name."""
    where, known = f"{FIELD}.{name}", constant_named(name)
    if known is None:
        yield Problem(where, value, "is no constant of the cost model", nearest(name, full_names()))
        return
    owner, sign, number = parts_of_name(name)
    if sign == ":" and owner not in (ANY, *owners("family")):
        yield Problem(where, value, f"no family of kernels is named {owner}", _family(owner, number))
        return
    if sign == "/" and stacks is not None and owner not in (ANY, *stacks):
        near = nearest(name, [f"{stack}/{number}" for stack in stacks])
        yield Problem(where, value, f"no stack is named {owner}", near)
        return
    usual = f"{name}: {usual_value(name):.4g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield Problem(where, value, f"must be a number, {known.range.text} ({known.unit})", usual)
    elif not isfinite(value) or not known.range.holds(value):
        yield Problem(where, value, f"must be {known.range.text} ({known.unit})", usual)


def _family(owner: str, number: str) -> str:
    """Suggest a family of kernels in place of one that there is not: of a device the one that it uses."""
    if is_device(owner):
        return f"{kernels(owner).family}:{number}"
    return nearest(f"{owner}:{number}", [f"{family}:{number}" for family in owners("family")])
