"""Layers that are run again at the beginning of each stage: Megatron's words for them, and the plan that comes back."""

from dataclasses import replace
from itertools import pairwise

import pytest
from bridge_cases import exported, overrides
from export_cases import Case, case, degree, megatron_options, problem_fields
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from multi_token_models import further_file
from test_bridge_round_trip import plan_of
from test_megatron_export import stage_counts
from test_round_trip import FILES, long_of, sayable

from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.importing.explicit_stages import stage_texts
from meshwright.frameworks.importing.imported_file import Stage
from meshwright.frameworks.megatron_bridge.importing.importer import import_bridge
from meshwright.plans.layers.recompute_by_layer import layer_recomputes, with_layer_recomputes
from meshwright.verbs.import_ import ImportRequest, import_text

LAYERS = 32
FULL = "--recompute-granularity full --recompute-method block"


def staged(counts, again, chunks=1, **keys):
    """A plan for Llama with so many layers in each stage, of which those of ``again`` are run again."""
    pp = len(counts) // chunks
    schedule = "interleaved-1f1b" if chunks > 1 else "1f1b"
    this = case(
        layout={"pp": pp, "dp_shard": 16 // pp},
        sharding="zero1",
        pipeline={"schedule": schedule, "virtual_stages": chunks, "micro_batch": 1},
        **keys,
    )
    plan = with_layer_recomputes(this.plan, again)
    if len(set(counts)) > 1:
        last = len(counts) - 1
        texts = stage_texts(tuple(Stage(at == 0, count, at == last) for at, count in enumerate(counts)))
        pipeline = plan.pipeline.model_copy(update={"stages": texts})
        plan = plan.model_copy(update={"pipeline": pipeline})
    return replace(this, plan=plan)


def first_of(counts, first):
    return tuple("full" if place < first else "none" for count in counts for place in range(count))


def layers_run_again(found):
    """What each layer recomputes by Megatron's loop over the layers that a stage builds (core/recompute.py)."""
    again = []
    for count in stage_counts(found):
        for layer in range(count):
            again.append("full" if layer < degree(found, "--recompute-num-layers") else "none")
    return tuple(again)


def back(this: Case):
    text = this.to("megatron").files[FILES["megatron"]]
    return import_text(text, ImportRequest(model=this.plan.model, on=this.plan.cluster))


@st.composite
def staged_plans(draw):
    chunks = draw(st.sampled_from((1, 2)))
    stages = chunks * draw(st.sampled_from((2, 4)))
    cuts = draw(st.lists(st.integers(1, LAYERS - 1), min_size=stages - 1, max_size=stages - 1, unique=True))
    ends = [0, *sorted(cuts), LAYERS]
    uneven = [b - a for a, b in pairwise(ends)]
    counts = draw(st.sampled_from((uneven, [LAYERS // stages] * stages)))
    first = draw(st.integers(1, max(1, max(counts) - 1)))
    return staged(counts, first_of(counts, first), chunks)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(this=staged_plans())
def test_what_megatron_runs_again_is_what_the_plan_says_and_comes_back(this):
    assert this.errors == []
    found = megatron_options(this.to("megatron"))
    assert found["--recompute-granularity"] == ["full"]
    own = layer_recomputes(this.plan, LAYERS)
    if len(set(own)) > 1:
        assert found["--recompute-method"] == ["block"]
        assert layers_run_again(found) == own
    returned = back(this)
    assert not returned.problems
    assert sayable(long_of(returned.plan, this.model.architecture), "megatron") == sayable(
        this.plan, "megatron"
    )


def test_stages_with_fewer_layers_run_all_of_theirs_again():
    counts = [2, 10, 10, 10]
    this = staged(counts, first_of(counts, 3))
    found = megatron_options(this.to("megatron"))
    assert found["--recompute-num-layers"] == ["3"]
    assert found["--pipeline-model-parallel-layout"] == ["Et*2|(t*10|)*2t*10L"]
    assert back(this).plan == this.plan


def test_virtual_stages_count_each_for_itself():
    counts = [4] * 8
    this = staged(counts, first_of(counts, 1), chunks=2)
    found = megatron_options(this.to("megatron"))
    assert found["--num-virtual-stages-per-pipeline-rank"] == ["2"]
    assert layers_run_again(found).count("full") == 8
    of_ranks = staged(counts, first_of([8] * 4, 2), chunks=2)
    assert problem_fields(of_ranks, "megatron") == {"layers"}


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"megatron", "bridge"}))
def test_other_targets_refuse_layers_that_recompute_different_things(target):
    this = staged([8] * 4, first_of([8] * 4, 2))
    assert "layers" in problem_fields(this, target)


def test_bridge_has_the_same_values():
    counts = [5, 9, 9, 9]
    this = staged(counts, first_of(counts, 2))
    export = exported(this)
    model = overrides(export)["model"]
    assert (model["recompute_granularity"], model["recompute_method"]) == ("full", "block")
    assert model["recompute_num_layers"] == 2
    foreign = import_bridge(export.files["bridge/overrides.yaml"])
    assert sayable(plan_of(foreign, this), "megatron") == sayable(this.plan, "megatron")


def test_no_layer_and_all_layers_of_each_stage_are_one_word():
    said = "--num-layers 32 --pipeline-model-parallel-size 4 --bf16 --seq-length 8192 --global-batch-size 64"
    request = ImportRequest(model="llama-3.1-8b", on="h100-sxm-80gb x 16")
    for count, word in ((0, "none"), (8, "full"), (99, "full")):
        found = import_text(f"pretrain_gpt.py {said} {FULL} --recompute-num-layers {count}", request)
        assert found.plan.recompute == word


def test_layers_for_further_tokens_keep_everything(tmp_path):
    path = further_file(tmp_path, "deepseek-v3", 1)
    this = case(
        path,
        "h100-sxm-80gb x 64",
        workload={"seq_len": 4096},
        layout={"pp": 2, "dp_shard": 32, "ep": 16},
        sharding="zero1",
    )
    stages = (("embed", "0..30"), ("31..61", "head"))
    pipeline = this.plan.pipeline.model_copy(update={"stages": stages})
    kept, run = (
        replace(
            this,
            plan=with_layer_recomputes(this.plan, again).model_copy(update={"pipeline": pipeline}),
        )
        for again in (
            (*first_of([31, 30], 4), "none"),
            (*first_of([31, 30], 4), "full"),
        )
    )
    assert megatron_options(kept.to("megatron"))["--recompute-num-layers"] == ["4"]
    assert problem_fields(run, "megatron") == {"layers"}
    text = kept.to("megatron").files[FILES["megatron"]]
    returned = import_text(text, ImportRequest(model=path, on="h100-sxm-80gb x 64")).plan
    assert layer_recomputes(returned, 62) == layer_recomputes(kept.plan, 62)


def test_overlapped_exchanges_are_left_out_beside_recomputed_layers():
    this = case(
        "qwen3-30b-a3b",
        layout={"dp_shard": 16, "ep": 8},
        sharding="zero1",
        workload={"seq_len": 4096},
    )
    plan = with_layer_recomputes(this.plan, first_of([48], 3))
    overlapping = replace(this, plan=plan, stack=replace(this.stack, overlap_expert_exchange=True))
    export = overlapping.to("megatron")
    assert "stack.overlap_expert_exchange" in {refusal.key for refusal in export.refused}
    assert "--overlap-moe-expert-parallel-comm" not in megatron_options(export)
