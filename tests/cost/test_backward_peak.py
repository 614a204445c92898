"""The peak of a backward pass against sums by hand: a stage of an embedding, four equal layers and a head."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cost.memory.backward_peak import Moment, StageBlocks, least_buffers, moments, worst_moment
from meshwright.cost.memory.zero_unsharded_buffers import ZeroBufferRule
from meshwright.program.model_states.state_elements import Elements
from meshwright.stack.load import load_stack

EMBED, LAYER, HEAD = 0, 1, 2
FSDP = ZeroBufferRule("zero3", "per-layer", "per-micro-batch")
STACK = load_stack("torchtitan")
SIZES = {EMBED: 1000, LAYER: 100, HEAD: 1000}


def stage(logits=0, kept=0, working=0, sizes=SIZES, **keys):
    return StageBlocks(
        blocks=(EMBED, LAYER, LAYER, LAYER, LAYER, HEAD),
        elements=lambda block: Elements(sizes[block], 0, 0),
        kept=lambda block: kept + (logits if block == HEAD else 0),
        working=lambda block: working if block == LAYER else 0,
        logits=logits,
        **{"head": HEAD} | keys,
    )


def beyond_kept(of_stage, rule=FSDP):
    worst = worst_moment(list(moments(of_stage, lambda block: rule, STACK)))
    return worst.working + worst.buffers - worst.freed


def test_large_logits_meet_the_head_s_parameters_alone():
    assert beyond_kept(stage(logits=10**6, working=10**4)) == 2 * 1000


def test_the_end_of_the_head_has_its_gradients_twice_and_the_next_layer():
    assert beyond_kept(stage(logits=1)) == 2 * 100 + (2 + 4) * 1000 - 1


def test_a_layer_has_two_layers_its_gradients_and_a_message():
    sizes = SIZES | {EMBED: 0, HEAD: 0}
    assert beyond_kept(stage(sizes=sizes, working=7, logits=3)) == (2 * 2 + 2 + 4) * 100 + 7 - 3


@pytest.mark.parametrize("kept", [1, 100, 300])
def test_what_blocks_behind_kept_is_free(kept):
    """The last layer but one counts: behind it a layer's message is on its way, and two blocks have freed theirs."""
    sizes = SIZES | {EMBED: 0, HEAD: 0}
    assert beyond_kept(stage(sizes=sizes, working=7, kept=kept)) == (2 * 2 + 2 + 4) * 100 + 7 - 2 * kept


def test_a_tied_table_stays_with_its_gradients():
    sizes = SIZES | {HEAD: 0}
    assert beyond_kept(stage(sizes=sizes, tied=EMBED, logits=10**6)) == 2 * 1000
    without_end = replace(stage(sizes=sizes, tied=EMBED), blocks=(LAYER, LAYER, HEAD))
    assert beyond_kept(without_end) == (2 + 2) * 1000 + max(2 * 2 + 2, 2 + 2 + 4) * 100


def test_without_exchanges_a_block_s_recomputed_tensors_are_beyond_the_logits():
    rule = ZeroBufferRule("zero1", "never")
    assert beyond_kept(stage(working=50, logits=20), rule) == 50 - 20
    assert beyond_kept(stage(working=50, logits=70), rule) == 0
    assert beyond_kept(stage(working=50, head=None), rule) == 50


@pytest.mark.parametrize("head", [HEAD, None])
@pytest.mark.parametrize("rule", [FSDP, ZeroBufferRule("zero1", "never")])
def test_least_buffers_with_what_a_block_works_in_are_no_more_than_the_peak(head, rule):
    of_stage = stage(working=50, head=head)
    works_in = 0 if head else 50
    assert least_buffers(of_stage, lambda block: rule, STACK) + works_in <= beyond_kept(of_stage, rule)


def test_each_plan_has_its_own_worst_moment():
    found = [Moment(np.array([1, 5]), 0), Moment(2, np.array([1, 1]), 1)]
    worst = worst_moment(found)
    assert (worst.working.tolist(), worst.buffers.tolist(), worst.freed.tolist()) == ([2, 5], [1, 0], [1, 0])
