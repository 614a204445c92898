"""Emulated rounds of a plan whose islands exchange between steps: their number of steps, and what exchanges took.

The round that counts stands behind as many others as a played run needs until one takes as long as the next, and
behind one at least if an exchange ends in a later step than it began in.
"""

from collections.abc import Iterator

from meshwright.cost.synchronisation.round_time import RoundTime
from meshwright.program.program import Program
from meshwright.runtime.emulation.emulation_result import EmulatedSteps, Emulation
from meshwright.runtime.emulation.islands_exchanges import CODEC, UPDATE, WAIT


def emulated_steps(program: Program, played: RoundTime | None) -> EmulatedSteps:
    """Return the steps to emulate; ``played`` is a round with its exchanges, if the Program has any."""
    if played is None:
        return EmulatedSteps.steady(program)
    delayed = any(int(entry.delay) > 0 for entry in program.synchronise)
    before = max(played.rounds_before, 1 if delayed else 0)
    return EmulatedSteps(before * played.steps, played.steps)


def emulated_round(emulation: Emulation) -> RoundTime:
    """Return the emulated round in a played one's form.

    Of each wait the longest of all ranks counts; of codecs and updates the shortest, since passes may hide the rest.
    """
    found = RoundTime(emulation.steps.timed, emulation.seconds)
    for one in emulation.ranks[0].exchanges:
        assert one.action.stage is not None
        found.begun[one.action.stage] += one.stream == CODEC
    for entry in found.begun:
        found.exposed_s[entry] = sum(map(max, _of_ranks(emulation, entry, WAIT)))
        found.codec_s[entry] = sum(map(min, _of_ranks(emulation, entry, CODEC)))
        found.update_s[entry] = sum(map(min, _of_ranks(emulation, entry, UPDATE)))
    return found


def _of_ranks(emulation: Emulation, entry: int, about: str) -> Iterator[tuple[float, ...]]:
    """Yield the seconds of each wait, codec or update of an entry, of all ranks."""
    ranks = (
        [one.end - one.start for one in rank.exchanges if (one.action.stage, one.stream) == (entry, about)]
        for rank in emulation.ranks
    )
    return zip(*ranks, strict=True)
