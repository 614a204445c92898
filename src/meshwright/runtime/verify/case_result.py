"""The result of a verification case: errors against the reference, and differences in traffic and copies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

from meshwright.runtime.verify.expected_traffic import EntryTraffic
from meshwright.runtime.verify.tensor_errors import Error, worst

BOUND = 1e-9
"""Largest error that counts as equal; fp64 leaves some 1e-15 in gradients and 1e-13 after three steps."""
DOUBTFUL = 1e-12
"""Errors above this are reported as doubtful."""
NONE = Error(0.0, "")
UNITS = 2.0
"""Largest error of a rounded state, in units of the last place of its type."""


@dataclass(frozen=True)
class StateOutcome:
    """Errors of a run with states in a plan's own types; ``failure`` if a rank failed.

    ``loss`` and ``gradient`` are those of what passes compute, relative; ``state`` is that of what is stored, in units
    of the last place.
    """

    loss: Error = NONE
    gradient: Error = NONE
    state: Error = NONE
    failure: str = ""

    @property
    def equal(self) -> bool:
        """True if all checks passed."""
        computed = max(self.loss.value, self.gradient.value) <= BOUND
        return not self.failure and computed and self.state.value <= UNITS

    def to_json(self) -> dict[str, object]:
        """Return the outcome as JSON-ready data; a number that is not finite is None."""
        return {
            "equal": self.equal,
            "loss_error": _number(self.loss),
            "gradient_error": _number(self.gradient),
            "state_error_in_last_places": _number(self.state),
            "state": self.state.of,
            "failure": self.failure,
        }


@dataclass(frozen=True)
class Outcome:
    """The worst error of each quantity over all steps, and differences as text; ``failure`` if a rank failed.

    ``norms`` are the reference's norms of all gradients, step by step. ``magnified``: by how much the plan's arithmetic
    magnifies rounding, as a difference of two losses does. ``states`` is the outcome with states in the
    types that the plan writes; None where it writes none. ``exchanges`` are those of ``synchronise``, by entry, and
    ``from_exact`` is the largest difference of parameters from those of the plan without entries.
    """

    loss: Error = NONE
    gradient: Error = NONE
    norm: Error = NONE
    parameter: Error = NONE
    traffic: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    failure: str = ""
    norms: tuple[float, ...] = ()
    magnified: float = 1.0
    states: StateOutcome | None = None
    exchanges: tuple[EntryTraffic, ...] = ()
    from_exact: Error = NONE

    @property
    def worst(self) -> Error:
        """The worst of all errors; infinite if the case failed."""
        if self.failure:
            return Error(inf, "")
        return worst((self.loss, self.gradient, self.norm, self.parameter))

    @property
    def caught_by(self) -> tuple[str, ...]:
        """The checks that failed."""
        checks = {
            "named error": bool(self.failure),
            "loss": self.loss.value > BOUND,
            "gradients": self.gradient.value > BOUND,
            "gradient norm": self.norm.value > BOUND,
            "parameters": self.parameter.value > BOUND,
            "bytes": bool(self.traffic),
            "copies": bool(self.copies),
            "rounded states": self.states is not None and not self.states.equal,
        }
        return tuple(name for name, unequal in checks.items() if unequal)

    @property
    def equal(self) -> bool:
        """True if all checks passed."""
        return not self.caught_by

    @property
    def doubtful(self) -> bool:
        """True if the case passed with more error than rounding explains."""
        return self.equal and self.worst.value > self.magnified * DOUBTFUL

    def to_json(self) -> dict[str, object]:
        """Return the outcome as JSON-ready data; a number that is not finite is None."""
        return {
            "equal": self.equal,
            "max_relative_error": _number(self.worst),
            "parameter": self.worst.of,
            "bound": BOUND,
            "doubtful": self.doubtful,
            "loss_error": _number(self.loss),
            "gradient_error": _number(self.gradient),
            "gradient_of": self.gradient.of,
            "norm_error": _number(self.norm),
            "parameter_error": _number(self.parameter),
            "parameter_of": self.parameter.of,
            "differing_exchanges": list(self.traffic),
            "differing_copies": list(self.copies),
            "failure": self.failure,
            "states": None if self.states is None else self.states.to_json(),
        }


def together(islands: Sequence[Outcome], exchanges: Sequence[EntryTraffic]) -> Outcome:
    """Return the outcome of all islands: the worst errors, and all differences."""
    differences = [text for entry in exchanges for text in entry.differences]
    return replace(
        islands[0],
        loss=worst(one.loss for one in islands),
        gradient=worst(one.gradient for one in islands),
        norm=worst(one.norm for one in islands),
        parameter=worst(one.parameter for one in islands),
        traffic=(*(text for one in islands for text in one.traffic), *differences),
        copies=tuple(dict.fromkeys(name for one in islands for name in one.copies)),
        exchanges=tuple(exchanges),
    )


def _number(error: Error) -> float | None:
    return error.value if isfinite(error.value) else None
