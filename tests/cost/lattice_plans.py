"""Small models, settings and random legal plans on which closed forms and simulation are compared."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshwright.cluster.load import load_cluster
from meshwright.model.architecture import Architecture, Experts, LinearLayers, StateSpaceLayers
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.context_parallel import Context
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import (
    DEFAULT_RANK_ORDER,
    Axis,
    ImagesSpec,
    Recompute,
    Schedule,
    ShortLayout,
    ShortPipeline,
    ShortPlan,
    WorkloadSpec,
)
from meshwright.plans.layers.recompute_by_layer import with_layer_recomputes
from meshwright.plans.rules.batch_and_pipeline import PIPELINE_RULES
from meshwright.plans.rules.context_parallel import context_dimensions, context_heads
from meshwright.plans.rules.degrees import DEGREE_RULES
from meshwright.plans.rules.encoder_models import ENCODER_RULES
from meshwright.plans.rules.rule_input import RuleInput
from meshwright.plans.rules.vocabulary_parallel import VOCABULARY_RULES
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.vocabulary import FORMS
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

SEQ_LEN = 2048

TIED = Architecture(
    name="tied",
    family="llama",
    source="a test",
    layers=16,
    hidden=1024,
    vocab=32000,
    heads=16,
    kv_heads=8,
    head_dim=64,
    v_head_dim=64,
    intermediate=2816,
    gated=True,
    activation="silu",
    max_positions=8192,
    tied_embeddings=True,
    windows=(None,) * 16,
)
UNTIED = replace(
    TIED,
    name="untied",
    layers=18,
    kv_heads=16,
    vocab=50257,
    intermediate=4096,
    gated=False,
    norm="layernorm",
    positions="learned",
    mlp_bias=True,
    dropout=True,
    tied_embeddings=False,
    windows=(512, None) * 9,
)
SPARSE = replace(
    TIED,
    name="sparse",
    layers=17,
    tied_embeddings=False,
    windows=(None,) * 17,
    moe=Experts(
        experts=8,
        experts_per_token=2,
        intermediate=704,
        shared_intermediate=1408,
        layers=(False,) + (True,) * 16,
    ),
)
LINEAR = replace(
    TIED,
    name="linear",
    tied_embeddings=False,
    residual_after_norm=True,
    linear=LinearLayers(block=64, layers=(True, True, True, False) * 4),
)
STATE_SPACE = replace(
    TIED,
    name="state-space",
    state_space=StateSpaceLayers(
        heads=32,
        head_dim=64,
        state=32,
        filter_length=4,
        filter_bias=True,
        block=64,
        layers=(True, True, True, False) * 4,
    ),
)

TEXT_ENCODER = replace(
    TIED,
    name="text-encoder",
    kv_heads=16,
    positions="relative",
    encoder=TextEncoder(layers=12, buckets=32, max_distance=128),
)
VISION_ENCODER = replace(
    TIED,
    name="vision-encoder",
    tied_embeddings=False,
    encoder=VisionEncoder(
        layers=8,
        hidden=512,
        heads=8,
        intermediate=1408,
        patch_elements=1176,
        merge=2,
        window=8,
        whole_image=(False, False, False, True) * 2,
    ),
)

MODELS = {architecture.name: build_graph(architecture) for architecture in (TIED, UNTIED, SPARSE)}
LINEAR_MODELS = {LINEAR.name: build_graph(LINEAR)}
"""With linear attention in most layers: in tests of their own."""
STATE_SPACE_MODELS = {STATE_SPACE.name: build_graph(STATE_SPACE)}
"""With Mamba-2 in most layers: in a test of their own."""
ENCODER_MODELS = {arch.name: build_graph(arch) for arch in (TEXT_ENCODER, VISION_ENCODER)}
"""With an encoder before the decoder: in tests of their own."""
ENCODER_INPUTS = {
    TEXT_ENCODER.name: {"encoder_tokens": 1024},
    VISION_ENCODER.name: {"images": ImagesSpec(per_sequence=2, tokens=1280)},
}
"""What encoders read, as plans say it."""
CLUSTERS = {
    "h100-sxm-80gb x 8": 64,
    "a100-sxm-80gb x 16": 64,
    "h100-sxm-80gb x 24": 48,
    "h100-sxm-80gb x 64": 64,
}
"""Clusters with their global batch, in sequences."""

CHUNKS = {
    "interleaved-1f1b": (2, 2, 4),
    "looped-bfs": (2, 2, 4),
    "v-half": (2,),
    "v-min": (2,),
    "zb-v": (2,),
    "zeropp": (2, 2, 4),
    "dualpipe": (2,),
}
WHOLE = ("gpipe", "1f1b", "interleaved-1f1b", "interleaved-1f1b")
SPLIT = ("zb-h1", "zb-h2", "v-half", "v-min")
TWICE = ("dualpipe",)
"""Schedules with whole and with split backward passes, and such that hold all parameters twice, as often as drawn."""
TURNED_WHOLE = (ScheduleChoice("interleaved-1f1b", unit=8), ScheduleChoice("looped-bfs", unit=4))
DELAYED = (
    ScheduleChoice("1f1b", in_flight=2),
    ScheduleChoice("interleaved-1f1b", in_flight=5),
    ScheduleChoice("looped-bfs", in_flight=9),
)
"""Schedules whose forward passes wait until the first rank may hold more."""
TURNED_SPLIT = (
    ScheduleChoice("zero-bubble", memory_limit=0.5),
    ScheduleChoice("zero-bubble", memory_limit=1.5),
    ScheduleChoice("zb-v", memory_limit=0.75),
    ScheduleChoice("zeropp", unit=8),
)
"""The same with knobs turned."""
WITH_UNITS = ("zeropp", ScheduleChoice("zeropp", unit=12), "looped-bfs", *TURNED_WHOLE, "interleaved-1f1b")
DELAYED_UNITS = DELAYED[1:]
"""Schedules that exchange states unit by unit."""

STACKS = ("megatron-core", "torchtitan", "deepspeed", "megatron-lm-2021")
RANK_ORDERS: tuple[tuple[Axis, ...], ...] = (
    DEFAULT_RANK_ORDER,
    ("cp", "tp", "pp", "dp_shard", "dp_replicate"),
    ("dp_shard", "tp", "dp_replicate", "cp", "pp"),
)


CONTEXTS = (
    "all-gather",
    "ulysses",
    "token-ring",
    "rsa",
    Context(form="ring", ulysses=2),
    Context(form="all-gather", ulysses=2, pieces="contiguous"),
)
DIMENSIONS = (context_dimensions, context_heads)


@dataclass(frozen=True)
class Family:
    """Plans that share a setting; ``of_layers`` is what each layer recomputes, where not all do as a plan says."""

    setting: Setting
    header: ShortPlan
    plans: tuple[ShortPlan, ...]
    of_layers: tuple[Recompute, ...] | None = None

    def long(self, plan: ShortPlan) -> LongPlan:
        """The long form of one of the plans."""
        long = expand(plan, self.setting.model.architecture)
        return with_layer_recomputes(long, self.of_layers) if self.of_layers else long


def family(
    model: str,
    cluster: str,
    stack: str,
    count: int,
    seed: int,
    schedules: tuple[str | ScheduleChoice, ...] = WHOLE,
) -> Family:
    """``count`` different legal plans of a setting, in an order that only the seed decides.

    Split schedules are drawn with the shardings of the stack: what a rank gathers between overlapping steps is no
    matter of the closed forms. Those with units gather and reduce by them.
    """
    rng = random.Random(f"{model} {cluster} {stack} {seed}")
    spec = WorkloadSpec(seq_len=SEQ_LEN, global_batch=CLUSTERS[cluster], **ENCODER_INPUTS.get(model, {}))
    setting = Setting(
        (MODELS | LINEAR_MODELS | STATE_SPACE_MODELS | ENCODER_MODELS)[model],
        load_cluster(cluster),
        Workload(
            seq_len=SEQ_LEN,
            global_batch=CLUSTERS[cluster],
            encoder_tokens=spec.encoder_tokens,
            images=spec.images and spec.images.images,
        ),
        load_stack(stack),
    )
    header = ShortPlan(
        plan=1,
        model=model,
        cluster=cluster,
        workload=spec,
        stack=stack,
        layout=ShortLayout(rank_order=rng.choice(RANK_ORDERS)),
        gather="per-unit" if schedules in (WITH_UNITS, DELAYED_UNITS) else None,
    )
    found: dict[str, ShortPlan] = {}
    for plan in _legal_plans(header, setting, rng, schedules):
        if schedules in (SPLIT, TURNED_SPLIT, TWICE) and plan.sharding not in setting.stack.shardings:
            continue
        found[plan.model_dump_json()] = plan
        if len(found) == count:
            break
    return Family(setting, header, tuple(found.values()))


def spread_plans(chosen: Family) -> Iterator[ShortPlan]:
    """The plans of a family that may spread their vocabulary over pipeline ranks, in one form after the other."""
    setting = chosen.setting
    for number, plan in enumerate(chosen.plans):
        form = tuple(FORMS)[number % len(FORMS)]
        schedule = Schedule(name=plan.pipeline.choice.name, vocabulary=form)
        spread = plan.model_copy(
            update={"pipeline": plan.pipeline.model_copy(update={"schedule": schedule}), "gather": None}
        )
        case = RuleInput(chosen.long(spread), setting.model, setting.cluster, setting.stack)
        if not any(list(rule(case)) for rule in VOCABULARY_RULES):
            yield spread


def in_other_contexts(chosen: Family, count: int) -> Family:
    """The first plans of a family with cp > 1, in one form of context parallelism after the other."""
    setting, found = chosen.setting, list[ShortPlan]()
    for number, plan in enumerate(plan for plan in chosen.plans if plan.layout.cp > 1):
        for form in (*CONTEXTS[number % len(CONTEXTS) :], *CONTEXTS):
            layout = plan.layout.model_copy(update={"context": form})
            other = plan.model_copy(update={"layout": layout})
            case = RuleInput(chosen.long(other), setting.model, setting.cluster, setting.stack)
            if not any(list(rule(case)) for rule in DIMENSIONS):
                found.append(other)
                break
    return replace(chosen, plans=tuple(found[:count]))


def _legal_plans(
    header: ShortPlan, setting: Setting, rng: random.Random, schedules: tuple[str | ScheduleChoice, ...]
) -> Iterator[ShortPlan]:
    while True:
        plan = _random_plan(header, setting, rng, schedules)
        case = RuleInput(
            expand(plan, setting.model.architecture), setting.model, setting.cluster, setting.stack
        )
        rules = (*DEGREE_RULES, *PIPELINE_RULES, *ENCODER_RULES)
        problems = (problem for rule in rules for problem in rule(case))
        if not any(problem.severity == "error" for problem in problems):
            yield plan


def _random_plan(
    header: ShortPlan, setting: Setting, rng: random.Random, schedules: tuple[str | ScheduleChoice, ...]
) -> ShortPlan:
    sharding = "zero3" if header.gather else rng.choice(("none", "zero1", "zero2", "zero3"))
    rest = setting.cluster.devices
    degrees = {}
    for axis, largest in rng.sample([("pp", 8), ("tp", 8), ("cp", 4), ("dp_shard", 64)], 4):
        choices = [d for d in (1, 2, 3, 4, 6, 8, 16) if d <= largest and rest % d == 0]
        degrees[axis] = 1 if axis == "dp_shard" and sharding == "none" else rng.choice(choices)
        rest //= degrees[axis]
    ranks = setting.cluster.devices // degrees["pp"]
    sparse = setting.model.architecture.moe is not None
    ep = rng.choice([e for e in (1, 2, 4, 8) if ranks % e == 0]) if sparse else 1
    etp = rng.choice([e for e in (1, 1, 2) if ranks // ep % e == 0]) if sparse else 1
    drawn = rng.choice(schedules)
    choice = ScheduleChoice(drawn) if isinstance(drawn, str) else drawn
    virtual = rng.choice(CHUNKS[choice.name]) if choice.name in CHUNKS else 1
    return header.model_copy(
        update={
            "layout": ShortLayout(
                **degrees,
                dp_replicate=rest,
                ep=ep,
                etp=etp,
                sequence_parallel=rng.choice((True, False, None)),
                rank_order=header.layout.rank_order,
            ),
            "sharding": sharding,
            "pipeline": ShortPipeline(
                schedule=Schedule.of(choice), micro_batch=rng.choice((1, 1, 2, 4)), virtual_stages=virtual
            ),
            "recompute": rng.choice(
                ("none", "selective", "full", ("core_attn",), ("layernorm", "moe_act"), ("mlp",))
            ),
        }
    )
