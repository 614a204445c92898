"""Plans whose experts have a capacity: Megatron's options, read back, and targets that have none."""

import pytest
from export_cases import case, problem_fields

from meshwright.verbs.importing import Wanted, import_text

CAPACITIES = (
    {"factor": 1.25},
    {"factor": 1.0, "pad": True},
    {"factor": 0.5, "drop": "position"},
    {"factor": 2.0, "drop": "position", "pad": True},
)
FILES = {"megatron": "megatron/args.sh", "bridge": "bridge/overrides.yaml"}


def bounded(model="qwen3-30b-a3b", stack="megatron-core", layout=None, **capacity):
    layout = layout or {"dp_shard": 16, "ep": 8}
    return case(
        model, stack_name=stack, layout=layout, sharding="zero1", workload={"capacity": capacity or None}
    )


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("capacity", CAPACITIES, ids=str)
def test_what_is_written_is_read_back(target, capacity):
    this = bounded(**capacity)
    text = this.to(target).files[FILES[target]]
    back = import_text(text, Wanted(model=this.short.model, on=this.short.cluster))
    assert back.plan.workload.capacity == this.short.workload.capacity


@pytest.mark.parametrize("target", FILES)
def test_without_a_capacity_none_is_read(target):
    this = bounded()
    text = this.to(target).files[FILES[target]]
    assert "drop-policy" not in text
    back = import_text(text, Wanted(model=this.short.model, on=this.short.cluster))
    assert back.plan.workload.capacity is None


@pytest.mark.parametrize("words", ["-1.0", "nothing", "inf"])
def test_a_factor_that_is_none_is_no_capacity(words):
    text = bounded(factor=1.25).to("megatron").files[FILES["megatron"]].replace(" 1.25", f" {words}")
    back = import_text(text, Wanted(model="qwen3-30b-a3b", on="h100-sxm-80gb x 16"))
    assert back.plan.workload.capacity is None


@pytest.mark.parametrize("target", ["torchtitan", "deepspeed", "accelerate"])
def test_targets_whose_experts_take_all_tokens_refuse(target):
    assert "workload.capacity" in problem_fields(bounded(factor=1.0), target)


@pytest.mark.parametrize(
    ("scope", "layout", "refused"),
    [
        ("micro-batch", {"dp_shard": 16, "ep": 8}, False),
        ("sequence", {"dp_shard": 16, "ep": 8}, False),
        ("sequence", {"dp_shard": 8, "cp": 2, "ep": 8}, True),
        ("micro-batch", {"dp_shard": 8, "tp": 2, "sequence_parallel": True, "ep": 8}, True),
        ("rank", {"dp_shard": 8, "tp": 2, "sequence_parallel": True, "ep": 8}, False),
    ],
)
def test_megatron_counts_the_tokens_of_a_rank(scope, layout, refused):
    this = bounded(stack="meshwright", layout=layout, factor=1.0, scope=scope)
    fields = {"workload.capacity.scope"} if refused else set()
    if refused:
        assert problem_fields(this, "megatron") == fields
    else:
        assert "--moe-expert-capacity-factor 1.0" in this.to("megatron").files[FILES["megatron"]]
