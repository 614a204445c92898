"""Rules on uneven shares of the batch: each that is broken is named with its key, its equation and a suggestion."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, SPARSE, STACK, changed, graph, long_plan

from meshwright.cluster.load import load_cluster
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import shorten
from meshwright.plans.layers.plan_of_layout import plan_of_layout, sequences_together
from meshwright.plans.rules.check_plan import check_plan

ABLE = replace(STACK, varies_by_layer=("layout", "recompute"), uneven_shares=True)
ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")


def layout(share=None, **degrees):
    keys = {"grid": degrees, "order": ORDER, "sequence_parallel": degrees.get("tp", 1) > 1}
    return keys if share is None else keys | {"batch_share": share}


def plan(share=(1, 3, 2, 2), micro_batch=1, batch=64, **others):
    """A plan of 16 devices; ``others`` are layouts of the last layers."""
    layouts = {"main": layout(share, dp_replicate=2, dp_shard=2, tp=2)} | others
    last = next(reversed(layouts))
    return changed(
        long_plan({"pp": 2, "dp_replicate": 8}, cluster="h100-sxm-80gb x 16"),
        layouts=layouts,
        layers={
            "embed": {"layout": "main"},
            "0..7": {"layout": "main"},
            "8..15": {"layout": last},
            "head": {"layout": last},
        },
        workload={"seq_len": 4096, "global_batch": batch},
        pipeline={"placement": (0, 1), "micro_batch": micro_batch, "schedule": {"name": "1f1b"}},
        states={"optimizer": ("dp_shard", "cp")},
    )


def problems(of, architecture=DENSE, stack=ABLE, **keys):
    return check_plan(of, graph(architecture), load_cluster("h100-sxm-80gb x 16"), stack, **keys)


def test_a_plan_with_shares_is_legal_and_has_no_short_form():
    found = plan()
    assert problems(found) == []
    assert sequences_together(found) == 8
    assert parse_plan(dump_plan(found)) == found
    assert shorten(found) is None


def test_layouts_without_shares_take_their_part_of_the_sum():
    found = plan(rest=layout(dp_shard=8))
    assert problems(found) == []
    assert plan_of_layout(found, "rest").pipeline.micro_batch == 1
    assert plan_of_layout(found, "main").pipeline.micro_batch == 1


UNLIKE = plan(rest=layout((1, 1, 1, 1, 1, 1, 1, 2), dp_shard=8))
UNDIVIDED = plan((1, 3, 2, 4), batch=40, rest=layout(dp_shard=8))
BROKEN = [
    (plan((0, 4, 2, 2)), "layouts.main.batch_share", "a whole number of sequences from 1", "[1, 4, 2, 2]"),
    (plan((-8, 4, 2, 2)), "layouts.main.batch_share", "a whole number of sequences from 1", "[1, 4, 2, 2]"),
    (
        plan((4, 4)),
        "layouts.main.batch_share",
        "2 shares ≠ dp_replicate·dp_shard = 2·2 = 4 replicas",
        "4 numbers",
    ),
    (plan(()), "layouts.main.batch_share", "0 shares ≠", "4 numbers"),
    (plan(micro_batch=2), "pipeline.micro_batch", "so micro_batch is 1", "micro_batch: 1"),
    (
        plan(batch=60),
        "workload.global_batch",
        "global_batch % (sum of batch_share) = 60 % (1 + 3 + 2 + 2) = 4 ≠ 0",
        "global_batch: 56 (gives 7 micro-batches)",
    ),
    (
        plan(batch=4),
        "workload.global_batch",
        "less than one micro-batch for each of 4 replicas",
        "8 (gives 1",
    ),
    (UNLIKE, "layouts.rest.batch_share", "= 9 ≠ 8, the sum of layouts.main.batch_share", "sum to 8"),
    (
        UNDIVIDED,
        "layouts.rest.grid",
        "sums to 10 sequences, and 10 % 8 replicas of rest = 2 ≠ 0",
        "sum to 40",
    ),
]


@pytest.mark.parametrize(("found", "field", "rule", "suggestion"), BROKEN)
def test_a_broken_rule_is_named(found, field, rule, suggestion):
    every = problems(found)
    assert any(
        problem.field == field and rule in problem.rule and suggestion in problem.suggestion
        for problem in every
    ), every


def test_all_problems_are_named_at_once():
    fields = {problem.field for problem in problems(plan((0, 4), micro_batch=2, batch=63))}
    assert fields >= {"layouts.main.batch_share", "pipeline.micro_batch", "workload.global_batch"}


def of_workload(**keys):
    found = plan()
    return found.model_copy(update={"workload": type(found.workload)(seq_len=4096, global_batch=64, **keys)})


EVEN_ONLY = [
    (plan(), SPARSE, "model", "experts"),
    (of_workload(optimizer="zo-sgd"), DENSE, "workload.optimizer", "without backward passes"),
    (
        of_workload(task="lora", adapter={"form": "lora", "rank": 8}),
        DENSE,
        "workload.adapter",
        "adapters",
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
    (changed(plan(), offload={"manager": "chunks"}), DENSE, "offload.manager", "states in chunks"),
]


@pytest.mark.parametrize(("found", "architecture", "field", "what"), EVEN_ONLY)
def test_what_runs_with_equal_replicas_only_is_refused_by_name(found, architecture, field, what):
    refused = [p for p in problems(found, architecture) if p.field == field and "with batch_share" in p.rule]
    assert refused
    assert all(what in problem.rule and problem.suggestion for problem in refused)


def test_a_stack_of_equal_replicas_refuses_shares():
    (problem,) = problems(plan(), stack=replace(ABLE, uneven_shares=False))
    assert problem.field == "layouts.main.batch_share"
    assert "all replicas equally many sequences" in problem.rule
    (remark,) = problems(plan(), stack=replace(ABLE, uneven_shares=False), stack_binds=False)
    assert remark.severity == "warning"
