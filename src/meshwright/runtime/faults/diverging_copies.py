"""Name the ranks whose copy of a state differs from those of others. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.runtime.faults.fault import Fault

SHOWN = 2
"""Differing parameters that are named."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Fingerprints by step of one state on each rank that holds a copy; and of its parameters now, by name."""

    behind: Mapping[int, Mapping[int, int]]
    by_name: Mapping[int, Mapping[str, int]]


def diverging(copies: Copies, equal_step: int = -1) -> list[Fault]:
    """Return a fault for each rank whose copy differs from that of most; for every rank if there is no majority.

    A fault's step is the first one that it may have affected: it follows the last one behind which the rank's
    fingerprint was equal to that of most, or of any. All copies were equal behind ``equal_step``.
    """
    ranks = sorted(copies.behind)
    last = {rank: behind[max(behind)] for rank, behind in copies.behind.items()}
    (value, count), *_ = Counter(last.values()).most_common()
    majority = [rank for rank in ranks if last[rank] == value] if count > len(ranks) / 2 else []
    found = []
    for rank in ranks:
        if rank in majority:
            continue
        others = majority or [other for other in ranks if last[other] != last[rank]]
        steps = sorted(set(copies.behind[rank]).intersection(*(copies.behind[other] for other in others)))
        differs = [s for s in steps if any(copies.behind[o][s] != copies.behind[rank][s] for o in others)]
        step = _begin_of_last_run(differs, steps, equal_step)
        found.append(
            Fault(kind="diverge", rank=rank, step=step, evidence=_evidence(copies, rank, others, step))
        )
    return found


def _begin_of_last_run(differs: Sequence[int], steps: Sequence[int], equal_step: int) -> int:
    """Return the step after the last one with equal fingerprints; the first that differs if none are known equal."""
    equal = [step for step in steps if step not in set(differs)]
    last = max([*equal, equal_step])
    return last + 1 if last >= 0 else differs[0]


def _evidence(copies: Copies, rank: int, others: Sequence[int], step: int) -> str:
    ranks, total = ", ".join(map(str, others)), len(copies.behind)
    named = list(_differing(copies, rank, others[0]))
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    what = ", ".join(named[:SHOWN]) + more if named else "replicated state"
    word = "rank" if len(others) == 1 else "ranks"
    return f"its copy of {what} differs from that of {word} {ranks} since step {step}, one of {total} copies"


def _differing(copies: Copies, rank: int, other: int) -> Iterator[str]:
    own, theirs = copies.by_name.get(rank, {}), copies.by_name.get(other, {})
    return (name for name, value in own.items() if theirs.get(name, value) != value)
