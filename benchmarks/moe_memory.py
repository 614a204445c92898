"""Memory that other estimators were reported to get wrong, beside what is right and what our ledger says.

Five threads; every formula of theirs stands in a function of its own, with where it is from. What is right is a
measured peak where somebody measured one, else a closed form (``tests/published/test_moe_page.py`` derives them anew).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from meshwright import api
from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.model.architecture import Architecture, Experts
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.resolve import Resolved, resolve_with
from meshwright.result import Report
from meshwright.stack.load import load_stack
from meshwright.units import GIB
from meshwright.verbs.predict.predict_plan import predicted

FOLDER = Path(__file__).parent / "moe"
MEASURED_GIB = 104.30
"""Peak of DeepSeek-V3 with 4 layers on 8 B200 (ep 8): SimuMax v1.2, docs/b200/b200_release_v1.2_summary.md."""
STATES = ("parameters", "gradients", "optimizer")


@dataclass(frozen=True)
class Claim:
    """What a thread says that an estimator said, what is right and whence, and ours; figures with their units."""

    thread: str
    what: str
    theirs: str
    right: str
    origin: str
    ours: str


def plan_of(name: str) -> Resolved:
    """A plan of ``moe/``."""
    return api.load(FOLDER / name)


def states_gib(report: Report) -> float:
    """Parameters, gradients and optimizer states of the worst device."""
    return sum(report.memory_bytes[name] for name in STATES) / GIB


def all_over_tp_gib(resolved: Resolved) -> float:
    """Megatron-LM before #4687: experts' parameters are cut over tp and their states over dp, like all others."""
    short = resolved.short
    assert short is not None
    layout = short.layout
    own = resolved.setting.model.parameters / (layout.tp * layout.pp)
    return own * (6 + 12 / (layout.dp_shard * layout.dp_replicate)) / GIB


def dense_activations_gib(resolved: Resolved, ffn: int) -> float:
    """Megatron-LM's ``compute_activation_memory``: s·b·h·(18 + 4·ffn/h)/tp for every layer (quoted in #6782)."""
    arch, short = resolved.setting.model.architecture, resolved.short
    assert short is not None
    tokens = resolved.setting.workload.seq_len * short.pipeline.micro_batch
    return arch.layers * tokens * (18 * arch.hidden + 4 * ffn) / short.layout.tp / GIB


def layers_gib(resolved: Resolved) -> float:
    """What our ledger keeps of all layers of a plan without a pipeline for one micro-batch."""
    assert resolved.short is not None
    ((_, group),) = pipeline_groups(from_shorts([resolved.short]), resolved.setting)
    model = resolved.setting.model
    kept = [float(np.ravel(value)[0]) for value in group.prices.kept]
    return (
        sum(count * kept[block] for block, count in model.chain if model.blocks[block].kind == "layer") / GIB
    )


def routed_gib(resolved: Resolved) -> float:
    """What of it are rows of experts: k·s·b rows of h in and 3f inside, 16 bit each, in every routed layer."""
    arch, short = resolved.setting.model.architecture, resolved.short
    assert arch.moe is not None
    assert short is not None
    rows = arch.moe.experts_per_token * resolved.setting.workload.seq_len * short.pipeline.micro_batch
    return sum(arch.moe.layers) * rows * 2 * (arch.hidden + 3 * arch.moe.intermediate) / GIB


