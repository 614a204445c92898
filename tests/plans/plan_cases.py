"""Small models, clusters, stacks and random plans that the tests of plan/ share."""

from dataclasses import replace
from typing import get_args

from hypothesis import strategies as st

from meshwright.cluster.cluster import Cluster, Device, Node, Pool
from meshwright.model.architecture import Architecture, Experts, LatentAttention
from meshwright.model.graph import ModelGraph
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.context_parallel import SequencePieces
from meshwright.plans.context_parallel_forms import CONTEXT_FORMS
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.dtypes import GatherType, GradientType, MasterType, MomentType
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.stack.stack import Stack
from meshwright.units import BytesPerSecondPerDevice, BytesPerSecondPerNode

DENSE = Architecture(
    name="dense",
    family="llama",
    source="a test",
    layers=16,
    hidden=4096,
    vocab=32000,
    heads=32,
    kv_heads=8,
    head_dim=128,
    v_head_dim=128,
    intermediate=14336,
    gated=True,
    activation="silu",
    max_positions=8192,
    tied_embeddings=False,
    windows=(None,) * 16,
)
SPARSE = replace(
    DENSE,
    name="sparse",
    intermediate=0,
    moe=Experts(experts=8, experts_per_token=2, intermediate=14336, layers=(True,) * 16),
)
LATENT = replace(
    DENSE,
    name="latent",
    kv_heads=32,
    latent=LatentAttention(q_rank=1536, kv_rank=512, qk_nope_dim=128, qk_rope_dim=64, v_dim=128),
    moe=Experts(
        experts=64,
        experts_per_token=6,
        intermediate=2048,
        shared_intermediate=2048,
        layers=(False,) * 3 + (True,) * 13,
    ),
)
STACK = Stack(
    name="test-stack",
    release="1.0",
    source="a test",
    recomputes=("none", "selective", "full", "core_attn", "layernorm", "mlp", "moe_act", "mla_up_proj"),
)
DEVICE = Device(
    id="test-device",
    vendor="none",
    year=2024,
    peak_flops={"fp32": 5e13, "bf16": 1e15},
    memory_bytes=80 * 2**30,
    memory_bytes_per_s=3e12,
    scaleup_bytes_per_s=BytesPerSecondPerDevice(4.5e11),
    scaleup_link="link",
    power_w=700.0,
    source="a test",
    confidence="high",
)
NODE = Node(
    name="node",
    devices=8,
    scaleup_domain=8,
    scaleup_bytes_per_s=BytesPerSecondPerDevice(4.5e11),
    nic_count=8,
    nic_bytes_per_s=BytesPerSecondPerNode(4e11),
)


def graph(architecture: Architecture) -> ModelGraph:
    return build_graph(architecture)


def cluster(devices: int) -> Cluster:
    return Cluster(
        name=f"{devices} devices", pools=(Pool(name="pool", device=DEVICE, node=NODE, count=devices),)
    )


def short_plan(layout: dict | None = None, **keys: object) -> ShortPlan:
    """64 devices by default: pp 4, dp_shard 8, tp 2, zero1, 1f1b."""
    workload = {"seq_len": 4096, "global_batch": 64} | keys.pop("workload", {})
    data = {
        "plan": 1,
        "model": "dense",
        "cluster": "test-device x 64",
        "workload": workload,
        "stack": "test-stack",
        "layout": {"pp": 4, "dp_shard": 8, "tp": 2} if layout is None else layout,
        "sharding": "zero1",
    }
    return ShortPlan.model_validate(data | keys)


def long_plan(layout: dict | None = None, **keys: object) -> LongPlan:
    return expand(short_plan(layout, **keys), DENSE)


def changed(plan: LongPlan, **keys: object) -> LongPlan:
    """The long plan with some top-level keys replaced by plain data, validated again."""
    return LongPlan.model_validate(plan.model_dump(by_alias=True) | keys)


