"""What ``synchronise`` does not do yet is refused by name, alone and with other parts of a plan."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, changed, cluster, graph, short_plan

from meshwright.model.router import Routing
from meshwright.plans.forms.conversion import expand
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.rule_input import RuleInput
from meshwright.plans.rules.synchronisation.exchange_support import (
    NOT_SUPPORTED,
    keys_of_entries,
    parts_of_plans,
)
from meshwright.stack.load import load_stack

ENTRY = {"state": "parameter", "over": "dp_replicate"}
LAYOUT = {"dp_replicate": 32, "tp": 2}
MOVING = Routing(scores="sigmoid", correction_speed=0.001)
MEDIAN = {"state": "gradient", "over": "dp_replicate", "combine": "median"}


def plan(entry=ENTRY, layout=None, **keys):
    keys = {"sharding": "none", "stack": "generic"} | keys
    entries = entry if isinstance(entry, tuple) else (entry,)
    return expand(short_plan(layout or LAYOUT, synchronise=entries, **keys), DENSE)


def case(this, architecture=DENSE):
    return RuleInput(this, graph(architecture), cluster(64), load_stack("generic"))


@pytest.mark.parametrize(
    ("entry", "keys", "key"),
    [
        ({"over": ("dp_replicate", "dp_shard")}, {}, "over"),
        ({"with": "pairs"}, {}, "with"),
        ({"with": {"graph": "ring"}}, {}, "with"),
        ({"with": {"quorum": 3}}, {}, "with"),
        ({"combine": {"trimmed_mean": 1}}, {}, "combine"),
        ({"combine": "median"}, {}, "combine"),
        ({"state": "gradient", "combine": {"stale": {"power": 0.5}}}, {}, "combine"),
        (
            {
                "state": "gradient",
                "combine": {"coded": {"scheme": "m-sgc", "burst": 1, "window": 2, "stragglers": 1}},
            },
            {},
            "combine.coded.scheme",
        ),
        ({"state": "gradient", "with": {"server": {"arrivals": 4}}}, {}, "with"),
        ({"every": "never"}, {}, "every"),
        ({"every": {"probability": 0.1}}, {}, "every.probability"),
        ({"state": "first_moment"}, {"dtypes": {"first_moment": "bf16"}}, "state"),
        ({"state": "optimizer"}, {"dtypes": {"second_moment": "fp8"}}, "state"),
    ],
)
def test_keys_of_entries_are_refused(entry, keys, key):
    (problem,) = keys_of_entries(case(plan(ENTRY | entry, **keys)))
    assert problem.field == f"synchronise.0.{key}"
    assert "not supported yet" in problem.rule
    assert problem.suggestion


def test_narrow_moments_that_no_entry_names_are_fine():
    assert list(keys_of_entries(case(plan(dtypes={"first_moment": "bf16"})))) == []
    assert list(keys_of_entries(case(plan(ENTRY | {"state": "second_moment"})))) == []


TOKENS = {"state": "expert_token", "over": "ep", "compress": {"lsh": {}}}
ONCE = replace(load_stack("generic"), deduplicates_exchange=True)


@pytest.mark.parametrize(
    ("entry", "keys", "stack", "key"),
    [
        (TOKENS | {"compress": {"lsh": {}, "layers": "0..1"}}, {}, "generic", "compress.layers"),
        (TOKENS, {"workload": {"capacity": 1.0}}, "generic", "state"),
        (TOKENS, {}, ONCE, "state"),
    ],
)
def test_buckets_of_tokens_are_refused_with_what_they_do_not_go_with(entry, keys, stack, key):
    stack = load_stack(stack) if isinstance(stack, str) else stack
    (problem,) = keys_of_entries(replace(case(plan(entry, **keys)), stack=stack))
    assert problem.field == f"synchronise.0.{key}"
    assert "not supported yet" in problem.rule
    assert list(keys_of_entries(replace(case(plan(ENTRY, **keys)), stack=stack))) == []
    assert list(keys_of_entries(case(plan(TOKENS)))) == []


def _two_layouts():
    this = plan()
    data = this.model_dump(by_alias=True)
    return changed(
        this,
        layouts=data["layouts"] | {"second": data["layouts"]["main"]},
        layers=data["layers"] | {"head": {"layout": "second"}},
    )


def _shares():
    this = plan()
    layouts = this.model_dump(by_alias=True)["layouts"]
    return changed(this, layouts={"main": layouts["main"] | {"batch_share": (1,) * 31 + (33,)}})


PARTS = {
    "several layouts": _two_layouts,
    "uneven shares of batch or states": _shares,
    "model states on the host": lambda: plan(offload={"optimizer": "all"}),
    "steps that are validated afterwards": lambda: plan(
        layout={"pp": 2, "dp_replicate": 32},
        pipeline={"schedule": {"name": "1f1b", "step_validation": "after"}},
    ),
    "adapters that differ by replica": lambda: plan(
        workload={"task": "lora", "adapter": {"form": "hd-pissa", "rank": 2}}
    ),
    "an optimizer without backward passes": lambda: plan(workload={"optimizer": "zo-sgd"}),
    "an optimizer of whole matrices with sharded states": lambda: plan(
        layout={"dp_replicate": 4, "dp_shard": 16}, sharding="zero1", workload={"optimizer": "muon"}
    ),
    "encoded exchanges of what cp shards too": lambda: plan(
        {"state": "gradient", "over": "dp_shard", "compress": {"quantise": "int8"}},
        layout={"dp_shard": 32, "cp": 2},
        sharding="zero1",
    ),
    "encoded or combined gradients of a tied table on two pipeline ranks": lambda: plan(
        {"state": "gradient", "over": "dp_replicate", "compress": {"quantise": "int8"}},
        layout={"pp": 2, "dp_replicate": 32},
    ),
    "combined gradients that are reduced several times in a step": lambda: plan(
        MEDIAN, layout={"dp_replicate": 8, "dp_shard": 8}, sharding="zero3", gather="per-layer"
    ),
    "combined gradients and another entry of gradients": lambda: plan(
        (MEDIAN, {"state": "gradient", "over": "dp_shard", "compress": {"top_k": 0.1}}),
        layout={"dp_replicate": 8, "dp_shard": 8},
    ),
    "late replicas and a vocabulary that is spread over the pipeline": lambda: plan(
        MEDIAN | {"with": {"quorum": 6}},
        layout={"pp": 2, "dp_replicate": 32},
        pipeline={"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}},
    ),
    "late replicas and routers": lambda: plan(MEDIAN | {"with": {"quorum": 6}}),
    "several chains of stages": lambda: plan(
        layout={"pp": 2, "dp_replicate": 32}, pipeline={"schedule": "dualpipe", "virtual_stages": 2}
    ),
}


@pytest.mark.parametrize("part", NOT_SUPPORTED)
def test_parts_of_plans_are_refused(part):
    refused = PARTS[part]()
    architecture = replace(DENSE, tied_embeddings="tied" in part)
    if "routers" in part:
        architecture = replace(DENSE, numerics=replace(DENSE.numerics, routing=MOVING))
    (problem,) = parts_of_plans(case(refused, architecture))
    assert problem.field == "synchronise"
    assert problem.rule.startswith(part)
    assert problem.suggestion
    assert list(parts_of_plans(case(refused.model_copy(update={"synchronise": ()})))) == []


def test_usual_plans_have_all_parts():
    assert list(parts_of_plans(case(plan()))) == []


@pytest.mark.parametrize(
    ("stack", "warned"), [("megatron-core", True), ("torchtitan", True), ("meshwright", False)]
)
def test_stacks_that_exchange_gradients_alone_warn_in_predictions_and_refuse_otherwise(stack, warned):
    this = plan(stack=stack)
    for binds, severity in ((False, "warning"), (True, "error")):
        found = check_plan(this, graph(DENSE), cluster(64), load_stack(stack), stack_binds=binds)
        of_entries = [(one.value, one.severity) for one in found if one.field == "synchronise"]
        assert of_entries == ([("1 entry", severity)] if warned else [])


def test_good_entries_are_accepted():
    assert check_plan(plan(), graph(DENSE), cluster(64), load_stack("generic")) == []
