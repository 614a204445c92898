"""A vocabulary that is spread over pipeline ranks: what is spread stays the same in sum, and balances the pipeline."""

from dataclasses import replace

import numpy as np
import pytest
from lattice_plans import MODELS

from meshwright.cluster.load import load_cluster
from meshwright.cost.evaluate import evaluate, pipeline_groups
from meshwright.cost.spread_vocabulary import FORMS
from meshwright.model.blocks import build_graph
from meshwright.plan.arrays import from_shorts
from meshwright.plan.setting import Setting
from meshwright.plan.short import ShortPlan
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

RANKS = 8


def setting(vocab=32000, model="untied"):
    architecture = replace(MODELS[model].architecture, vocab=vocab, layers=16, windows=(None,) * 16)
    workload = Workload(seq_len=2048, global_batch=64)
    stack = load_stack("megatron-zero-bubble")
    return Setting(build_graph(architecture), load_cluster(f"a100-sxm-80gb x {RANKS}"), workload, stack)


def plans(vocabulary, schedule="1f1b"):
    short = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": "m",
            "cluster": "a100-sxm-80gb x 8",
            "workload": {"seq_len": 2048, "global_batch": 64},
            "layout": {"pp": RANKS},
            "pipeline": {"schedule": schedule, "virtual_stages": 2 if schedule == "v-half" else 1},
        }
    )
    return replace(from_shorts([short]), vocabulary=vocabulary)


def held(vocabulary, kind="parameter", model="untied", schedule="1f1b"):
    ((_, group),) = pipeline_groups(plans(vocabulary, schedule), setting(model=model))
    return group.held(kind)[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schedule", ["1f1b", "v-half"])
def test_the_parameters_are_the_same_in_sum_and_equal_on_all_ranks(form, schedule):
    spread, ends = held(form, schedule=schedule), held("ends", schedule=schedule)
    norms, padding = 5000, RANKS * 128 * 1024 * 2
    learned_positions = (RANKS - 1) * 8192 * 1024
    assert spread.sum() == pytest.approx(ends.sum() + learned_positions, abs=norms + padding)
    assert np.ptp(spread) == 0
    assert np.ptp(ends) > 0


def test_a_tied_table_is_held_once():
    table = setting(model="tied").model.architecture
    once = held("vocab-1", model="tied").sum()
    assert held("ends", model="tied").sum() - once == pytest.approx(table.vocab * table.hidden, rel=0.03)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schedule", ["1f1b", "v-half"])
def test_a_large_vocabulary_hardly_slows_a_step_when_it_is_spread(form, schedule):
    small, large = setting(vocab=32000), setting(vocab=256000)
    growth = {
        vocabulary: evaluate(plans(vocabulary, schedule), large).step_s[0]
        / evaluate(plans(vocabulary, schedule), small).step_s[0]
        for vocabulary in ("ends", form)
    }
    assert growth[form] < 1 + 0.45 * (growth["ends"] - 1)


def test_each_barrier_keeps_one_micro_batch_more():
    memory = {form: evaluate(plans(form), setting()).memory["activations"][0] for form in FORMS}
    ((_, group),) = pipeline_groups(plans("vocab-1"), setting())
    of_rank = group.per_rank(group.kept[:, group.kind_of])[0, 0]
    waiting = group.vocabulary.kept_bytes[0] / 2
    assert memory["vocab-1"] - memory["vocab-2"] == pytest.approx(of_rank + waiting, rel=1e-6)
    assert memory["interlaced"] > memory["vocab-1"]


@pytest.mark.parametrize("form", FORMS)
def test_the_breakdown_adds_up(form):
    estimates = evaluate(plans(form), setting())
    assert sum(part[0] for part in estimates.parts.values()) == pytest.approx(estimates.step_s[0])
    assert all(part[0] >= 0 for part in estimates.parts.values())
