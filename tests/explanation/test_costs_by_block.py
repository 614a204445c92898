"""Costs of blocks: those of a pipeline rank sum to its passes, its states and its peak of activations."""

from collections import Counter

import pytest
from explained_cases import resolved
from range_cases import of_two_layouts, recomputing

from meshwright.cost.operators.pass_prices import total
from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.operators.program_passes import pass_parts
from meshwright.explanation.costs_by_block import block_costs, program_block_costs
from meshwright.program.model_states.state_elements import STATE_KINDS
from meshwright.schedules.action import PASS_KINDS
from meshwright.simulate.memory_ledger import peak_activation_bytes
from meshwright.simulate.plan_estimate import lowered

HALVES = ("full",) * 16 + ("none",) * 16
CASES = {
    "one layout": lambda: resolved(),
    "two layouts": of_two_layouts,
    "layers that recompute other things": lambda: recomputing(HALVES),
    "gathers layer by layer": lambda: resolved(
        stack="meshwright", layout={"dp_shard": 8}, sharding="zero3", gather="per-layer"
    ),
    "split backward passes": lambda: recomputing(
        HALVES, layout={"pp": 4, "dp_shard": 2}, pipeline={"schedule": "zb-h1"}
    ),
    "virtual stages": lambda: resolved(
        layout={"pp": 4, "dp_shard": 2}, pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 2}
    ),
    "an automatic schedule": lambda: resolved(
        stack="meshwright",
        layout={"pp": 2, "dp_shard": 4},
        pipeline={"schedule": "zb-v", "virtual_stages": 2},
    ),
    "a spread vocabulary": lambda: resolved(
        stack="meshwright", pipeline={"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}}
    ),
    "a spread vocabulary, one barrier": lambda: resolved(
        stack="meshwright", pipeline={"schedule": {"name": "1f1b", "vocabulary": "vocab-2"}}
    ),
    "matrices of Muon": lambda: resolved(
        stack="meshwright", workload={"seq_len": 4096, "global_batch": 32, "optimizer": "muon"}
    ),
    "states on the host": lambda: resolved(
        stack="meshwright", layout={"dp_shard": 8}, sharding="zero3", offload={"parameters": "all"}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_blocks_sum_to_what_their_ranks_have(name):
    plan = CASES[name]()
    program = lowered(plan.long, plan.setting)
    prices = program_prices(program, plan.setting)
    found, ranks = program_block_costs(program, prices), range(program.pipeline_ranks)
    seconds = {key: float(total(parts)) for key, parts in pass_parts(program, prices).items()}
    done = Counter((a.stage, a.kind) for actions in program.lists for a in actions if a.kind in PASS_KINDS)
    assert sum(found.passes_s) + found.between_s == pytest.approx(
        sum(seconds[key] * times for key, times in done.items())
    )
    states = sum(program.held_bytes(rank, kind) for rank in ranks for kind in STATE_KINDS)
    assert sum(found.states_bytes) == pytest.approx(states)
    peaks = sum(peak_activation_bytes(program, rank) for rank in ranks)
    assert sum(found.activations_bytes) == pytest.approx(peaks)


def test_layers_of_one_kind_on_one_rank_cost_the_same():
    found = block_costs(recomputing(HALVES, layout={"dp_shard": 8}).long, recomputing(HALVES).setting)
    assert len(found.passes_s) == 34
    for costs in (found.passes_s, found.states_bytes, found.activations_bytes):
        assert costs[1:17] == pytest.approx([costs[1]] * 16)
        assert costs[17:33] == pytest.approx([costs[17]] * 16)
    assert found.passes_s[1] > found.passes_s[17]
    assert found.activations_bytes[1] < found.activations_bytes[17]
    assert found.states_bytes[1] == found.states_bytes[17]


def test_activations_on_the_host_are_not_told_apart():
    plan = resolved(
        stack="meshwright", offload={"activations": 0.5, "ahead": 1}, layout={"pp": 4, "dp_shard": 2}
    )
    assert block_costs(plan.long, plan.setting).activations_bytes is None


def test_a_model_that_lies_on_its_ranks_twice_counts_once():
    plan = resolved(stack="meshwright", pipeline={"schedule": "dualpipe", "virtual_stages": 2})
    found = block_costs(plan.long, plan.setting)
    once = resolved(stack="meshwright")
    assert len(found.passes_s) == 34
    assert sum(found.states_bytes[1:-1]) == pytest.approx(
        sum(block_costs(once.long, once.setting).states_bytes[1:-1])
    )
