"""The constants of the cost model by name: owner, unit, range and meaning of each.

``cost/data/constants.csv`` has those of everything, ``constants_by_owner.csv`` those that each kernel family, stack,
recipe of fp8 or tier has of its own. Names are those of ``cost/constant_values.py``.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Literal

from meshwright.cost.constant_values import ANY, HOST, TIER, parts_of_name
from meshwright.cost.constants import (
    RECIPE,
    constants,
    kernel_constant,
    kernel_families,
    kernels,
    recipe_costs,
)
from meshwright.stack.load import load_stack, stack_names

Owner = Literal["", "family", "stack", "fp8_recipe", "tier"]
SIGNS = {"family": ":", "stack": "/"}
"""The sign between the owner and the constant, for those that are written so."""


@dataclass(frozen=True, slots=True)
class Range:
    """Values that a constant may have: from ``least`` to ``most``, without ``least`` itself if it is ``above``."""

    least: float
    most: float
    above: bool

    @classmethod
    def parse(cls, text: str) -> "Range":
        """Read ``(0, 1]`` or ``[0, 1]``."""
        least, _, most = text.strip("([])").partition(", ")
        return cls(float(least), float(most), above=text.startswith("("))

    def holds(self, value: float) -> bool:
        """Return true if a value is in the range."""
        return (self.least < value if self.above else self.least <= value) and value <= self.most

    @property
    def text(self) -> str:
        """Return the range in words."""
        most = f"{self.most:g}"
        return f"above {self.least:g} and at most {most}" if self.above else f"from {self.least:g} to {most}"


@dataclass(frozen=True, slots=True)
class NamedConstant:
    """A constant by its own name, without the family or stack that has it."""

    name: str
    owner: Owner
    unit: str
    range: Range
    meaning: str


@cache
def named_constants() -> tuple[NamedConstant, ...]:
    """Return all constants; those of recipes once for each recipe, that of tiers with the beginning of its name."""
    return tuple(_read("constants.csv", "")) + tuple(_owned())


def _owned() -> Iterator[NamedConstant]:
    for one in _read("constants_by_owner.csv", "family"):
        if one.owner == "fp8_recipe":
            yield from (replace(one, name=f"{RECIPE}{recipe}.{one.name}") for recipe in recipe_costs())
        else:
            yield replace(one, name=TIER) if one.owner == "tier" else one


def _read(table: str, owner: Owner) -> Iterator[NamedConstant]:
    with (files("meshwright.cost") / "data" / table).open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            whose: Owner = row.get("owner", owner)  # type: ignore[assignment]
            yield NamedConstant(row["name"], whose, row["unit"], Range.parse(row["range"]), row["meaning"])


def constant_named(name: str) -> NamedConstant | None:
    """Return the constant of a name, whoever its owner is; None where there is none.

    Constants of kernel families, and ``host_s_per_layer``, need no owner: cluster files have them so.
    """
    _, sign, field = parts_of_name(name)
    for one in named_constants():
        if one.owner == "tier":
            if not sign and field.startswith(TIER) and field != TIER:
                return one
        elif one.name == field and (
            sign == SIGNS.get(one.owner, "") or (not sign and (one.owner == "family" or field == HOST))
        ):
            return one
    return None


def owners(kind: Owner) -> tuple[str, ...]:
    """Return the names of all kernel families or stacks."""
    return {"family": kernel_families, "stack": stack_names}[kind]() if kind in SIGNS else ()


@cache
def full_names() -> tuple[str, ...]:
    """Return all names, those of families and stacks with each owner and with ``*``."""
    found = []
    for one in named_constants():
        sign = SIGNS.get(one.owner, "")
        whose = [ANY, *owners(one.owner)] if sign else [""]
        found += [f"{owner}{sign}{one.name}{'TIER' if one.owner == 'tier' else ''}" for owner in whose]
    return tuple(found)


def usual_value(name: str) -> float:
    """Return the value that a constant has without a calibration; ``*`` and no owner stand for the generic one."""
    one, (owner, _, field) = constant_named(name), parts_of_name(name)
    assert one is not None, name
    if one.owner == "tier":
        return 1.0
    if one.owner == "fp8_recipe":
        recipe, _, key = field.removeprefix(RECIPE).partition(".")
        return float(getattr(recipe_costs()[recipe], key))
    if one.owner == "stack":
        return float(getattr(load_stack(owner if owner in stack_names() else "generic"), field))
    if one.owner == "family":
        return kernel_constant(kernels(owner if owner in kernel_families() else "generic"), field)
    return constants()[field]
