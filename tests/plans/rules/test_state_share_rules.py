"""Rules on uneven shares of the states: each that is broken is named with its key, its equation and a suggestion."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, SPARSE, STACK, changed, graph, long_plan

from meshwright.cluster.load import load_cluster
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import shorten
from meshwright.plans.rules.check_plan import check_plan

ABLE = replace(STACK, uneven_shares=True)
ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
ZERO3 = dict.fromkeys(("parameter", "gradient", "optimizer"), ("dp_shard", "cp"))


def plan(share=(3, 0, 1, 4), states=ZERO3, gather="per-step", **keys):
    """A plan of 16 devices in two pipeline ranks, of which four share states."""
    degrees = {"dp_shard": 4, "tp": 2} | keys.pop("degrees", {})
    return changed(
        long_plan({"pp": 2, "dp_replicate": 8}, cluster="h100-sxm-80gb x 16"),
        layouts={"main": {"grid": degrees, "order": ORDER, "sequence_parallel": True, "state_share": share}},
        states=states,
        gather=gather,
        **{"pipeline": {"placement": (0, 1), "schedule": {"name": "1f1b"}}} | keys,
    )


def problems(of, architecture=DENSE, stack=ABLE, **keys):
    return check_plan(of, graph(architecture), load_cluster("h100-sxm-80gb x 16"), stack, **keys)


def test_a_plan_with_weights_is_legal_and_has_no_short_form():
    found = plan()
    assert problems(found) == []
    assert parse_plan(dump_plan(found)) == found
    assert shorten(found) is None


def test_even_needs_no_weights():
    assert problems(plan("even")) == []


BROKEN = [
    (plan((3, -1, 1, 4)), "weights are whole numbers from 0", "[3, 0, 1, 4]"),
    (plan((0, 0, 0, 0)), "one of them is larger", "even"),
    (plan((1, 3)), "2 weights ≠ dp_shard·cp = 4·1 = 4 ranks that share states", "4 weights"),
    (plan(degrees={"dp_shard": 2, "cp": 2}, share=(1,)), "1 weights ≠ dp_shard·cp = 2·2", "4 weights"),
    (plan(states={}), "no state is sharded", "state_share: even"),
]


@pytest.mark.parametrize(("found", "rule", "suggestion"), BROKEN)
def test_a_broken_rule_is_named(found, rule, suggestion):
    every = [problem for problem in problems(found) if problem.field == "layouts.main.state_share"]
    assert any(rule in problem.rule and suggestion in problem.suggestion for problem in every), every


def of_workload(**keys):
    found = plan()
    return found.model_copy(update={"workload": type(found.workload)(seq_len=4096, global_batch=64, **keys)})


def of_pipeline(**keys):
    return plan(pipeline={"placement": (0, 1), "schedule": {"name": "1f1b"}} | keys)


EVEN_ONLY = [
    (plan(), SPARSE, "model", "experts"),
    (plan(), replace(DENSE, tied_embeddings=True), "pipeline.placement", "a tied table of two stages"),
    (of_workload(optimizer="muon"), DENSE, "workload.optimizer", "muon"),
    (of_workload(optimizer="zo-sgd"), DENSE, "workload.optimizer", "zo-sgd"),
    (of_workload(task="lora", adapter={"form": "lora", "rank": 8}), DENSE, "workload.adapter", "adapters"),
    (changed(plan(), offload={"manager": "chunks"}), DENSE, "offload", "model states on hosts"),
    (changed(plan(), offload={"optimizer": "all"}), DENSE, "offload", "model states on hosts"),
    (
        plan((3, 1), degrees={"dp_replicate": 2, "dp_shard": 2}),
        DENSE,
        "layouts.main.grid.dp_replicate",
        "replicas of shards",
    ),
    (
        of_pipeline(schedule={"name": "dualpipe"}, placement=(0, 1, 1, 0)),
        DENSE,
        "pipeline.schedule.name",
        "two directions",
    ),
    (
        of_pipeline(schedule={"name": "zb-h1", "step_validation": "after"}),
        DENSE,
        "pipeline.schedule.step_validation",
        "validated afterwards",
    ),
    (
        changed(
            plan(),
            layers={
                "embed": {"layout": "main", "vocabulary": ("pp", "tp")},
                "0..15": {"layout": "main"},
                "head": {"layout": "main", "vocabulary": ("pp", "tp")},
            },
        ),
        DENSE,
        "layers.embed.vocabulary",
        "a vocabulary over all pipeline ranks",
    ),
    (plan(gather="per-unit"), DENSE, "gather", "exchanges unit by unit"),
    (changed(plan(), dtypes={"reduce": "bf16"}), DENSE, "dtypes.reduce", "a narrow type"),
]


@pytest.mark.parametrize(("found", "architecture", "field", "what"), EVEN_ONLY)
def test_what_runs_with_equal_shards_only_is_refused_by_name(found, architecture, field, what):
    refused = [p for p in problems(found, architecture) if p.field == field and "with state_share" in p.rule]
    assert refused
    assert all(what in problem.rule and problem.suggestion for problem in refused)


def test_a_stack_of_equal_shards_refuses_weights():
    (problem,) = problems(plan(), stack=replace(ABLE, uneven_shares=False))
    assert problem.field == "layouts.main.state_share"
    assert "cuts states evenly" in problem.rule
