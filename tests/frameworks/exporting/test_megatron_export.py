"""Reads the emitted text back, by rules written here and not taken from the exporter."""

import re
from dataclasses import replace

import pytest
from export_cases import Case, case, degree, megatron_options, model, problem_fields, short_plans
from hypothesis import assume, given, settings

from meshwright.errors import UnsupportedError
from meshwright.plans.forms.long import Schedule, ShardAxis, States

Options = dict[str, list[str]]


@given(this=short_plans())
@settings(max_examples=40, deadline=None)
def test_the_degrees_and_batches_of_the_plan_can_be_read_back(this: Case) -> None:
    assume(not this.errors)
    try:
        export = this.to("megatron")
    except UnsupportedError:
        assume(False)
    found, short = megatron_options(export), this.short
    layout = short.layout
    names = {
        "--tensor-model-parallel-size": layout.tp,
        "--pipeline-model-parallel-size": layout.pp,
        "--context-parallel-size": layout.cp,
        "--expert-model-parallel-size": layout.ep,
        "--expert-tensor-parallel-size": layout.etp,
        "--micro-batch-size": short.pipeline.micro_batch,
        "--global-batch-size": short.workload.global_batch,
        "--seq-length": short.workload.seq_len,
    }
    assert {name: degree(found, name) for name in names} == names
    inner = layout.tp * layout.pp * layout.cp
    assert this.cluster.devices // inner == layout.dp_replicate * layout.dp_shard
    assert ("--sequence-parallel" in found) == (layout.tp > 1)
    counts = stage_counts(found)
    assert sum(counts) == this.model.architecture.layers
    assert len(counts) == layout.pp * short.pipeline.virtual_stages


def stage_counts(found: Options) -> list[int]:
    """Layers per stage as Megatron reads its options: a layout text, or equal stages."""
    text = found.get("--pipeline-model-parallel-layout", [""])[0]
    if not text:
        stages = degree(found, "--pipeline-model-parallel-size")
        stages *= degree(found, "--num-virtual-stages-per-pipeline-rank")
        assert degree(found, "--num-layers") % stages == 0
        return [degree(found, "--num-layers") // stages] * stages
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda hit: hit[1] * int(hit[2]), text)
    assert text.startswith("E")
    assert text.endswith("L")
    assert set(text) <= set("EtL|")
    return [stage.count("t") for stage in text.split("|")]


def parameters(found: Options, vocab: int) -> int:
    """Parameters of the GPT model that these options build, by the shapes of Megatron's layers."""
    hidden, layers = degree(found, "--hidden-size"), degree(found, "--num-layers")
    norm = hidden * (2 if found["--normalization"] == ["LayerNorm"] else 1)
    bias = "--disable-bias-linear" not in found
    per_layer = [attention_parameters(found, hidden, bias) + 2 * norm] * layers
    routed = [0] * layers
    if "--num-experts" in found:
        routed = evaluate(found.get("--moe-layer-freq", [f"([1]*{layers})"])[0])
    for index, flag in enumerate(routed):
        per_layer[index] += (
            expert_parameters(found, hidden, bias) if flag else dense_parameters(found, hidden, bias)
        )
    tables = 1 if "--untie-embeddings-and-output-weights" not in found else 2
    learned = found["--position-embedding-type"] == ["learned_absolute"]
    positions = degree(found, "--max-position-embeddings") * hidden if learned else 0
    return sum(per_layer) + tables * vocab * hidden + positions + norm


def evaluate(pattern: str) -> list[int]:
    """``([0]*3+[1]*58)`` as a list."""
    assert re.fullmatch(r"[\d\[\]()+*]+", pattern)
    runs = re.findall(r"\[([01])\]\*(\d+)", pattern)
    return [int(flag) for flag, count in runs for _ in range(int(count))]


def matrix(inputs: int, outputs: int, bias: bool) -> int:
    return inputs * outputs + (outputs if bias else 0)