OF_OTHER_LISTS = (
    long_plan({"pp": 2, "dp_shard": 32}, pipeline={"schedule": {"lists": ("0F0,0B0", "1F0,1B0")}}),
    {"stack": replace(STACK, written_lists=True)},
    "workload.global_batch",
    "has 1 micro-batches, and global_batch / (dp_replicate·dp_shard·micro_batch) = 2",
    "global_batch: 32",
)
"""A plan of lists for other micro-batches, with what is to be said of it."""

OFFLOADING = (
    (
        long_plan(offload={"activations": 0.5}),
        {},
        "offload.activations",
        "test-stack@1.0 does not keep activations of passes on the host",
        "take offload out, or stack: meshwright",
    ),
    (
        long_plan({"dp_shard": 64}, offload={"activations": 0.5}),
        {},
        "offload.activations",
        "nothing goes out: no pass waits for its backward pass while 3 others run",
        "pp > 1, or take offload out",
    ),
)
"""Plans that offload and can not, or need not."""
SPREAD_VOCABULARY = {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}}
STATES_ON_HOST = (
    (
        long_plan(offload={"optimizer": "all"}),
        {},
        "offload.optimizer",
        "test-stack@1.0 keeps no model states on the host",
        "take offload out, or stack: meshwright",
    ),
    (
        long_plan(offload={"parameters": "all"}, sharding="zero3", gather="per-step"),
        {},
        "offload.parameters",
        "parameters come from the host layer by layer, and gather is per-step",
        "gather: per-layer",
    ),
    (
        long_plan(offload={"parameters": 0.5}, sharding="zero1"),
        {},
        "offload.parameters",
        "zero1 gathers whole parameters behind the step, and their home is the host",
        "sharding: zero3, or none",
    ),
    (
        long_plan(offload={"optimizer": 0.5}, pipeline=SPREAD_VOCABULARY),
        {},
        "offload.optimizer",
        "spread over pipeline ranks (vocab-1) stay on the device",
        "the vocabulary at the ends, or take offload out",
    ),
    (
        long_plan(offload={"optimizer": "all"}, workload={"optimizer": "muon"}),
        {},
        "offload.optimizer",
        "the host only steps element by element, and muon multiplies matrices",
        "take it out, or optimizer: adamw",
    ),
)
"""Plans with states on the host that passes can not fetch, or that the stack does not keep there."""
MORE = (OF_OTHER_LISTS, *OFFLOADING, *STATES_ON_HOST)

degree = st.sampled_from((1, 2, 3, 4, 8))
name = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12)
recompute = st.sampled_from(("none", "selective", "full", ("mlp", "core_attn"), ("moe_act",)))
dtypes = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "gradient": st.sampled_from(get_args(GradientType)),
        "gather": st.sampled_from(get_args(GatherType)),
        "master": st.sampled_from(get_args(MasterType)),
        "second_moment": st.sampled_from(get_args(MomentType)),
    },
)
shares = st.sampled_from(("none", "all", 0.0, 0.25, 1.0))
offloads = st.none() | st.fixed_dictionaries(
    {}, optional={"activations": st.sampled_from(("none", 0.5)), "optimizer": shares, "parameters": shares}
)
axes = st.permutations(("tp", "cp", "dp_shard", "dp_replicate", "pp")).map(tuple)


named = st.sampled_from(("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v"))
schedules = named | st.fixed_dictionaries(
    {"name": named, "memory_limit": st.none() | st.floats(0.001, 1e9), "unit": st.none() | degree}
    | {"in_flight": st.none() | degree}
)


contexts = (
    st.none()
    | st.sampled_from(tuple(CONTEXT_FORMS))
    | st.fixed_dictionaries(
        {"form": st.sampled_from(tuple(CONTEXT_FORMS))},
        optional={"ulysses": degree, "pieces": st.sampled_from(get_args(SequencePieces))},
    )
)