TINY = Architecture(
    name="eight narrow layers",
    family="gpt2",
    source="NVIDIA-NeMo/Megatron-Bridge#5077, its own test",
    layers=8,
    hidden=16,
    vocab=32,
    heads=4,
    kv_heads=4,
    head_dim=4,
    v_head_dim=4,
    intermediate=64,
    gated=False,
    activation="gelu",
    norm="layernorm",
    max_positions=8,
    tied_embeddings=False,
    windows=(None,) * 8,
)
"""The dense model of the pull request; the mixed one has experts in four of the layers."""
MIXED = replace(
    TINY,
    moe=Experts(
        experts=2,
        experts_per_token=1,
        intermediate=32,
        layers=tuple(bool(flag) for flag in (0, 1, 0, 0, 1, 0, 1, 1)),
    ),
)
UNEVEN = (1, 2, 2, 3)
GPT_J = replace(
    TINY,
    name="gpt-j-6b",
    source="sizes of EleutherAI/gpt-j-6b",
    layers=28,
    hidden=4096,
    vocab=50400,
    heads=16,
    kv_heads=16,
    head_dim=256,
    v_head_dim=256,
    intermediate=16384,
    mlp_bias=True,
    max_positions=2048,
    windows=(None,) * 28,
)


def own_plan(
    arch: Architecture,
    devices: int,
    stack: str,
    layout: ShortLayout,
    sharding: str,
    stages: Sequence[int] = (),
) -> Resolved:
    """A plan of a model that no file describes, one sequence for every rank, with so many layers on the stages.

    The vocabulary is not padded, as in the threads.
    """
    batch = layout.dp_shard * layout.pp
    cluster = f"h100-sxm-80gb x {devices}"
    short = ShortPlan(
        plan=1,
        model=arch.name,
        cluster=cluster,
        workload=WorkloadSpec(seq_len=arch.max_positions or 8, global_batch=batch),
        stack=stack,
        layout=layout,
        sharding=sharding,  # type: ignore[arg-type]
        pipeline=ShortPipeline(),
    )
    plan: ShortPlan | LongPlan = short
    if stages:
        long = expand(short, arch)
        pipeline = long.pipeline.model_copy(update={"stages": written(stages)})
        plan = long.model_copy(update={"pipeline": pipeline})
    facts = replace(load_stack(stack), vocab_multiple=1)
    return resolve_with(plan, build_graph(arch), load_cluster(cluster), facts)


