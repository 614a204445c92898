"""Small plans to be proven: one by one, and a covering set of all that the runtime can do, the same every time."""

import random
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from math import prod

from encoder_models import ENCODER_MODELS, small_encoder_model
from tiny_models import TINY, dense_names, tiny

from meshwright.cluster.fast_domains import in_nodes_of
from meshwright.cluster.load import load_cluster
from meshwright.plans.context_parallel import Context, ContextForm, context_in_full
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes as recomputed
from meshwright.plans.layers.recompute_by_layer import with_layer_recomputes
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.resolve import resolve_with
from meshwright.plans.shrink.small_encoder_input import with_encoder_inputs
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.lowering.lower_plan import lower
from meshwright.runtime.verify.verify_case import OPTIONS, STEPS, VerifyCase
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.vocabulary import FORMS
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK
from meshwright.workload.expert_capacity import Capacity

SEQ_LEN = 24
AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
DRAWN = ("pp", "dp_replicate", "dp_shard", "tp")
EXPERT_AXES = ("ep", "etp")
DEFAULT_ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
CANDIDATES, MOST_TP = 60, 4
RECOMPUTED = (
    "none",
    "selective",
    "full",
    ("layernorm",),
    ("mlp",),
    ("core_attn", "layernorm"),
    ("core_attn", "layernorm", "mlp"),
)
ORDERS = (
    DEFAULT_ORDER,
    ("pp", "tp", "cp", "dp_shard", "dp_replicate"),
    ("dp_shard", "pp", "dp_replicate", "cp", "tp"),
)
GATHERS = ("per-layer", "per-micro-batch", "per-step")
UNEVEN = {1: (3,), 2: (3, 1), 3: (1, 2, 1), 4: (0, 2, 3, 1), 8: (1, 1, 2, 1, 1, 2, 1, 0)}
"""Layers of stages by the number of stages; the embedding or the head may have a stage for itself."""