codecs = st.sampled_from(
    (
        None,
        {},
        {"quantise": "int8", "bucket": -3, "cast": "x"},
        {"quantise": "int9", "low_rank": {"budget": 2}},
        {"low_rank": 2, "error_feedback": True, "layers": "9..3"},
        {"dct": {"chunk": 8, "keep": 9}, "select": {"keep": 2.5}},
        {"lsh": {"hashes": 0.5}, "sketch": {"width": -1}, "ternary": {}},
    )
)
outers = st.sampled_from((None, "none", "x", {}, {"sgd": {"lr": 0}}, {"adam": {"lr": 1, "betas": (2, 0.9)}}))
entries = st.lists(
    st.fixed_dictionaries(
        {
            "state": st.sampled_from(("parameter", "gradient", "optimizer", "expert_token", "x")),
            "over": name | st.sampled_from(("dp_replicate", "dp_shard", "ep", ("dp_replicate",))),
            "every": st.sampled_from((1, 0, 4, 2**70, "never", {}, {"qsr": {"base": 4, "alpha": 0.1}})),
            "fragments": st.sampled_from((1, 1.5, {"count": 99, "pattern": "x"})),
            "delay": st.integers(-1, 5),
            "own": st.sampled_from(("stale", "fresh")),
            "merge": st.floats(0, 1, exclude_min=True),
            "compress": codecs,
            "outer": outers,
            "with": st.sampled_from((None, "pairs", {"graph": "ring"})),
        }
    ),
    max_size=2,
).map(tuple)


@st.composite
def short_plans(draw: st.DrawFn) -> ShortPlan:
    layout = {axis: draw(degree) for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp")}
    layout["rank_order"] = draw(axes)
    sequence_parallel = draw(st.none() | st.booleans())
    if sequence_parallel is not None:
        layout["sequence_parallel"] = sequence_parallel
    context = draw(contexts)
    if context is not None:
        layout["context"] = context
    keys = {
        "model": draw(name),
        "cluster": draw(name),
        "stack": draw(name),
        "sharding": draw(st.sampled_from(("none", "zero1", "zero2", "zero3"))),
        "gather": draw(st.sampled_from((None, "per-layer", "per-micro-batch", "per-unit", "per-step"))),
        "pipeline": {
            "schedule": draw(schedules),
            "micro_batch": draw(degree),
            "virtual_stages": draw(degree),
        },
        "recompute": draw(recompute),
        "dtypes": draw(dtypes),
        "offload": draw(offloads),
        "synchronise": draw(st.just(()) | entries),
        "workload": {
            "seq_len": draw(st.integers(-5, 10**6)),
            "global_batch": draw(st.integers(-5, 10**4)),
            "precision": draw(name),
            "documents": draw(st.none() | lengths | st.lists(lengths, max_size=3).map(tuple)),
            "encoder_tokens": draw(st.none() | lengths),
            "images": draw(st.none() | st.fixed_dictionaries({"per_sequence": lengths, "tokens": lengths})),
        },
    }
    return short_plan(layout, **keys)


lengths = st.integers(-5, 10**6)


def _json(children: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(children, max_size=3).map(tuple) | st.dictionaries(name, children, max_size=3)


json_values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63) | name | st.floats(-1e300, 1e300),
    _json,
    max_leaves=5,
)


