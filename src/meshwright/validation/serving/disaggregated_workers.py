"""Parse the column ``disagg``: workers of prefill, a bar, and workers of decode.

Two forms: ``N workers x tpT pp1 adpA moetpM epE bsB`` with N and B perhaps empty, and ``N prefill workers x TPT`` with
the degree perhaps absent. Where a number of workers is empty, one prefills and the other devices decode. Degrees that
the text leaves out are 1.
"""

import re
from dataclasses import dataclass

FORM = (
    r"(?P<count>[0-9]*) ?(?P<does>prefill |decode )?workers?"
    r"(?: x (?P<degrees>(?:[a-z]+[0-9]+ ?)+)(?P<batch>bs[0-9]*)?)?"
)
SIDE = re.compile(FORM, re.I)
DEGREE = re.compile(r"([a-z]+)([0-9]+)", re.I)
DEGREES = ("tp", "pp", "adp", "moetp", "ep")
MOST = 2**14


@dataclass(frozen=True, slots=True)
class Side:
    """The workers of one pool as the text has them; None where it says nothing."""

    workers: int | None
    tp: int
    pp: int
    attention_dp: int
    etp: int | None
    ep: int | None
    batch: int | None

    @property
    def devices(self) -> int:
        """Devices of one worker."""
        return self.tp * self.pp * self.attention_dp


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """Workers that prefill, and workers that decode."""

    prefill: Side
    decode: Side


def disaggregated(text: str) -> Disaggregated:
    """Return both sides of a text. Raises ValueError for another form."""
    sides = text.split("|")
    if len(sides) != 2:
        raise ValueError("must be prefill|decode")
    prefill, decode = (
        _side(side.strip(), does) for side, does in zip(sides, ("prefill", "decode"), strict=True)
    )
    return Disaggregated(prefill, decode)


def _side(text: str, does: str) -> Side:
    found = SIDE.fullmatch(text)
    if found is None or (found["does"] or does).strip().lower() != does:
        raise ValueError(
            "must be N workers x tpT pp1 adpA moetpM epE bsB, or N prefill workers x TPT, on each side"
        )
    degrees = {name.lower(): int(number) for name, number in DEGREE.findall(found["degrees"] or "")}
    unknown = sorted(set(degrees) - {*DEGREES, "bs"})
    if unknown:
        raise ValueError(f"has unknown degrees: {', '.join(unknown)}")
    batch = degrees.pop("bs", None)
    workers = int(found["count"]) if found["count"] else None
    if not all(1 <= number <= MOST for number in (*degrees.values(), 1 if workers is None else workers)):
        raise ValueError(f"must have numbers from 1 to {MOST}")
    return Side(
        workers=workers,
        tp=degrees.get("tp", 1),
        pp=degrees.get("pp", 1),
        attention_dp=degrees.get("adp", 1),
        etp=degrees.get("moetp"),
        ep=degrees.get("ep"),
        batch=batch,
    )