@dataclass(frozen=True)
class Proven:
    """A plan in short: a tiny model, degrees and choices. ``stages`` are layers per stage, None for balanced ones.

    ``recomputes`` are the layers' own, None where all do as ``recompute`` says. ``clip`` is the largest norm.
    ``documents``: sequences are packed. ``once``: copies of tokens go once, between nodes of ``node`` ranks.
    ``capacity``, and ``on_host``, ``optimizer`` and ``adapter`` in pairs of keys: as a plan says them. ``steps`` are
    run.
    """

    model: str
    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    etp: int = 1
    context: ContextForm | Context | None = None
    sequence_parallel: bool = False
    sharding: str = "none"
    gather: str | None = None
    recompute: str | tuple[str, ...] = "none"
    schedule: str = "1f1b"
    memory_limit: float | None = None
    unit: int | None = None
    in_flight: int | None = None
    vocabulary: str | None = None
    step_validation: str | None = None
    micro_batches: int = 2
    micro_batch: int = 1
    layers: int = 3
    stages: tuple[int, ...] | None = None
    rank_order: tuple[str, ...] = DEFAULT_ORDER
    sizes: tuple[tuple[str, int], ...] = ()
    recomputes: tuple[str | tuple[str, ...], ...] | None = None
    offload: float | str | None = None
    ahead: int = 1
    on_host: tuple[tuple[str, float], ...] = ()
    clip: float | None = OPTIONS.clip
    documents: int | None = None
    once: bool = False
    node: int = 8
    expert_order: tuple[tuple[int, ...], ...] | None = None
    capacity: Capacity | None = None
    seq_len: int = SEQ_LEN
    dtypes: tuple[tuple[str, str], ...] = ()
    optimizer: str | tuple[tuple[str, object], ...] = "adamw"
    adapter: tuple[tuple[str, object], ...] = ()
    synchronise: tuple[Synchronisation, ...] = ()
    steps: int = STEPS

    @property
    def ranks(self) -> int:
        return prod(getattr(self, axis) for axis in AXES)

    @property
    def chunks(self) -> int:
        kind = SCHEDULES[self.schedule]
        return kind.fixed_chunks or (2 if kind.chunked else 1)

    def graph(self):
        """The tiny model with so many layers, and with heads enough for tp."""
        if self.model in ENCODER_MODELS:
            return small_encoder_model(self.model, self.layers, self.tp, self.seq_len)
        keys = TINY[self.model]
        keys = keys.get("text_config", keys)
        classic = "n_layer" in keys
        changes = {"n_layer" if classic else "num_hidden_layers": self.layers}
        cut = self.tp * context_in_full(self.context).heads(self.cp)
        if cut > 2:
            changes |= {"n_head": 8} if classic else {"num_key_value_heads": cut}
        if "layer_types" in keys:
            changes["layer_types"] = [keys["layer_types"][i % 3] for i in range(self.layers)]
        return tiny(self.model, **changes, **dict(self.sizes))

    def lowered(self, *, stack_binds=False):
        """(program, model). Raises PlanError where it is not legal, or not within limits of a stack that binds."""
        model = self.graph()
        short = ShortPlan.model_validate(self._data())
        work = with_encoder_inputs(short.workload, model.architecture)
        plan = expand(short.model_copy(update={"workload": work}), model.architecture)
        if self.stages:
            update = {"stages": written_stages(self.stages)}
            plan = plan.model_copy(update={"pipeline": plan.pipeline.model_copy(update=update)})
        plan = with_layer_recomputes(plan, self.recomputes) if self.recomputes else plan
        cluster = in_nodes_of(load_cluster(plan.cluster), self.node)
        stack = replace(load_stack(OWN_STACK), deduplicates_exchange=self.once)
        legal = resolve_with(plan, model, cluster, stack, stack_binds=stack_binds)
        model, workload = legal.setting.model, legal.setting.workload
        return lower(legal.long, model, cluster, workload, stack), model

    def trial(self):
        """What is tried of it."""
        return VerifyCase(*self.lowered(), replace(OPTIONS, clip=self.clip), self.steps)

    def _schedule(self):
        knobs = ("memory_limit", "unit", "in_flight", "vocabulary", "step_validation")
        return {"name": self.schedule} | {knob: getattr(self, knob) for knob in knobs}

    def _data(self):
        sequences = self.dp_replicate * self.dp_shard * self.micro_batches * self.micro_batch
        layout = {axis: getattr(self, axis) for axis in (*AXES, *EXPERT_AXES)}
        named = ("sequence_parallel", "rank_order", "context", "expert_order")
        layout |= {key: getattr(self, key) for key in named}
        pipeline = {
            "schedule": self._schedule(),
            "micro_batch": self.micro_batch,
            "virtual_stages": self.chunks,
        }
        optimizer = self.optimizer if isinstance(self.optimizer, str) else dict(self.optimizer)
        passes = {} if self.offload is None else {"activations": self.offload, "ahead": self.ahead}
        work = {"seq_len": self.seq_len, "global_batch": sequences, "documents": self.documents}
        adapters = {"task": "lora", "adapter": dict(self.adapter)} if self.adapter else {}
        work |= {"optimizer": optimizer} | adapters
        return {
            "plan": 1,
            "model": self.model,
            "cluster": f"h100-sxm-80gb x {self.ranks}",
            "stack": OWN_STACK,
            "workload": work | {"capacity": self.capacity and asdict(self.capacity)},
            "layout": layout,
            "sharding": self.sharding,
            "gather": self.gather,
            "pipeline": pipeline,
            "recompute": self.recompute,
            "dtypes": dict(self.dtypes) or None,
            "offload": passes | dict(self.on_host) or None,
            "synchronise": tuple(entry.model_dump(by_alias=True) for entry in self.synchronise),
        }