@st.composite
def long_plans(draw: st.DrawFn) -> LongPlan:
    """Long plans with every key of the language, legal or not."""
    plan = expand(draw(short_plans()), draw(st.sampled_from((DENSE, SPARSE, LATENT))))
    data = plan.model_dump(by_alias=True)
    stage_keys = st.lists(st.sampled_from(("embed", "0..7", "5", "head")), max_size=3).map(tuple)
    data["pipeline"]["stages"] = draw(
        st.just("balanced") | st.lists(stage_keys, min_size=1, max_size=3).map(tuple)
    )
    data["pipeline"]["placement"] = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5).map(tuple))
    data["pipeline"]["schedule"] = {
        "name": draw(st.none() | name),
        "file": draw(st.none() | name),
        "memory_limit": draw(st.none() | st.floats(0.001, 1e9)),
        "unit": draw(st.none() | degree),
        "in_flight": draw(st.none() | degree),
    }
    data["groups"] = draw(st.dictionaries(name, st.fixed_dictionaries({"devices": name}), max_size=2))
    data["layouts"][draw(name)] = data["layouts"]["main"] | {
        "batch_share": draw(st.none() | st.lists(st.integers(-3, 9), max_size=3).map(tuple)),
        "state_share": draw(st.sampled_from((None, "even", (1, 2)))),
    }
    rule = st.fixed_dictionaries(
        {"layout": name, "recompute": recompute, "vocabulary": st.sampled_from((None, ("pp", "tp"), ()))}
    )
    data["layers"] |= draw(st.dictionaries(st.sampled_from(("3", "embed", "0..57", "x")), rule, max_size=2))
    data["sequence"] = draw(st.sampled_from((None, {"policy": "hdp", "capacity_tokens": 8192})))
    data["synchronise"] = draw(entries)
    call = st.fixed_dictionaries({"does": st.sampled_from(("train", "serve", "score")), "layout": name})
    data["calls"] = draw(st.none() | st.dictionaries(name, call, max_size=2))
    edge = st.fixed_dictionaries({"from": name, "to": name, "carry": name, "staleness": st.integers(0, 3)})
    data["edges"] = tuple(draw(st.lists(edge, max_size=2)))
    return LongPlan.model_validate(data)


AFTER = {"pipeline": {"schedule": {"name": "1f1b", "step_validation": "after"}}}
VALIDATION = "pipeline.schedule.step_validation"
MORE += (
    (
        long_plan({"tp": 16, "dp_shard": 4}),
        {"stack": replace(STACK, copies_key_value_heads=True)},
        "layout.tp",
        "test-stack@1.0 would copy them, and a plan cannot say so yet",
        "tp: 8",
    ),
    (
        long_plan(dtypes={"gather": "fp8"}),
        {},
        "dtypes.gather",
        "the precision is bf16",
        "dtypes.gather: bf16",
    ),
    (
        long_plan(workload={"optimizer": "muon"}),
        {},
        "workload.optimizer",
        "test-stack@1.0 has adamw, sgd",
        "one of adamw, sgd",
    ),
    (
        long_plan(dtypes={"first_moment": "bf16"}, workload={"optimizer": "sgd"}),
        {},
        "dtypes.first_moment",
        "is no state of sgd",
        "optimizer: adamw",
    ),
    (long_plan(dtypes={"master": "none"}), {}, "dtypes.master", "test-stack@1.0 has fp32", "master: fp32"),
    (
        long_plan(recompute=("layernorm", "mlp")),
        {"stack": replace(STACK, norm_products=("qkv", "ffn_up"))},
        "recompute",
        "layernorm has no effect: test-stack@1.0 computes every norm of dense inside of the product",
        "take layernorm out",
    ),
    (long_plan({"node_order": (0, 0)}), {}, "layout.node_order", "each of the nodes 0 to 7 once", "`plan`"),
    (
        long_plan({"pp": 1, "dp_shard": 8, "tp": 8}, **AFTER),
        {},
        VALIDATION,
        "pp = 1",
        "pp: 2, or take it out",
    ),
    (
        long_plan(**AFTER),
        {},
        VALIDATION,
        "test-stack@1.0 knows the norm of all gradients",
        "stack: meshwright",
    ),
    (
        long_plan(**AFTER),
        {"architecture": replace(DENSE, tied_embeddings=True)},
        VALIDATION,
        "pipeline ranks 0 and 3 add up the shared table's gradient",
        "both ends on one rank",
    ),
)
"""Also of when a step is validated."""
