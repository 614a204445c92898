"""Lists of every schedule in the table, and the lists of a small bidirectional one by hand."""

from hypothesis import strategies as st

from meshwright.schedules.action import parse_actions
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES

TWO_WAYS = [parse_actions("0F0 3F1 3B1 0B0"), parse_actions("2F1 1F0 1B0 2B1")]
"""Stages 0 and 1 are one way, 2 and 3 the other; each of two micro-batches goes one of them."""
TWO_WAYS_SHAPE = StageChains(4, chains=2)


def chunks_of(kind):
    """As few as the schedule allows."""
    return next(chunks for chunks in range(1, 9) if kind.allows(chunks))


def sizes(kind, ranks, micro_batches):
    """The next numbers of ranks and micro-batches that the schedule can be made for."""
    ranks += -ranks % kind.rank_multiple
    while kind.fault(ranks, micro_batches):
        micro_batches += 1
    return ranks, micro_batches


@st.composite
def legal(draw, most_ranks=4, most_micro_batches=12):
    """Lists of a schedule, with its ways."""
    kind = SCHEDULES[draw(st.sampled_from(sorted(SCHEDULES)))]
    ranks, micro_batches = draw(st.integers(2, most_ranks)), draw(st.integers(2, most_micro_batches))
    ranks, micro_batches = sizes(kind, ranks, micro_batches)
    chunks = chunks_of(kind)
    return kind.lists(ranks, micro_batches, chunks), kind.ways(ranks, chunks)


def changed(lists, rank, actions):
    """The lists with another list for one rank."""
    return [actions if at == rank else list(old) for at, old in enumerate(lists)]