def attention_parameters(found: Options, hidden: int, bias: bool) -> int:
    heads = degree(found, "--num-attention-heads")
    if "--multi-latent-attention" in found:
        rank, kv_rank = degree(found, "--q-lora-rank"), degree(found, "--kv-lora-rank")
        nope, rope, value = (
            degree(found, f"--{n}") for n in ("qk-head-dim", "qk-pos-emb-head-dim", "v-head-dim")
        )
        assert "--qk-layernorm" in found
        queries = hidden * rank + rank + rank * heads * (nope + rope)
        keys = hidden * (kv_rank + rope) + kv_rank + kv_rank * heads * (nope + value)
        return queries + keys + heads * value * hidden
    width = degree(found, "--kv-channels")
    groups = degree(found, "--num-query-groups") if "--group-query-attention" in found else heads
    qkv = matrix(hidden, (heads + 2 * groups) * width, bias or "--add-qkv-bias" in found)
    norms = 2 * width if "--qk-layernorm" in found else 0
    sinks = heads if found.get("--softmax-type") == ["learnable"] else 0
    return qkv + matrix(heads * width, hidden, bias) + norms + sinks


def is_gated(found: Options) -> bool:
    return "--swiglu" in found or "--quick-geglu" in found


def mlp(hidden: int, width: int, gated: bool, bias: bool) -> int:
    return matrix(hidden, 2 * width if gated else width, bias) + matrix(width, hidden, bias)


def dense_parameters(found: Options, hidden: int, bias: bool) -> int:
    return mlp(hidden, degree(found, "--ffn-hidden-size"), is_gated(found), bias)


def expert_parameters(found: Options, hidden: int, bias: bool) -> int:
    experts, gated = degree(found, "--num-experts"), is_gated(found)
    shared = int(found.get("--moe-shared-expert-intermediate-size", ["0"])[0])
    each = mlp(hidden, degree(found, "--moe-ffn-hidden-size"), gated, bias)
    return experts * each + matrix(hidden, experts, bias) + mlp(hidden, shared, gated, False)


COMPLETE = (
    *(
        "llama-3.1-8b",
        "llama-3.1-405b",
        "llama-3.2-1b",
        "gpt-3-175b",
        "qwen2.5-72b",
        "qwen3-32b",
        "mistral-7b-v0.3",
    ),
    *("mixtral-8x22b", "qwen3-235b-a22b", "deepseek-v3", "kimi-k2", "gpt-oss-120b"),
)


@pytest.mark.parametrize("name", COMPLETE)
def test_the_options_build_a_model_of_the_right_size(name: str) -> None:
    this = case(name, workload={"seq_len": 2048})
    assert (
        parameters(megatron_options(this.to("megatron")), this.model.architecture.vocab)
        == this.model.parameters
    )


def test_windows_attention_sinks_and_biases_of_gpt_oss() -> None:
    found = megatron_options(case("gpt-oss-20b").to("megatron"))
    assert found["--window-size"] == ["127,0"]
    windowed = [window is not None for window in model("gpt-oss-20b").architecture.windows]
    assert evaluate(found["--window-attn-skip-freq"][0]) == [int(flag) for flag in windowed]
    assert {"--quick-geglu", "--no-bias-dropout-fusion"} <= set(found)
    assert "--disable-bias-linear" not in found


def test_latent_attention_does_not_ask_for_fused_rotary_embedding() -> None:
    found = megatron_options(case("deepseek-v3").to("megatron"))
    assert {"--no-rope-fusion", "--moe-router-enable-expert-bias"} <= set(found)
    assert found["--moe-router-score-function"] == ["sigmoid"]


@pytest.mark.parametrize(
    ("sharding", "layout", "wanted", "absent"),
    [
        ("none", {"dp_replicate": 16}, {"--overlap-grad-reduce": []}, "--use-distributed-optimizer"),
        ("zero1", {"dp_shard": 16}, {"--use-distributed-optimizer": []}, "--use-megatron-fsdp"),
        (
            "zero1",
            {"dp_shard": 4, "dp_replicate": 4},
            {"--num-distributed-optimizer-instances": ["4"]},
            "--use-megatron-fsdp",
        ),
        ("zero2", {"dp_shard": 16}, {"--data-parallel-sharding-strategy": ["optim_grads"]}, "--num-experts"),
        (
            "zero3",
            {"dp_shard": 8, "dp_replicate": 2},
            {
                "--data-parallel-sharding-strategy": ["optim_grads_params"],
                "--ckpt-format": ["fsdp_dtensor"],
                "--num-distributed-optimizer-instances": ["2"],
            },
            "--outer-dp-sharding-strategy",
        ),
    ],
)
def test_states(sharding: str, layout: dict[str, int], wanted: Options, absent: str) -> None:
    found = megatron_options(case(layout=layout, sharding=sharding).to("megatron"))
    assert wanted.items() <= found.items()
    assert absent not in found


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ({}, ""),
        ({"layout": {"dp_shard": 16, "ep": 1}}, "ep > 1"),
        ({"layout": {"dp_shard": 8, "ep": 8, "pp": 2}}, "virtual stages"),
        ({"recompute": "full"}, "recomputed"),
    ],
)
def test_exchanges_beside_compute_where_megatron_runs_them_so(rest: dict[str, object], why: str) -> None:
    given: dict[str, object] = {"layout": {"dp_shard": 16, "ep": 8}, "sharding": "zero1", **rest}
    this = case("qwen3-30b-a3b", **given)  # type: ignore[arg-type]
    this = replace(this, stack=replace(this.stack, overlap_expert_exchange=True))
    export = this.to("megatron")
    assert ("--overlap-moe-expert-parallel-comm" in megatron_options(export)) == (not why)
    refused = [r.why for r in export.refused if r.key == "stack.overlap_expert_exchange"]
    assert [why in text for text in refused] == [True] * bool(why)
    dense = case(stack_name="megatron-core", sharding="zero1")
    dense = replace(dense, stack=replace(dense.stack, overlap_expert_exchange=True)).to("megatron")
    assert "--overlap-moe-expert-parallel-comm" not in megatron_options(dense)