COMPOSED = Proven(
    "llama",
    pp=2,
    dp_shard=2,
    sharding="zero3",
    gather="per-micro-batch",
    recompute="full",
    schedule="zb-h1",
    micro_batches=4,
    layers=4,
)
"""Sharded parameters, passes apart, and recomputation."""
TOGETHER = Proven("qwen3", pp=2, dp_shard=2, sharding="zero3", schedule="v-half", micro_batches=4, layers=4)
"""Both ends of a tied table on one rank."""
BY_UNIT = Proven(
    "llama",
    pp=2,
    dp_shard=2,
    sharding="zero3",
    gather="per-unit",
    recompute="full",
    schedule="zeropp",
    micro_batches=6,
    layers=6,
    stages=(0, 2, 3, 1),
)
"""Parameters that come and go with each unit of micro-batches, gradients behind them."""
THREE = Proven("gpt2", dp_shard=3, sharding="zero3", gather="per-layer", recompute="selective")
"""Shards whose borders cut parameters, padded."""
NOTHING = Proven(
    "llama",
    dp_shard=4,
    sharding="zero3",
    gather="per-layer",
    sizes=(
        ("hidden_size", 9),
        ("head_dim", 4),
        ("num_attention_heads", 2),
        ("tie_word_embeddings", True),
    ),
)
"""The last rank holds nothing of the head, which is a norm of nine elements."""
SPECIAL = (
    COMPOSED,
    TOGETHER,
    replace(TOGETHER, gather="per-layer"),
    THREE,
    replace(THREE, sharding="zero1", gather=None),
    NOTHING,
)
"""What a draw might miss."""
TWICE = (
    Proven("llama", pp=2, schedule="dualpipe", micro_batches=4, layers=4),
    Proven("qwen3", pp=4, schedule="dualpipe", micro_batches=6, layers=5, stages=(0, 2, 2, 1)),
    Proven("gpt2", pp=2, dp_shard=2, sharding="zero1", schedule="dualpipe", micro_batches=4, layers=3),
    Proven("qwen3", pp=2, dp_shard=2, sharding="zero2", schedule="dualpipe", micro_batches=2, layers=4),
    *(
        Proven(model, pp=2, dp_shard=2, sharding="zero3", gather=gather, schedule="dualpipe", layers=4)
        for model, gather in zip(("qwen3", "gpt2", "llama"), GATHERS, strict=True)
    ),
    Proven("qwen3", pp=2, tp=2, sequence_parallel=True, recompute="full", schedule="dualpipe", layers=4),
)
"""All parameters on two ranks."""
UNITS = (
    BY_UNIT,
    replace(BY_UNIT, model="qwen3", dp_shard=1, dp_replicate=2, stages=None, recompute="none"),
    replace(BY_UNIT, unit=4, schedule="looped-bfs", stages=None),
    replace(BY_UNIT, unit=3, schedule="interleaved-1f1b", tp=2, sequence_parallel=True),
)
"""States that are exchanged unit by unit."""
MIXED = (
    Proven("llama", pp=2, micro_batches=4, layers=4, recomputes=("full", "full", "none", "none")),
    Proven(
        "qwen3",
        pp=2,
        tp=2,
        sequence_parallel=True,
        schedule="interleaved-1f1b",
        micro_batches=4,
        layers=5,
        recomputes=("full", ("mlp",), "none", "selective", "full"),
    ),
    Proven(
        "gpt2",
        pp=2,
        dp_shard=2,
        sharding="zero3",
        gather="per-layer",
        schedule="zb-h1",
        micro_batches=4,
        layers=4,
        stages=(3, 1),
        recomputes=("full", "none", ("core_attn", "layernorm"), "full"),
    ),
    Proven(
        "gemma2",
        pp=2,
        dp_shard=2,
        sharding="zero3",
        gather="per-unit",
        schedule="zeropp",
        micro_batches=4,
        layers=4,
        recomputes=("full", "none", "full", "none"),
    ),
    Proven("llama", pp=2, schedule="dualpipe", micro_batches=4, layers=4, recomputes=("full", *["none"] * 3)),
    Proven("qwen3", dp_shard=2, sharding="zero2", layers=3, recomputes=("none", "full", ("layernorm",))),
)
"""Layers that recompute different things, on different stages and within one."""
TURNED = (
    Proven("llama", pp=4, schedule="zero-bubble", memory_limit=0.5, micro_batches=6, layers=4),
    replace(TOGETHER, sharding="zero2", schedule="zb-v", memory_limit=0.5),
    Proven("llama", pp=2, schedule="interleaved-1f1b", unit=3, micro_batches=6, layers=4),
    Proven("gpt2", pp=2, dp_shard=2, sharding="zero3", schedule="zeropp", unit=3, micro_batches=5, layers=4),
    Proven("llama", pp=4, in_flight=2, micro_batches=6, layers=4),
    replace(TOGETHER, sharding="zero1", schedule="interleaved-1f1b", in_flight=3),
    replace(BY_UNIT, schedule="looped-bfs", in_flight=6, stages=None),
)
"""Knobs of schedules."""
SPREAD = Proven("llama", pp=2, vocabulary="vocab-1", micro_batches=4)
"""Embedding and head on all pipeline ranks."""
SPREADS = (
    SPREAD,
    replace(SPREAD, model="qwen3", pp=4, dp_shard=2, sharding="zero1", vocabulary="vocab-2", layers=4),
    replace(SPREAD, model="granite", pp=4, vocabulary="interlaced", layers=5, stages=(1, 2, 1, 1)),
    replace(SPREAD, model="gpt2", tp=2, sequence_parallel=True, schedule="zb-h1", recompute="selective"),
    replace(SPREAD, model="gemma2", tp=2, schedule="interleaved-1f1b", vocabulary="vocab-2", layers=4),
    replace(
        SPREAD,
        model="bloom",
        dp_shard=2,
        sharding="zero3",
        gather="per-step",
        recompute="full",
        schedule="v-half",
        layers=4,
    ),
    replace(SPREAD, pp=4, tp=2, vocabulary="vocab-2", layers=4, sizes=(("vocab_size", 9),)),
)
"""Compositions of that; in the last one the tables have fewer rows than parts, so that some are padding alone."""