def written(layers: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Stages of so many layers, the embedding before the first and the head behind the last."""
    found, first = [], 0
    for number, count in enumerate(layers):
        stage = [f"{first}..{first + count - 1}"]
        found.append(["embed"] * (number == 0) + stage + ["head"] * (number == len(layers) - 1))
        first += count
    return tuple(tuple(stage) for stage in found)


def heaviest_elements(arch: Architecture) -> tuple[int, float]:
    """Parameters of the heaviest of the four uneven stages by our ledger, and the bytes of their states."""
    layout = ShortLayout(pp=4, dp_shard=4)
    report = predicted(own_plan(arch, 16, "megatron-core", layout, "zero1", UNEVEN))
    heaviest = max(report.memory_bytes["stages"], key=lambda stage: stage["parameters"])
    return heaviest["parameters"] // 2, float(sum(heaviest[name] for name in STATES))


def gpt_j(sharding: str, devices: int) -> Report:
    """GPT-J under DeepSpeed on a few devices."""
    return predicted(own_plan(GPT_J, devices, "deepspeed", ShortLayout(dp_shard=devices), sharding))


def claims() -> list[Claim]:
    """The five threads."""
    return [*_experts(), *_uneven(), _estimator(), _rl()]


def _experts() -> list[Claim]:
    run = plan_of("deepseek-v3-4-layers.yaml")
    report = predicted(run)
    own, peak = states_gib(report), report.memory_bytes["total"] / GIB
    kept, routed = layers_gib(run), routed_gib(run)
    dense = dense_activations_gib(run, 18432)
    cut = kept - routed * (1 - 1 / 8)
    return [
        Claim(
            thread="NVIDIA/Megatron-LM#4050 (mended by #4687)",
            what="states of DeepSeek-V3 with 4 layers on 8 B200, ep 8: experts cut over tp, and over dp instead of edp",
            theirs=f"{all_over_tp_gib(run):.1f} GiB",
            right=f"{own:.1f} GiB, below a peak of {MEASURED_GIB:.2f} GiB",
            origin="closed form; the peak was measured (SimuMax v1.2)",
            ours=f"{own:.1f} GiB, at a peak of {peak:.1f} GiB",
        ),
        Claim(
            thread="NVIDIA/Megatron-LM#1784, #6782",
            what="activations of the same run: every layer as a dense one; in the first mending experts' rows over ep",
            theirs=f"{dense:.2f} GiB, then {cut:.2f} GiB: peaks of {peak - kept + dense:.1f} and "
            f"{peak - kept + cut:.1f} GiB",
            right=f"a peak of {MEASURED_GIB:.2f} GiB",
            origin="measured (SimuMax v1.2)",
            ours=f"{kept:.2f} GiB: a peak of {peak:.1f} GiB",
        ),
    ]


def _uneven() -> list[Claim]:
    (dense, dense_bytes), (mixed, _) = heaviest_elements(TINY), heaviest_elements(MIXED)
    return [
        Claim(
            thread="NVIDIA-NeMo/Megatron-Bridge#5077",
            what="parameters of the heaviest of stages of 1, 2, 2 and 3 layers, all dense",
            theirs="6,792 (averaged)",
            right="9,952, of 89,568 bytes with their states over dp 4",
            origin="the pull request's test",
            ours=f"{dense:,}, of {dense_bytes:,.0f} bytes",
        ),
        Claim(
            thread="the same",
            what="the same where four layers have experts",
            theirs="4,744 and routed ones (averaged)",
            right="5,856 + 4,096 routed, and 64 of routers, which the test leaves out",
            origin="the pull request's test",
            ours=f"{mixed:,}",
        ),
    ]


def _estimator() -> Claim:
    whole = [gpt_j("zero2", n) for n in (2, 4)]
    cut = [gpt_j("zero3", n) for n in (2, 4)]

    def held(reports: list[Report]) -> str:
        return " and ".join(f"{r.memory_bytes['parameters'] / GIB:.1f}" for r in reports)

    return Claim(
        thread="deepspeedai/DeepSpeed#4093",
        what="GPT-J 6B on 2 and on 4 devices; the estimator's figure with offloading is 4 bytes of the largest layer",
        theirs="0.77 GB",
        right="13 GB on 2 and on 4: the 16-bit parameters whole, and what a process needs",
        origin="the thread; 2 bytes of 6.05·10⁹ parameters are 11.3 GiB (12.1 GB)",
        ours=f"parameters {held(whole)} GiB where they stay whole (zero2), {held(cut)} GiB where they are cut (zero3); "
        "offloading of parameters is not priced, and `check` says so",
    )


def _rl() -> Claim:
    run = plan_of("qwen3-235b-a22b-in-rl.yaml")
    report = predicted(run)
    rollout = 2 * run.setting.model.parameters / 16 / GIB
    return Claim(
        thread="verl-project/verl#5003",
        what="Qwen3-235B-A22B with pp 8, tp 4, cp 4, ep 8, etp 2 on 128 devices, rollout over tp 16 beside it",
        theirs=f"no figure; by Megatron's formula of #4050 {all_over_tp_gib(run):.0f} GiB",
        right="out of memory while the rollout's weights are loaded",
        origin="the thread; experts have edp 1, so that nothing of their states is sharded: 18 bytes each",
        ours=f"training holds {states_gib(report):.1f} GiB of states ({report.memory_bytes['total'] / GIB:.1f} GiB at "
        f"its peak), {rollout:.1f} GiB of weights for the rollout come on top: no more than "
        f"{report.memory_bytes['capacity'] / GIB - states_gib(report) - rollout:.1f} GiB are left for its cache",
    )


def table() -> str:
    """The claims in Markdown."""
    head = "| thread | what | theirs | right | whence | ours |\n|---|---|--:|--:|---|--:|"
    rows = (f"| {c.thread} | {c.what} | {c.theirs} | {c.right} | {c.origin} | {c.ours} |" for c in claims())
    return "\n".join((head, *rows))
