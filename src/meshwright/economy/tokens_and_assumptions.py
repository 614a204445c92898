"""The number of tokens of a whole training, if given, and the assumptions on prices and failures."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from meshwright.economy.assumptions import Assumptions, parse_assumptions
from meshwright.economy.parse_token_count import parse_tokens
from meshwright.errors import InputError, Problem, attempted


@dataclass(frozen=True, slots=True)
class TrainingTerms:
    """``tokens`` of the whole training, None where nobody asks; and the assumptions."""

    tokens: int | None = None
    assumed: Assumptions = field(default_factory=Assumptions)


def parse_terms(tokens: str | int | None = None, assume: Iterable[str] = ()) -> TrainingTerms:
    """``15T`` and ``restart_s=300`` as terms. Raises InputError with all problems."""
    problems: list[Problem] = []
    count = None if tokens is None else attempted(lambda: parse_tokens(str(tokens)), problems)
    assumed = attempted(lambda: parse_assumptions(assume), problems)
    if problems or assumed is None:
        raise InputError(problems)
    return TrainingTerms(count, assumed)
