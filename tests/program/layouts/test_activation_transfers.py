"""Changes of layout against brute force: every token that a rank needs comes once, from a rank that holds it."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.plans.context_parallel import Context
from meshwright.program.layouts.activation_transfers import (
    common,
    held_between_blocks,
    places_in,
    transfers,
)
from meshwright.program.layouts.rank_mesh import RankGrid
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.program_parts import Part, ProgramParts
from meshwright.program.reshard import moved_bytes, reshard_between, transfer_bytes, way_transfers

ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
RANKS, SEQUENCES, SEQ_LEN, HIDDEN = 8, 8, 16, 4


def shares(count):
    """Draw positive numbers, one for each replica, that sum to the sequences."""
    cuts = st.lists(st.integers(1, SEQUENCES - 1), min_size=count - 1, max_size=count - 1, unique=True)
    return cuts.map(lambda found: tuple(b - a for a, b in pairwise((0, *sorted(found), SEQUENCES))))


@st.composite
def parts(draw):
    """A part on two pipeline ranks of eight ranks each, in any order of its axes, perhaps with shares of the batch."""
    tp, left = draw(st.sampled_from([(1, 8), (2, 4), (4, 2), (8, 1)]))
    cp = draw(st.sampled_from([degree for degree in (1, 2, 4) if left % degree == 0]))
    left //= cp
    shard = draw(st.sampled_from([degree for degree in (1, 2, 4, 8) if left % degree == 0]))
    sizes = {"tp": tp, "cp": cp, "dp_shard": shard, "dp_replicate": left // shard, "pp": 2}
    order = draw(st.just(ORDER) | st.permutations(ORDER[:-1]).map(lambda inner: (*inner, "pp")))
    pieces = draw(st.sampled_from(["head-tail", "contiguous"]))
    grid = RankGrid(sizes, order)
    share = draw(st.just(()) | shares(left))
    size = max(share, default=SEQUENCES // left)
    shape = LocalShape(micro_batch=size, seq_len=SEQ_LEN, cp=cp, tp=tp, ep=1, etp=1)
    mode = Mode(sequence_parallel=tp > 1 and draw(st.booleans()), context=Context(pieces=pieces))
    return Part("a", grid, grid, shape, mode, "none", batch_share=share)


def tokens(held):
    """Every (sequence, position) that is held, in order."""
    positions = [position for stretch in held.positions for position in range(*stretch)]
    return [(sequence, position) for sequence in range(*held.sequences) for position in positions]


@given(source=parts(), target=parts(), same=st.booleans())
@settings(deadline=None, max_examples=60)
def test_every_token_comes_once_from_a_rank_that_holds_it(source, target, same):
    givers = range(RANKS)
    takers = givers if same else range(RANKS, 2 * RANKS)
    held = {rank: set(tokens(held_between_blocks(source, rank))) for rank in givers}
    assert set().union(*held.values()) == {(s, p) for s in range(SEQUENCES) for p in range(SEQ_LEN)}
    taken = {rank: Counter() for rank in takers}
    for one in transfers(source, target, givers, takers):
        moved = [(s, p) for s in range(*one.sequences) for stretch in one.positions for p in range(*stretch)]
        assert one.tokens == len(moved)
        assert held[one.source].issuperset(moved)
        if one.source != one.target and one.target in held:
            assert not held[one.target].intersection(moved), "a rank takes what it has"
        taken[one.target].update(moved)
    for rank in takers:
        assert taken[rank] == Counter(tokens(held_between_blocks(target, rank)))


@given(source=parts(), target=parts())
@settings(deadline=None, max_examples=30)
def test_bytes_are_those_of_all_transfers(source, target):
    both = ProgramParts((source, target), (0, 1))
    for ends in (((0, 0), (1, 0)), ((0, 0), (1, 1))):
        reshard = reshard_between(both, ends, HIDDEN, domain=4)
        for way in ("F", "B"):
            found = way_transfers(both, reshard, way)
            between = [one for one in found if one.source != one.target]
            assert reshard.moved(way).total == sum(transfer_bytes(one, HIDDEN) for one in between)
            busiest = Counter()
            for one in between:
                inside = one.source // 4 == one.target // 4
                busiest["out", one.source, inside] += transfer_bytes(one, HIDDEN)
                busiest["in", one.target, inside] += transfer_bytes(one, HIDDEN)
            for inside, most in ((True, reshard.moved(way).inside), (False, reshard.moved(way).across)):
                assert most == max((n for (*_, near), n in busiest.items() if near == inside), default=0)


@given(parts())
@settings(deadline=None, max_examples=20)
def test_a_layout_that_does_not_change_moves_nothing(part):
    found = list(transfers(part, part, range(RANKS), range(RANKS)))
    assert all(one.source == one.target for one in found)
    assert moved_bytes(found, HIDDEN, 4) == (0, 0, 0)


def test_places_of_positions():
    held = ((0, 4), (12, 16))
    assert places_in(held, ((2, 4), (12, 13))) == ((2, 4), (4, 5))
    assert common(held, ((3, 13),)) == ((3, 4), (12, 13))
    with pytest.raises(ValueError, match="are not held"):
        places_in(held, ((3, 13),))