@pytest.mark.parametrize(
    ("layout", "axes"),
    [
        ({"dp_shard": 8, "cp": 2}, ("dp_shard",)),
        ({"dp_shard": 8, "dp_replicate": 2}, ("dp_shard", "dp_replicate")),
    ],
)
def test_states_over_other_axes_than_shard_and_context_are_refused(
    layout: dict[str, int], axes: tuple[ShardAxis, ...]
) -> None:
    this = case(layout=layout, sharding="zero1")
    part = this.plan.model_copy(update={"states": States(optimizer=axes)})
    assert problem_fields(replace(this, plan=part), "megatron") == {"states"}


@pytest.mark.parametrize(
    ("order", "mapping"),
    [
        (["tp", "cp", "dp_shard", "dp_replicate", "pp"], False),
        (["tp", "cp", "pp", "dp_shard", "dp_replicate"], True),
    ],
)
def test_the_two_orders_of_ranks(order: list[str], mapping: bool) -> None:
    layout = {"pp": 2, "dp_shard": 4, "tp": 2, "rank_order": order}
    found = megatron_options(case(layout=layout, sharding="zero1").to("megatron"))
    assert ("--use-tp-pp-dp-mapping" in found) == mapping


@pytest.mark.parametrize(
    ("recompute", "wanted"),
    [
        ("none", {}),
        ("full", {"--recompute-granularity": ["full"], "--recompute-num-layers": ["1"]}),
        ("selective", {"--recompute-granularity": ["selective"], "--recompute-modules": ["core_attn"]}),
        (("mlp", "layernorm"), {"--recompute-modules": ["mlp", "layernorm"]}),
    ],
)
def test_recomputation(recompute: object, wanted: Options) -> None:
    found = megatron_options(case(recompute=recompute).to("megatron"))
    assert wanted.items() <= found.items()
    assert wanted or not [name for name in found if name.startswith("--recompute")]


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [
        ("bf16", {"--bf16": []}),
        ("fp16", {"--fp16": []}),
        ("fp8", {"--bf16": [], "--fp8-format": ["hybrid"]}),
        ("mxfp8", {"--fp8-recipe": ["mxfp8"]}),
        ("nvfp4", {"--fp4-format": ["e2m1"]}),
    ],
)
def test_precisions(precision: str, wanted: Options) -> None:
    found = megatron_options(case(devices="b200 x 16", workload={"precision": precision}).to("megatron"))
    assert wanted.items() <= found.items()


def test_sequences_longer_than_the_model_was_made_for() -> None:
    found = megatron_options(case("llama-2-7b", workload={"seq_len": 32768}).to("megatron"))
    assert found["--max-position-embeddings"] == ["32768"]
    assert problem_fields(case("gpt-3-175b", workload={"seq_len": 4096}), "megatron") == {"workload.seq_len"}


