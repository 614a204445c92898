"""Plans whose experts have a capacity: Megatron's options, read back, and targets that have none."""

from dataclasses import replace

import pytest
from export_cases import case, problem_fields, stack

from meshwright.verbs.import_ import ImportRequest, import_text

CAPACITIES = (
    {"factor": 1.25},
    {"factor": 1.0, "pad": True},
    {"factor": 0.5, "drop": "position"},
    {"factor": 2.0, "drop": "position", "pad": True},
)
FILES = {"megatron": "megatron/args.sh", "bridge": "bridge/overrides.yaml"}
ONE_COPY_PER_EXPERT = {
    "megatron": stack("megatron-core"),
    "bridge": replace(stack("megatron-bridge"), deduplicates_exchange=False),
}
"""Stacks of the targets whose exchange can pad."""


def bounded(model="qwen3-30b-a3b", stack="megatron-core", layout=None, **capacity):
    layout = layout or {"dp_shard": 16, "ep": 8}
    return case(
        model, stack_name=stack, layout=layout, sharding="zero1", workload={"capacity": capacity or None}
    )


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("capacity", CAPACITIES, ids=str)
def test_what_is_written_is_read_back(target, capacity):
    this = replace(bounded(**capacity), stack=ONE_COPY_PER_EXPERT[target])
    text = this.to(target).files[FILES[target]]
    back = import_text(text, ImportRequest(model=this.short.model, on=this.short.cluster))
    assert back.plan.workload.capacity == this.short.workload.capacity


def test_padding_is_refused_where_the_exchange_sends_a_token_once_to_a_node():
    assert problem_fields(bounded(factor=1.0, pad=True), "bridge") == {"workload.capacity.pad"}


@pytest.mark.parametrize("target", FILES)
def test_without_a_capacity_none_is_read(target):
    this = bounded()
    text = this.to(target).files[FILES[target]]
    assert "drop-policy" not in text
    back = import_text(text, ImportRequest(model=this.short.model, on=this.short.cluster))
    assert back.plan.workload.capacity is None


@pytest.mark.parametrize("words", ["-1.0", "nothing", "inf"])
def test_a_factor_that_is_none_is_no_capacity(words):
    text = bounded(factor=1.25).to("megatron").files[FILES["megatron"]].replace(" 1.25", f" {words}")
    back = import_text(text, ImportRequest(model="qwen3-30b-a3b", on="h100-sxm-80gb x 16"))
    assert back.plan.workload.capacity is None


@pytest.mark.parametrize("target", ["torchtitan", "deepspeed", "accelerate"])
def test_targets_whose_experts_take_all_tokens_refuse(target):
    assert "workload.capacity" in problem_fields(bounded(factor=1.0), target)


@pytest.mark.parametrize("scope", ["micro-batch", "sequence"])
def test_megatron_counts_no_tokens_but_those_of_a_rank(scope):
    assert problem_fields(bounded(factor=1.0, scope=scope), "megatron") == {"workload.capacity.scope"}


def test_megatron_counts_the_tokens_of_a_rank():
    layout = {"dp_shard": 8, "tp": 2, "sequence_parallel": True, "ep": 8}
    this = bounded(stack="meshwright", layout=layout, factor=1.0, scope="rank")
    assert "--moe-expert-capacity-factor 1.0" in this.to("megatron").files[FILES["megatron"]]