AFTERWARDS = Proven(
    "llama", pp=2, schedule="zb-h1", step_validation="after", micro_batches=4, layers=4, clip=8.58
)
"""Steps that are taken before the norm of all gradients is known: the first two have to be undone."""
LATE = (
    AFTERWARDS,
    replace(AFTERWARDS, clip=OPTIONS.clip),
    replace(AFTERWARDS, clip=None),
    replace(AFTERWARDS, pp=4, schedule="zb-h2", micro_batches=8, clip=5.84),
    replace(AFTERWARDS, model="qwen3", dp_shard=2, sharding="zero1", schedule="zb-v", clip=3.88),
    replace(AFTERWARDS, model="qwen3", dp_shard=2, sharding="zero2", schedule="zb-h2", clip=3.88),
    replace(
        AFTERWARDS, model="gpt2", dp_shard=2, sharding="zero3", schedule="1f1b", gather="per-layer", clip=3.22
    ),
    replace(AFTERWARDS, dp_shard=2, sharding="zero3", recompute="full", gather="per-micro-batch", clip=5.84),
    replace(AFTERWARDS, dp_replicate=2, tp=2, sequence_parallel=True, schedule="interleaved-1f1b", clip=5.84),
    replace(
        AFTERWARDS,
        model="qwen3",
        pp=4,
        schedule="dualpipe",
        micro_batches=6,
        layers=5,
        stages=(0, 2, 2, 1),
        clip=4.74,
    ),
    replace(BY_UNIT, step_validation="after", clip=6.22),
    replace(TOGETHER, step_validation="after", clip=3.88),
)
"""Compositions of that. Each limit is just below the norm of the first step: what the first stages have is below it."""


def covering_plans(seed: str, ranks: tuple[int, ...], count: int) -> list[Proven]:
    """``count`` plans that have together as many pairs of choices as a greedy draw finds."""
    draw = random.Random(seed)
    chosen, seen = [], set()
    while len(chosen) < count:
        drawn = [_drawn(draw, ranks[len(chosen) % len(ranks)]) for _ in range(CANDIDATES)]
        best = max(drawn, key=lambda plan: len(_pairs(plan) - seen))
        chosen.append(best)
        seen |= _pairs(best)
    return chosen


