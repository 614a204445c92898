"""A vocabulary that is spread over pipeline ranks: what is spread stays the same in sum, and balances the pipeline."""

from dataclasses import replace

import numpy as np
import pytest
from lattice_plans import MODELS
from step_traffic import array_traffic

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate, pipeline_groups, seconds_by_part
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.schedules.vocabulary import FORMS
from meshwright.simulate.plan_estimate import lower_and_simulate
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

RANKS = 8
BATCH = 64
SEQ_LEN = 2048
PLACED = [(form, name) for form in FORMS for name in ("1f1b", "v-half") if FORMS[form].only in (None, name)]


def setting(vocab=32000, model="untied", stack="megatron-zero-bubble"):
    architecture = replace(MODELS[model].architecture, vocab=vocab, layers=16, windows=(None,) * 16)
    workload = Workload(seq_len=SEQ_LEN, global_batch=BATCH)
    cluster = load_cluster(f"a100-sxm-80gb x {RANKS}")
    return Setting(build_graph(architecture), cluster, workload, load_stack(stack))


def short(form, schedule="1f1b"):
    return ShortPlan.model_validate(
        {
            "plan": 1,
            "model": "m",
            "cluster": "a100-sxm-80gb x 8",
            "workload": {"seq_len": SEQ_LEN, "global_batch": BATCH},
            "layout": {"pp": RANKS},
            "pipeline": {
                "schedule": {"name": schedule, "vocabulary": form},
                "virtual_stages": 2 if schedule == "v-half" else 1,
            },
        }
    )


def plans(form, schedule="1f1b"):
    return from_shorts([short(form, schedule)])


def held(form, kind="parameter", model="untied", schedule="1f1b"):
    ((_, group),) = pipeline_groups(plans(form, schedule), setting(model=model))
    return group.held(kind)[0]


@pytest.mark.parametrize(("form", "schedule"), PLACED)
def test_the_parameters_are_the_same_in_sum_and_the_tables_equal_on_all_ranks(form, schedule):
    spread, ends = held(form, schedule=schedule), held(None, schedule=schedule)
    padding = RANKS * 128 * 1024 * 2
    assert 0 <= spread.sum() - ends.sum() < padding
    norm, positions = 2 * 1024, 8192 * 1024
    assert np.ptp(spread) in (positions, positions - norm, positions + norm)
    assert np.ptp(ends) > 3 * positions


def test_a_tied_table_is_held_once():
    table = setting(model="tied").model.architecture
    once = held("vocab-1", model="tied").sum()
    assert held(None, model="tied").sum() - once == pytest.approx(table.vocab * table.hidden, rel=0.03)


@pytest.mark.parametrize(("form", "schedule"), PLACED)
def test_a_large_vocabulary_hardly_slows_a_step_when_it_is_spread(form, schedule):
    small, large = setting(vocab=32000), setting(vocab=256000)
    growth = {
        vocabulary: evaluate(plans(vocabulary, schedule), large).step_s[0]
        / evaluate(plans(vocabulary, schedule), small).step_s[0]
        for vocabulary in (None, form)
    }
    assert growth[form] < 1 + 0.45 * (growth[None] - 1)


def test_each_barrier_keeps_one_micro_batch_more():
    memory = {form: evaluate(plans(form), setting()).memory["activations"][0] for form in FORMS}
    ((_, group),) = pipeline_groups(plans("vocab-1"), setting())
    of_rank = group.per_rank(group.kept[:, group.kind_of])[0, 1]
    assert memory["vocab-1"] - memory["vocab-2"] == of_rank
    assert memory["interlaced"] > memory["vocab-1"]


def test_two_barriers_do_the_same_work_as_one():
    """S and T together; only where their exchanges stand differs."""
    shares = [next(iter(pipeline_groups(plans(form), setting())))[1].share for form in ("vocab-1", "vocab-2")]
    (one, other) = (share.seconds["S"][0] + share.seconds["T"][0] for share in shares)
    assert one == pytest.approx(other, rel=1e-12)
    assert shares[0].seconds["S"][0] < shares[1].seconds["S"][0]


@pytest.mark.parametrize("form", FORMS)
def test_the_breakdown_adds_up(form):
    parts, whole = seconds_by_part(plans(form), setting()), evaluate(plans(form), setting()).step_s
    assert sum(part[0] for part in parts.values()) == pytest.approx(whole[0], rel=1e-12)
    assert all(part[0] >= 0 for part in parts.values())


@pytest.mark.parametrize("form", FORMS)
def test_every_rank_exchanges_an_activation_four_times_and_statistics(form):
    """Messages between stages, four times 2nh in chains over all ranks, 12 bytes a token of the softmax."""
    activation = 2 * SEQ_LEN * 1024
    exchanged = BATCH * RANKS * (4 * activation + 12 * SEQ_LEN)
    messages = BATCH * 2 * (RANKS - 1) * activation
    assert array_traffic(plans(form), setting())["pp"].tolist() == [exchanged + messages]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("form", "schedule"), PLACED)
def test_forms_are_played_to_the_end_and_equal_the_simulation(form, schedule):
    held_to = setting(stack="generic")
    plan = short(form, schedule).model_copy(update={"stack": "generic"})
    _, simulated = lower_and_simulate(expand(plan, held_to.model.architecture), held_to)
    found = evaluate(from_shorts([plan]), held_to).step_s[0]
    assert found == pytest.approx(simulated.step_s, rel=1e-9)


def test_plans_with_and_without_a_spread_vocabulary_stand_in_one_array():
    chosen = [short(None), short("vocab-1"), short("vocab-2"), short(None, "v-half")]
    together = evaluate(from_shorts(chosen), setting())
    alone = [evaluate(from_shorts([plan]), setting()) for plan in chosen]
    assert together.step_s.tolist() == [one.step_s[0] for one in alone]
    assert together.total_bytes.tolist() == [one.total_bytes[0] for one in alone]
