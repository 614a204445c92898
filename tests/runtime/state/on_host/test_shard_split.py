"""Shares of shards are cut in whole elements of a rank, and parts are stepped with the bits of the whole."""

from itertools import pairwise

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.adamw import adamw

from meshwright.runtime.comm.host_link import HostLink
from meshwright.runtime.state.on_host.shard_split import ShareCut, SplitShard, part_of
from meshwright.runtime.state.on_host.vector_lanes import lanes, lent

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=6)
SHARES = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))
LINK = HostLink(torch.device("cpu"))


def pieces(sizes):
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    return list(pairwise(ends))


@given(SIZES, SIZES, SHARES)
def test_the_host_has_the_share_of_all_that_a_rank_holds(first, second, share):
    cut = ShareCut(share)
    splits = [cut.split(pieces(sizes)) for sizes in (first, second)]
    total = sum(first) + sum(second)
    assert sum(split.elements(True) for split in splits) == int(share * total)
    assert sum(split.elements(False) for split in splits) == total - int(share * total)
    for split, sizes in zip(splits, (first, second), strict=True):
        for start, stop in pieces(sizes):
            sides = [part.on_host for part in split.within(start, stop)]
            assert sides == sorted(sides, reverse=True)
            on_host = sum(part.stop - part.start for part in split.within(start, stop) if part.on_host)
            assert abs(on_host - share * (stop - start)) <= 1


@given(SIZES, SHARES, st.data())
def test_a_shard_in_two_memories_reads_and_writes_as_one(sizes, share, data):
    split, size = ShareCut(share).split(pieces(sizes)), sum(sizes)
    shard, whole = SplitShard.zeros(split, torch.float32, LINK), torch.arange(size, dtype=torch.float32)
    shard.write(0, whole)
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    assert torch.equal(shard.read(start, stop), whole[start:stop])
    assert torch.equal(shard.whole, whole)
    assert torch.equal(shard.host, part_of(whole, split.host))
    assert torch.equal(shard.device, part_of(whole, split.device))


def stepped(buffers):
    parameters, gradients, first, second = buffers
    steps = [torch.tensor(3.0) for _ in parameters]
    numbers = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
    choices = {"fused": True, "amsgrad": False, "maximize": False}
    adamw(parameters, gradients, first, second, [], steps, **choices, **numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_parts_of_a_range_are_stepped_with_the_bits_of_the_whole(dtype):
    draw = torch.Generator().manual_seed(0)
    for size in (1, 7, 8, 9, 63, 64, 100, 257):
        whole = [torch.rand(size, generator=draw, dtype=dtype) for _ in range(4)]
        split = ShareCut(0.3 + 0.001 * size).split(pieces([size // 3, size - size // 3]))
        parts = {
            side: [part_of(buffer, split.side(side)).clone() for buffer in whole] for side in (False, True)
        }
        stepped([[buffer] for buffer in whole])
        for side, buffers in parts.items():
            where = lanes(((0, size),), split, side, dtype)
            if where:
                with lent(buffers, where) as slices:
                    stepped(slices)
            expected = [part_of(buffer, split.side(side)) for buffer in whole]
            for kind in (0, 2, 3):
                assert torch.equal(buffers[kind], expected[kind]), (size, side, kind)
