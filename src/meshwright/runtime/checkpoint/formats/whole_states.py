"""Hold the states of a model as whole tensors that are read one by one: every format is converted through them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import torch

from meshwright.errors import InputError, Problem

State = tuple[str, str]
"""A state (``parameter``, ``first_moment``, ``second_moment``, ``buffer``) and the name of a tensor."""

SHOWN = 4
"""Names that an error message lists."""


@dataclass(frozen=True, slots=True)
class WholeTensor:
    """A tensor that ``read`` returns. Raises InputError for damaged files."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeStates:
    """The states of a checkpoint.

    ``plan``, ``model`` and ``facts`` are those of a manifest, empty where the source does not tell them; ``precision``
    is None then. ``left_out`` names states of the source that other formats do not have. ``finish`` checks what no
    tensor needed.
    """

    tensors: Mapping[State, WholeTensor]
    step: int
    precision: str | None = None
    plan: Mapping[str, object] = field(default_factory=dict)
    model: Mapping[str, object] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    finish: Callable[[], None] = lambda: None


def check_shapes(states: WholeStates, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise InputError where tensors of a source are not those of a model."""
    shapes = {name: of.shape for (_, name), of in states.tensors.items()}
    differing = {
        "is missing in the source": expected.keys() - shapes.keys(),
        "is no tensor of the model": shapes.keys() - expected.keys(),
        "has another shape in the source": {
            name for name, shape in shapes.items() if name in expected and shape != expected[name]
        },
    }
    problems = [
        Problem("model", _some(names), rule, "--model of the source")
        for rule, names in differing.items()
        if names
    ]
    if problems:
        raise InputError(problems)


def _some(names: Collection[str]) -> str:
    """Return the first names in order, and how many follow."""
    first = ", ".join(sorted(names)[:SHOWN])
    return first if len(names) <= SHOWN else f"{first} and {len(names) - SHOWN} more"
