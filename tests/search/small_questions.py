"""Small planning questions with odd numbers, and their spaces found one plan at a time."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from meshwright.cluster.load import load_cluster
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.arrays.short_plans import COLUMNS
from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.gather import NEVER
from meshwright.plans.choices.plan_choice import format_choice
from meshwright.plans.choices.recompute import RECOMPUTES
from meshwright.plans.context_parallel import parse_context, shortest
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.setting import Setting
from meshwright.schedules.generators import SCHEDULES
from meshwright.search.algorithms.exhaustive import MATTERS
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.space.plan_space import Space
from meshwright.search.space.variants import Variants, leaves_open, usual_variants
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack
from meshwright.verbs.plan.constraints import parse_keep

DENSE = {
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 240,
    "num_attention_heads": 12,
    "num_key_value_heads": 6,
    "head_dim": 8,
    "vocab_size": 640,
    "max_position_embeddings": 4096,
}
LEARNED = {"model_type": "gpt2", "n_embd": 80, "n_head": 10, "vocab_size": 500, "n_positions": 256}
SPARSE = DENSE | {"model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2}
SPARSE |= {"intermediate_size": 36}
SHARED = DENSE | {
    "model_type": "qwen2_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 24,
}
LATENT = DENSE | {
    "model_type": "deepseek_v3",
    "num_key_value_heads": 12,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 10,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}
MODELS = {"dense": DENSE, "learned": LEARNED, "sparse": SPARSE, "shared": SHARED, "latent": LATENT}
TEXT_ENCODER = {
    "model_type": "t5",
    "vocab_size": 600,
    "d_model": 96,
    "d_kv": 8,
    "d_ff": 240,
    "num_layers": 3,
    "num_decoder_layers": 4,
    "num_heads": 12,
}
IMAGES = {
    "model_type": "qwen2_5_vl",
    "image_token_id": 1,
    "text_config": DENSE
    | {
        "model_type": "qwen2_5_vl_text",
        "num_hidden_layers": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [2, 1, 1]},
    },
    "vision_config": {
        "depth": 2,
        "hidden_size": 48,
        "intermediate_size": 36,
        "num_heads": 6,
        "out_hidden_size": 96,
        "patch_size": 2,
        "window_size": 8,
        "fullatt_block_indexes": [1],
    },
}
ENCODERS = {"text encoder": TEXT_ENCODER, "images": IMAGES}
"""Models that need further inputs."""
INPUTS: dict[str, dict[str, Any]] = {
    "text encoder": {"encoder_tokens": 50},
    "images": {"images": {"per_sequence": 2, "tokens": 24}},
}
DEVICES = (4, 5, 6, 8, 9, 10, 12, 14, 16, 18, 20, 24)
STACKS = ("megatron-core", "torchtitan", "deepspeed", "maxtext", "llm-foundry", "megatron-lm-2021", "generic")
LARGEST = 12_000
WIDTHS = (
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "n_embd",
    "head_dim",
)

Choice = dict[str, int | str]


@dataclass(frozen=True)
class Asked:
    """A question, and the header that its plans share."""

    setting: Setting
    header: ShortPlan


def asked(kind: str, devices: int, stack: str, *, layers: int = 4, seq_len: int, batch: int, width: int = 1):
    """A question about a tiny model; ``width`` multiplies its widths."""
    config = ENCODERS.get(kind) or MODELS[kind] | {"num_hidden_layers": layers, "n_layer": layers}
    config |= {name: config[name] * width for name in WIDTHS if name in config}
    model = build_graph(read_architecture(config, kind, "a test"))
    cluster = f"h100-sxm-80gb x {devices}"
    spec = WorkloadSpec(seq_len=seq_len, global_batch=batch, **INPUTS.get(kind, {}))
    header = ShortPlan(
        plan=1,
        model=kind,
        cluster=cluster,
        workload=spec,
        stack=stack,
    )
    every_model = replace(load_stack(stack), models=None)
    return Asked(Setting(model, load_cluster(cluster), workload_of(header), every_model), header)


def random_question(seed: int) -> Asked:
    """A question whose raw space is small enough to be walked through."""
    rng = random.Random(f"question {seed}")
    devices = DEVICES[seed % len(DEVICES)]
    for tries in range(500):
        question = asked(
            rng.choice(tuple(MODELS)),
            devices,
            rng.choice(STACKS),
            layers=rng.choice((2, 3, 4, 6)),
            seq_len=rng.choice((32, 48, 60, 96, 128, 240)),
            batch=rng.choice((1, 2, 3, 4, 6, 8, 12)),
        )
        raw = prod(map(len, raw_parts(question.setting, usual_variants(question.setting, {}))))
        if 50 <= raw <= LARGEST and (tries > 50 or len(enumerate_space(question.setting)) >= 20):
            return question
    raise AssertionError(f"no small question of {devices} devices")


def raw_parts(setting: Setting, variants: Variants) -> tuple[list[Any], ...]:
    """What the raw space multiplies."""
    devices = setting.cluster.devices
    axes = ("pp", "tp", "cp", "dp_replicate", "dp_shard")
    degrees = product(_divisors(devices), repeat=5)
    return (
        [dict(zip(axes, some, strict=True)) for some in degrees if prod(some) == devices],
        [m for m in _divisors(setting.workload.global_batch) if m <= 64],
        list(_schedules(setting)),
        list(_experts(setting)),
        list(_shardings(setting.stack)),
        list(_complete(variants)),
    )


def raw_choices(setting: Setting, variants: Variants | None = None) -> Iterator[Choice]:
    """Every choice of the raw space, without any rule; of the usual variants if nothing is said."""
    variants = variants or usual_variants(setting, {})
    return (raw_choice(parts, variants) for parts in product(*raw_parts(setting, variants)))


def raw_choice(parts: tuple[Any, ...], variants: Variants) -> Choice:
    """The choice that has these ``raw_parts``."""
    layout, micro_batch, (schedule, virtual), (ep, etp), (sharding, gather), variant = parts
    return layout | {
        "micro_batch": micro_batch,
        "schedule": schedule,
        "virtual_stages": virtual,
        "ep": ep,
        "etp": etp,
        "sharding": sharding,
        "gather": gather,
        **{
            name: format_choice((CHOICES[name].known or variants.values[name])[code])
            for name, code in variant.items()
        },
    }


def _complete(variants: Variants) -> Iterator[dict[str, int]]:
    """Codes of every variant, with those of what is chosen later."""
    for variant in variants.all:
        later = variants.later if leaves_open(variant) else (variant,)
        yield from ({**variant.codes, **one.codes} for one in later)


def _shardings(stack: Stack) -> Iterator[tuple[str, str]]:
    for sharding in stack.shardings:
        hows = {*stack.gathers, *stack.pipeline_gathers} if sharding == "zero3" else {NEVER}
        yield from ((sharding, how) for how in sorted(hows))


def _schedules(setting: Setting) -> Iterator[tuple[str, int]]:
    for name, kind in SCHEDULES.items():
        if kind.searched and (name in setting.stack.schedules or name == "1f1b"):
            counts = _chunks(setting.model.architecture.layers) if kind.chunked else [1]
            yield from ((name, count) for count in counts)


def _chunks(layers: int) -> list[int]:
    """Numbers of chunks that may cut the layers evenly, with embedding and head counted as layers or not."""
    return [n for n in range(2, layers // 2 + 1) if any((layers + ends) % n == 0 for ends in range(3))]


def _experts(setting: Setting) -> Iterator[tuple[int, int]]:
    moe, stack = setting.model.architecture.moe, setting.stack
    for ep in _divisors(moe.experts) if moe and stack.ep else [1]:
        for etp in _divisors(moe.intermediate) if moe and stack.etp else [1]:
            if setting.cluster.devices % (ep * etp) == 0 and etp <= setting.cluster.pool.node.scaleup_domain:
                yield ep, etp


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def is_worth_searching(choice: Choice, setting: Setting, variants: Variants | None = None) -> bool:
    """The rules that only a search has."""
    variants = variants or usual_variants(setting, {})
    if (
        choice["tp"] == 1
        and choice["sequence_parallel"] == "false"
        and True in variants.values["sequence_parallel"]
    ):
        return False
    stack = setting.stack
    if choice["gather"] not in (NEVER, *(stack.pipeline_gathers if choice["pp"] > 1 else stack.gathers)):
        return False
    contexts = [format_choice(context) for context in variants.values["context"]]
    if choice["cp"] == 1 and contexts.index(str(choice["context"])):
        return False
    if choice["offload"] != "none" and choice["pp"] == 1:
        return False
    orders = [[axis for axis in order if choice[axis] > 1] for order in variants.values["order"]]
    place = [format_choice(order) for order in variants.values["order"]].index(str(choice["order"]))
    if orders[place] in orders[:place]:
        return False
    if setting.model.architecture.moe and choice["pp"] > 1 and not str(choice["order"]).endswith("pp"):
        return False
    alone = choice["dp_shard"] * choice["cp"] == 1
    if choice["pp"] == 1 and choice["schedule"] != "1f1b":
        return False
    if choice["sharding"] == "none" and choice["dp_shard"] > 1:
        return False
    if choice["sharding"] != "none" and alone and "none" in setting.stack.shardings:
        return False
    layers, stages = setting.model.architecture.layers, choice["pp"] * choice["virtual_stages"]
    even = any((layers + ends) % stages == 0 for ends in range(3))
    return even or choice["virtual_stages"] == 1


def short_plan(choice: Choice, question: Asked) -> ShortPlan:
    """The plan of a choice."""
    recompute = str(choice["recompute"])
    degrees = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp")
    pipeline = ("schedule", "micro_batch", "virtual_stages")
    return question.header.model_copy(
        update={
            "layout": ShortLayout(
                **{name: choice[name] for name in degrees},
                sequence_parallel=choice["tp"] > 1 and choice["sequence_parallel"] == "true",
                rank_order=tuple(str(choice["order"]).split(",")),
                context=shortest(parse_context(str(choice["context"]))) if choice["cp"] != 1 else None,
            ),
            "pipeline": ShortPipeline(**{name: choice[name] for name in pipeline}),
            "sharding": choice["sharding"],
            "gather": None if choice["gather"] == NEVER else choice["gather"],
            "offload": parse_keep([f"offload={choice['offload']}"])["offload"],
            "recompute": recompute if recompute in RECOMPUTES else tuple(recompute.split(",")),
        }
    )


def is_legal(choice: Choice, question: Asked) -> bool:
    """Whether the plan of a choice has no problem."""
    setting = question.setting
    long = expand(short_plan(choice, question), setting.model.architecture)
    found = check_plan(long, setting.model, setting.cluster, setting.stack)
    return not any(problem.severity == "error" for problem in found)


def choices_of(space: Space) -> list[Choice]:
    """The plans of a space, one dictionary each, names instead of codes."""
    plans = space.plans
    names = {name: [format_choice(value) for value in plans.values[name]] for name in CHOICES}
    columns = {key: getattr(plans, key).tolist() for key in COLUMNS}
    columns |= {key: [table[code] for code in columns[key]] for key, table in names.items()}
    return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def as_set(choices) -> set[tuple]:
    """Choices as a set; a choice that comes twice is a failure. What tp does not cut is not cut."""
    listed = [
        tuple(sorted({**c, "sequence_parallel": c["sequence_parallel"] if c["tp"] > 1 else "false"}.items()))
        for c in choices
    ]
    assert len(set(listed)) == len(listed)
    return set(listed)


def best_of_kinds(plans, step_s, fits):
    """The best times of plans that differ in what matters, in ascending order."""
    kinds = {}
    for row in np.flatnonzero(fits):
        kind = tuple(int(getattr(plans, name)[row]) for name in MATTERS)
        kinds[kind] = min(float(step_s[row]), kinds.get(kind, np.inf))
    return sorted(kinds.values())
