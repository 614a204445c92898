"""Sharded and loose axes of a plan, and entries whose exchanges of every step are encoded."""

import pytest
from plan_cases import long_plan

from meshwright.plans.synchronisation.plan_axes import (
    encoded_apart,
    loose_axes_of_plan,
    sharded_axes,
    tight_encoded,
)

PARAMETER = {"state": "parameter", "over": "dp_replicate"}
GRADIENT = {"state": "gradient", "over": "dp_replicate", "compress": {"top_k": 0.1}}
SHARD = {"over": "dp_shard"}
TWO = {"dp_replicate": 4, "dp_shard": 16}


@pytest.mark.parametrize(
    ("layout", "sharding", "expected"),
    [
        (TWO, "zero1", {"dp_shard"}),
        (TWO, "none", set()),
        ({"dp_replicate": 64}, "zero3", set()),
        ({"dp_replicate": 32, "cp": 2}, "zero2", {"dp_shard"}),
    ],
)
def test_context_parallelism_is_joined_to_dp_shard(layout, sharding, expected):
    assert sharded_axes(long_plan(layout, sharding=sharding, synchronise=(PARAMETER,))) == expected


@pytest.mark.parametrize(
    ("entries", "sharding", "loose", "encoded"),
    [
        ((), "none", (), []),
        ((PARAMETER, PARAMETER | SHARD), "none", ("dp_replicate", "dp_shard"), []),
        ((PARAMETER, PARAMETER | SHARD), "zero1", ("dp_replicate",), []),
        ((PARAMETER | {"compress": {"top_k": 0.1}}, GRADIENT | SHARD), "none", ("dp_replicate",), [1]),
        ((PARAMETER, GRADIENT), "none", (), [1]),
        ((PARAMETER, GRADIENT | SHARD), "zero3", ("dp_replicate",), [1]),
    ],
)
def test_axes_are_loose_by_parameters_alone(entries, sharding, loose, encoded):
    plan = long_plan(TWO, sharding=sharding, synchronise=entries)
    assert loose_axes_of_plan(plan) == loose
    assert [place for place, _ in tight_encoded(plan)] == encoded


def test_layers_that_an_entry_encodes_are_other_blocks_than_those_it_does_not():
    codec = {"compress": {"top_k": 0.1, "layers": "1..2"}}
    plan = long_plan({"dp_replicate": 64}, sharding="none", synchronise=({**GRADIENT, **codec},))
    found = encoded_apart(plan, ["main"] * 6)
    assert found == [("main", (encoded,)) for encoded in (False, False, True, True, False, False)]
    every = long_plan({"dp_replicate": 64}, sharding="none", synchronise=(GRADIENT,))
    assert encoded_apart(every, ["main", "main"]) == [("main", ()), ("main", ())]
