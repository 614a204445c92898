"""Tiny models, random legal plans and lowered Programs that the tests of program/ share."""

from dataclasses import dataclass, replace
from functools import cache

from hypothesis import assume
from hypothesis import strategies as st

from meshwright.cluster.load import load_cluster
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.program import Program
from meshwright.schedules.generators import SCHEDULES
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack

DENSE = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
MOE = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "intermediate_size": 192,
    "moe_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "mlp_only_layers": [0],
    "decoder_sparse_step": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
GPT = {
    "model_type": "gpt2",
    "n_layer": 8,
    "n_embd": 64,
    "n_head": 8,
    "vocab_size": 1000,
    "n_positions": 512,
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
}
CONFIGS = {"dense": DENSE, "moe": MOE, "gpt": GPT}
FURTHER = {
    "model_type": "glm4_moe",
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "intermediate_size": 192,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "num_nextn_predict_layers": 2,
    "train_nextn_predict_layers": True,
}
DEEP = DENSE | {"num_hidden_layers": 64}


@cache
def model(name: str) -> ModelGraph:
    config = (CONFIGS | {"deep": DEEP, "further": FURTHER})[name]
    return build_graph(read_architecture(config, name, "a test"))


@dataclass(frozen=True)
class Lowered:
    """A Program beside what it was made of."""

    long: LongPlan
    model: ModelGraph
    stack: Stack
    program: Program


def short_plan(name: str = "dense", layout: dict | None = None, **keys) -> ShortPlan:
    workload = {"seq_len": 128, "global_batch": 16} | keys.pop("workload", {})
    layout = layout or {}
    degrees = [layout.get(axis, 1) for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp")]
    devices = 1
    for degree in degrees:
        devices *= degree
    data = {
        "plan": 1,
        "model": name,
        "cluster": f"h100-sxm-80gb x {devices}",
        "workload": workload,
        "stack": "megatron-core",
        "layout": layout,
    }
    return ShortPlan.model_validate(data | keys)


def lowered(short: ShortPlan, **facts) -> Lowered:
    """The Program of a plan; ``facts`` change the stack."""
    graph = model(short.model)
    return lowered_long(expand(short, graph.architecture), **facts)


def lowered_long(long: LongPlan, **facts) -> Lowered:
    graph, stack = model(long.model), replace(load_stack(long.stack), **facts)
    program = lower(long, graph, load_cluster(long.cluster), workload_of(long), stack)
    return Lowered(long, graph, stack, program)


def legal(short: ShortPlan) -> bool:
    graph = model(short.model)
    long = expand(short, graph.architecture)
    problems = check_plan(long, graph, load_cluster(long.cluster), load_stack(long.stack))
    return not any(problem.severity == "error" for problem in problems)


@st.composite
def short_plans(draw: st.DrawFn, name: str | None = None) -> ShortPlan:
    """Legal plans over every axis, sharding, schedule and recomputation."""
    name = name or draw(st.sampled_from(tuple(CONFIGS)))
    schedule = draw(st.sampled_from(("gpipe", "1f1b", "interleaved-1f1b", "dualpipe")))
    few = st.sampled_from((1, 1, 2, 4))
    layout = {axis: draw(few) for axis in ("pp", "cp", "tp", "dp_replicate", "dp_shard")}
    layout["pp"] = max(2, layout["pp"]) if SCHEDULES[schedule].chunked else layout["pp"]
    sharding = draw(st.sampled_from(("none", "zero1", "zero2", "zero3")))
    ranks = layout["cp"] * layout["tp"] * layout["dp_replicate"] * layout["dp_shard"]
    if name == "moe":
        layout["ep"] = draw(st.sampled_from([e for e in (1, 2, 4, 8) if ranks % e == 0]))
        layout["etp"] = draw(st.sampled_from([e for e in (1, 2, 4) if ranks // layout["ep"] % e == 0]))
    layout["rank_order"] = tuple(draw(st.permutations(("tp", "cp", "dp_shard", "dp_replicate", "pp"))))
    layout["sequence_parallel"] = draw(st.sampled_from((None, True, False)))
    stack = draw(st.sampled_from(("megatron-core", "meshwright")))
    has_units = schedule == "interleaved-1f1b" and sharding == "zero3" and stack == "meshwright"
    by_unit = "per-unit" if has_units else "per-step"
    able = layout["pp"] > 1 and stack == "meshwright" and schedule != "dualpipe"
    validation = draw(st.sampled_from((None, "before", "after"))) if able else None
    micro_batch = draw(st.sampled_from((1, 2)))
    micro_batches = layout["pp"] * draw(st.integers(1, 3))
    batch = layout["dp_replicate"] * layout["dp_shard"] * micro_batch * micro_batches
    offloads = (None, {"activations": "all"}, {"activations": 0.5, "ahead": 2})
    short = short_plan(
        name,
        layout,
        offload=draw(st.sampled_from(offloads)) if stack == "meshwright" else None,
        sharding=sharding if sharding != "none" or layout["dp_shard"] == 1 else "zero1",
        gather=draw(st.sampled_from((None, "per-layer", "per-micro-batch", by_unit, "per-step"))),
        pipeline={
            "schedule": {"name": schedule, "step_validation": validation},
            "micro_batch": micro_batch,
            "virtual_stages": draw(st.sampled_from((2, 4) if layout["pp"] == 2 else (2,)))
            if schedule == "interleaved-1f1b"
            else SCHEDULES[schedule].fixed_chunks or 1,
        },
        recompute=draw(st.sampled_from(("none", "selective", "full"))),
        workload={"seq_len": 128, "global_batch": batch},
        stack="generic" if schedule == "dualpipe" else stack,
    )
    assume(legal(short))
    return short
