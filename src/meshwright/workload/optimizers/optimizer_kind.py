"""The type of an optimizer's entry: its options with their rules, and the moments that it keeps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Value = str | float | bool | tuple[float, ...]
Options = Mapping[str, Value]
FIRST, SECOND = "first_moment", "second_moment"
"""Keys of ``dtypes`` for the moments."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its default, the rule for its values in words and as a test, and an example of a legal value.

    A default of None is the stack's.
    """

    default: Value | None
    rule: str
    legal: Callable[[object], bool]
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerKind:
    """An optimizer: its options, and the moments of each element for given options.

    ``of_matrices``: so it does of the matrices of hidden layers, which it needs whole; another optimizer takes the
    rest. ``forward_only``: it estimates gradients from two forward passes of every sequence; there is no backward pass.
    """

    options: Mapping[str, Option]
    moments: Callable[[Options], tuple[str, ...]]
    of_matrices: bool = False
    forward_only: bool = False


def is_number(value: object) -> bool:
    """Return true for a number that is no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def fraction(default: float) -> Option:
    """Return an option from 0 to below 1, such as a momentum."""
    return Option(
        default,
        "must be from 0 to below 1",
        lambda value: isinstance(value, int | float) and is_number(value) and 0 <= value < 1,
        f"e.g. {default:g}",
    )


def not_negative(default: float) -> Option:
    """Return an option that is 0 or more."""
    return Option(
        default,
        "must be 0 or more",
        lambda value: isinstance(value, int | float) and is_number(value) and value >= 0,
        f"e.g. {default:g}",
    )


def betas(first: float, second: float) -> Option:
    """Return the option of two decay rates."""
    return Option(
        (first, second),
        "must be two numbers from 0 to below 1",
        lambda value: (
            isinstance(value, tuple) and len(value) == 2 and all(is_number(b) and 0 <= b < 1 for b in value)
        ),
        f"e.g. [{first:g}, {second:g}]",
    )


def switch(default: bool) -> Option:
    """Return an option that is on or off."""
    return Option(default, "must be true or false", lambda value: isinstance(value, bool), "true, or false")


def one_name(default: str | None, *names: str) -> Option:
    """Return an option that is one of some names."""
    rule = "must be one of " + ", ".join(names)
    return Option(default, rule, lambda value: value in names, default or names[0])
