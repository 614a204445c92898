"""Redistributed layers against brute force."""

from itertools import product

import pytest

from meshwright.model.load import load_model
from meshwright.plans.forms.long import Pipeline, Schedule
from meshwright.plans.layers.layer_assignment import stage_layers, stage_problems
from meshwright.plans.layers.uneven_partition import (
    head_in_layers,
    redistributed_counts,
    redistributed_stages,
)


def every_partition(layers, stages):
    """All ways to cut the layers; only the last stage may be without one."""
    for counts in product(range(layers + 1), repeat=stages):
        if sum(counts) == layers and all(counts[:-1]):
            yield counts


@pytest.mark.parametrize("head", [0.0, 0.4, 1.0, 2.5, 6.4])
@pytest.mark.parametrize(("layers", "stages"), [(4, 2), (6, 3), (8, 4), (7, 4), (9, 3)])
def test_no_partition_has_a_smaller_largest_stage(layers, stages, head):
    def load(counts):
        return max(*counts[:-1], counts[-1] + head)

    found = redistributed_counts(layers, stages, head)
    assert sum(found) == layers
    assert len(found) == stages
    assert load(found) == pytest.approx(min(map(load, every_partition(layers, stages))))


def test_a_large_head_leaves_the_last_stage_without_layers():
    assert redistributed_counts(32, 8, 6.4) == (4, 4, 5, 5, 5, 5, 4, 0)
    assert redistributed_counts(32, 8, 0.8)[-1] == 4
    assert redistributed_counts(5, 1, 3.0) == (5,)


@pytest.mark.parametrize("head", [0.0, 1.0, 6.4])
def test_stages_are_those_of_a_plan(head):
    stages = redistributed_stages(32, 8, head)
    pipeline = Pipeline(stages=stages, placement=tuple(range(8)), schedule=Schedule(name="1f1b"))
    assert stage_problems(pipeline, 32) == []
    assert tuple(c.count for c in stage_layers(pipeline, 32)) == redistributed_counts(32, 8, head)


def test_the_head_in_layers():
    """V/(12h(1 + s/6h)) for a GPT layer (Yeung et al., arXiv 2411.05288), with s halved by the causal mask."""
    model = load_model("gpt-3-175b")
    hidden, vocab, seq = 12288, model.architecture.vocab, 2048
    wanted = vocab / (12 * hidden * (1 + (seq + 1) / 2 / (6 * hidden)))
    assert head_in_layers(model, seq) == pytest.approx(wanted, rel=1e-3)
