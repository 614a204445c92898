"""The number of tokens of a whole training, if given, and the assumptions on prices and failures."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from meshwright.economy.assumptions import Assumptions, parse_assumptions
from meshwright.errors import InputError, Problem, attempted
from meshwright.units import GIGA, MEGA, TERA

SIZES = {"": 1.0, "K": 1e3, "M": MEGA, "B": GIGA, "T": TERA}
MOST = 1e18
_FORM = re.compile(r"(?P<number>\d[\d_,]*(?:\.\d+)?(?:e\+?\d{1,2})?)\s*(?P<size>[KMBT]?)", re.IGNORECASE)


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


def parse_tokens(text: str) -> int:
    """Parse a number of tokens. Raise InputError."""
    match = _FORM.fullmatch(text.strip())
    count = 0.0
    if match is not None:
        count = float(re.sub("[_,]", "", match["number"])) * SIZES[match["size"].upper()]
    if not 1 <= count <= MOST:
        rule = "must be a number of tokens from 1 to 10^18, with K, M, B or T for thousands to trillions"
        raise InputError(Problem("tokens", text, rule, "--tokens 15T"))
    return round(count)