def _drawn(draw: random.Random, ranks: int) -> Proven:
    """A random plan on so many ranks; choices that an axis of degree 1 makes meaningless take their default."""
    degrees = dict.fromkeys(AXES, 1)
    while prod(degrees.values()) < ranks:
        degrees[draw.choice(DRAWN if degrees["tp"] < MOST_TP else DRAWN[:3])] *= 2
    pp, tp, sharded = degrees["pp"], degrees["tp"], degrees["dp_shard"] > 1
    schedule = (
        draw.choice(load_stack(OWN_STACK).schedules) if pp > 1 else draw.choice(("1f1b", "gpipe", "zb-h1"))
    )
    kind = SCHEDULES[schedule]
    stages = pp * (kind.fixed_chunks or (2 if kind.chunked else 1)) // kind.chains
    uneven = UNEVEN.get(stages) if draw.random() < 0.5 else None
    sharding = draw.choice(("zero1", "zero2", "zero3", "zero3", "zero3")) if sharded else "none"
    return Proven(
        model=draw.choice(dense_names()),
        **degrees,
        sequence_parallel=tp > 1 and draw.random() < 0.5,
        sharding=sharding,
        gather=draw.choice(GATHERS) if sharding == "zero3" else None,
        recompute=draw.choice(RECOMPUTED),
        schedule=schedule,
        micro_batches=pp * draw.choice((1, 2)) if pp > 1 else draw.choice((1, 3)),
        micro_batch=draw.choice((1, 2)),
        layers=sum(uneven) if uneven else max(2, stages),
        stages=uneven,
        rank_order=draw.choice(ORDERS),
    )


def spread_plans(seed: str, ranks: tuple[int, ...], count: int) -> list[Proven]:
    """``count`` drawn plans whose vocabulary is spread, on so many ranks in turn."""
    draw, chosen = random.Random(seed), list[Proven]()
    while len(chosen) < count:
        plan = _drawn(draw, ranks[len(chosen) % len(ranks)])
        kind = SCHEDULES[plan.schedule]
        if plan.pp == 1 or kind.chains > 1 or 0 in (plan.stages or ()):
            continue
        form = draw.choice([name for name, form in FORMS.items() if form.only in (None, plan.schedule)])
        gather = "per-step" if plan.gather else None
        chosen.append(replace(plan, vocabulary=form, gather=gather))
    return chosen


def _pairs(plan: Proven) -> set[tuple[object, ...]]:
    """Every two of its choices."""
    knobs = "layers memory_limit unit in_flight recomputes"
    later = f"{knobs} vocabulary step_validation clip offload ahead cp context documents on_host"
    apart = (*EXPERT_AXES, *later.split(), "once", "node", "expert_order", "capacity", "adapter", "optimizer")
    apart = (*apart, "synchronise", "steps")
    values = {key: value for key, value in vars(plan).items() if key not in apart}
    values["stages"] = plan.stages is not None
    return set(combinations(values.items(), 2))


def told(plan: Proven) -> str:
    """The plan in a line."""
    axes = (*AXES, *EXPERT_AXES)
    parts = [" ".join(f"{axis} {degree}" for axis in axes if (degree := getattr(plan, axis)) > 1)]
    if plan.pp > 1 or plan.schedule != "1f1b":
        knobs = plan.memory_limit, plan.unit, plan.vocabulary, None
        choice = ScheduleChoice(plan.schedule, *knobs, plan.step_validation, plan.in_flight)
        parts.append(str(choice) + (f" ×{plan.chunks}" if plan.chunks > 1 else ""))
    if plan.stages and plan.pp > 1:
        parts.append("stages of " + " ".join(map(str, plan.stages)) + " layers")
    parts += [f"{plan.sharding} {plan.gather or ''}".strip()] if plan.dp_shard > 1 else []
    parts += [f"context {context_in_full(plan.context)}"] if plan.cp > 1 else []
    parts += ["sequence parallel"] if plan.sequence_parallel else []
    if plan.recompute != "none":
        names = plan.recompute if isinstance(plan.recompute, tuple) else (plan.recompute,)
        parts.append("recompute " + " ".join(names))
    parts += [f"layers recompute {recomputed(plan.recomputes)}"] if plan.recomputes else []
    if plan.offload is not None:
        parts.append(f"offload {plan.offload}" + (f", {plan.ahead} passes ahead" if plan.ahead > 1 else ""))
    parts += ["packed documents"] if plan.documents else []
    parts += [f"copies go once, nodes of {plan.node}"] if plan.once else []
    parts += ["experts in another order"] if plan.expert_order else []
    parts += [f"experts {plan.capacity}"] if plan.capacity else []
    parts.append(f"{plan.micro_batches} × {plan.micro_batch}")
    parts += ["order " + " ".join(plan.rank_order)] if plan.rank_order != DEFAULT_ORDER else []
    if plan.clip != OPTIONS.clip:
        parts.append(f"clipped at {plan.clip:g}" if plan.clip else "never clipped")
    return ", ".join(parts)
