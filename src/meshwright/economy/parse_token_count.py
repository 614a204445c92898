"""Numbers of tokens as people write them: ``15T``, ``300B``, ``1.5e12``."""

import re

from meshwright.errors import InputError, Problem
from meshwright.units import GIGA, MEGA, TERA

SIZES = {"": 1.0, "K": 1e3, "M": MEGA, "B": GIGA, "T": TERA}
MOST = 1e18
_FORM = re.compile(r"(?P<number>\d[\d_,]*(?:\.\d+)?(?:e\+?\d{1,2})?)\s*(?P<size>[KMBT]?)", re.IGNORECASE)


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
