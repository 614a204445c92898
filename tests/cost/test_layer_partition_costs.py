"""What layers cost, against the closed forms of plans whose stages are written out."""

import random
from itertools import pairwise

import numpy as np
import pytest

from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.cost.layer_partition_costs import layer_costs
from meshwright.cost.plan_report import closed_form
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.layers.recompute_by_layer import recomputes_from_stages
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.resolve import resolve
from meshwright.search.partition.layer_chain import Cut
from meshwright.verbs.plan.partition_stages import chain_of, decoder_layers

PLAN = """plan: 1
model: MODEL
cluster: h100-sxm-80gb x 32
workload: {seq_len: 4096, global_batch: 64}
stack: STACK
layout: {pp: 4, dp_shard: 4, tp: 2}
sharding: SHARDING
recompute: RECOMPUTE
pipeline: {schedule: SCHEDULE, virtual_stages: CHUNKS}
"""
CASES = [
    ("llama-3.1-8b", "megatron-core", "zero1", "selective", "1f1b", 1),
    ("llama-3.1-8b", "megatron-core", "zero1", "none", "interleaved-1f1b", 2),
    ("gemma-2-9b", "megatron-core", "none", "none", "1f1b", 1),
    ("llama-3.2-1b", "torchtitan", "zero3", "none", "1f1b", 1),
    ("qwen3-30b-a3b", "megatron-core", "zero1", "none", "interleaved-1f1b", 3),
    ("llama-3.1-8b", "meshwright", "zero1", "none", "v-half", 2),
]


def short_plan(case):
    text = PLAN
    for name, value in zip(
        ("MODEL", "STACK", "SHARDING", "RECOMPUTE", "SCHEDULE", "CHUNKS"), case, strict=True
    ):
        text = text.replace(name, str(value))
    resolved = resolve(parse_plan(text))
    return resolved.short, resolved.setting


@pytest.mark.parametrize("case", CASES)
def test_a_ranks_bytes_are_those_of_its_layers_whatever_the_stages(case):
    short, setting = short_plan(case)
    costs = layer_costs(short, setting)
    chain, rng = chain_of(costs), random.Random(str(case))
    layers, stages = len(costs.states), len(costs.placement)
    for _ in range(8):
        stops = (0, *sorted(rng.sample(range(2, layers - 1), stages - 1)), layers)
        counts = [b - a - (a == 0) - (b == layers) for a, b in pairwise(stops)]
        wanted = [
            sum(ledger.values()) for ledger in closed_form(short, setting, written_stages(counts)).ledgers
        ]
        found = chain.loads(chain.held, Cut(stops, (0,) * stages))
        assert found == pytest.approx(wanted, rel=2e-3)


@pytest.mark.parametrize("case", CASES)
def test_a_stages_seconds_are_those_of_its_layers(case):
    short, setting = short_plan(case)
    costs = layer_costs(short, setting)
    ((_, group),) = pipeline_groups(from_shorts([short]), setting)
    ends = np.cumsum([len(stage) for stage in group.stages])[:-1]
    for of_layers, of_stages in ((costs.forward, group.forward_s), (costs.backward, group.backward_s)):
        sums = [part.sum() for part in np.split(of_layers[0], ends)]
        assert sums == pytest.approx(of_stages[0].tolist(), rel=1e-9)


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[5]])
def test_each_mode_has_the_costs_of_what_it_recomputes(case):
    short, setting = short_plan(case)
    words = ("none", "full")
    both = layer_costs(short, setting, words)
    for mode, word in enumerate(words):
        alone = layer_costs(short.model_copy(update={"recompute": word}), setting)
        for found, wanted in ((both.forward, alone.forward), (both.backward, alone.backward)):
            assert found[mode].tolist() == wanted[0].tolist()
        assert both.kept[mode].tolist() == alone.kept[0].tolist()
        assert both.held[mode].tolist() == alone.held[0].tolist()


@pytest.mark.parametrize("case", [CASES[0], CASES[1]])
def test_stages_in_other_modes_hold_no_more_than_their_costs_say(case):
    short, setting = short_plan(case)
    short = short.model_copy(update={"recompute": "none"})
    words, rng = ("none", "full"), random.Random(str(case))
    costs = layer_costs(short, setting, words)
    chain, counts = chain_of(costs), decoder_layers(tuple(np.diff(costs.stops)))
    for _ in range(8):
        modes = tuple(rng.choice((0, 1)) for _ in costs.placement)
        of_layers = recomputes_from_stages(counts, [words[mode] for mode in modes])
        ledgers = closed_form(short, setting, written_stages(counts), of_layers).ledgers
        held, found = [sum(of.values()) for of in ledgers], chain.loads(chain.held, Cut(costs.stops, modes))
        assert all(found * (1 + 2e-3) >= held)
        assert found == pytest.approx(held, rel=0.03)


def test_what_may_be_used_of_a_device_is_the_capacity():
    short, setting = short_plan(CASES[0])
    assert 0.8 * setting.cluster.pool.device.memory_bytes < layer_costs(short, setting).capacity
    assert layer_costs(short, setting).capacity < setting.cluster.pool.device.memory_bytes