@pytest.mark.parametrize(
    ("field", "name", "changes"),
    [
        ("stack", "gemma-2-9b", {}),
        ("stack", "bloom-176b", {}),
        ("pipeline.schedule", "llama-3.1-8b", {"pipeline": {"schedule": "gpipe"}}),
        (
            "workload.global_batch",
            "llama-3.1-8b",
            {
                "layout": {"pp": 4, "dp_shard": 4},
                "workload": {"global_batch": 24},
                "pipeline": {"schedule": "interleaved-1f1b", "virtual_stages": 2},
            },
        ),
        ("gather", "llama-3.1-8b", {"sharding": "zero3", "gather": "per-micro-batch"}),
        ("gather", "llama-3.1-8b", {"sharding": "zero3", "gather": "per-unit"}),
        ("recompute", "llama-3.1-8b", {"recompute": ("moe_act",)}),
        ("recompute", "mixtral-8x7b", {"recompute": ("mla_up_proj", "shared_experts")}),
        (
            "workload.seq_len",
            "llama-3.1-8b",
            {"layout": {"dp_shard": 4, "cp": 4}, "workload": {"seq_len": 1028}},
        ),
        (
            "layout.sequence_parallel",
            "mixtral-8x7b",
            {"layout": {"dp_shard": 8, "tp": 2, "sequence_parallel": False}},
        ),
        ("layout.etp", "gpt-oss-20b", {"layout": {"dp_shard": 8, "tp": 2, "etp": 2}}),
        (
            "layout.rank_order",
            "llama-3.1-8b",
            {
                "layout": {
                    "dp_shard": 8,
                    "tp": 2,
                    "rank_order": ["dp_shard", "tp", "cp", "dp_replicate", "pp"],
                },
                "sharding": "zero1",
            },
        ),
        (
            "layout.rank_order",
            "mixtral-8x7b",
            {
                "layout": {
                    "dp_shard": 4,
                    "tp": 2,
                    "pp": 2,
                    "ep": 4,
                    "rank_order": ["tp", "cp", "pp", "dp_shard", "dp_replicate"],
                }
            },
        ),
        (
            "layout.ep",
            "mixtral-8x7b",
            {
                "layout": {"dp_shard": 2, "dp_replicate": 4, "ep": 8},
                "sharding": "zero1",
                "devices": "h100-sxm-80gb x 8",
            },
        ),
    ],
)
def test_what_megatron_cannot_say_is_refused_by_name(
    field: str, name: str, changes: dict[str, object]
) -> None:
    assert field in problem_fields(case(name, **changes), "megatron")


def test_placements_and_lone_virtual_stages_are_refused() -> None:
    this = case(layout={"pp": 2, "dp_shard": 8}, sharding="zero1")
    v_shaped = this.plan.pipeline.model_copy(
        update={"placement": (0, 1, 1, 0), "schedule": Schedule(name="interleaved-1f1b")}
    )
    fields = problem_fields(
        replace(this, plan=this.plan.model_copy(update={"pipeline": v_shaped})), "megatron"
    )
    assert fields == {"pipeline.placement"}
    lone = case(pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 2})
    assert problem_fields(lone, "megatron") == {"pipeline.schedule"}


@pytest.mark.parametrize(
    ("name", "family", "detail"),
    [
        ("glm-4.5-air", "glm4_moe", "a part of each head"),
        ("phi-4-mini", "phi3", "a part of each head"),
        ("granite-3.1-2b", "granite", "multipliers"),
        ("stablelm-2-1.6b", "stablelm", "a part of each head"),
        ("ernie-4.5-0.3b", "ernie4_5", "pairs of neighbours"),
    ],
)
def test_models_with_details_that_no_fact_describes_are_named(name: str, family: str, detail: str) -> None:
    (entry,) = case(name, workload={"seq_len": 4096}).to("megatron").refused
    assert (entry.key, entry.value) == ("model.family", family)
    assert detail in entry.why


@pytest.mark.parametrize("target", ["megatron", "bridge", "torchtitan"])
@pytest.mark.parametrize("name", ["gemma-2b", "llama-4-scout", "olmo-7b"])
def test_models_that_a_target_has_no_words_for_are_refused(name: str, target: str) -> None:
    with pytest.raises(UnsupportedError, match=f"does not have {name}"):
        case(name, workload={"seq_len": 2048}).to(target)


def test_whole_rotations_are_written() -> None:
    assert not case("phi-4", workload={"seq_len": 4096}).to("megatron").refused


def test_the_notion_of_another_stack_is_named() -> None:
    refused = case(stack_name="torchtitan", recompute="selective", sharding="zero3").to("megatron").refused
    assert [entry.key for entry in refused] == ["stack", "recompute"]
