"""Random legal replicas of zoo models with the tokens of an iteration, drawn from a seed."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.all_reduce_forms import ALL_REDUCE_FORMS
from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.iteration import Overheads, ReplicaCost
from meshwright.cost.serving.overlap_forms import FORMS
from meshwright.model.architecture import Architecture
from meshwright.model.load import load_model
from meshwright.plans.rules.degrees import expert_width_problems, width_problems
from meshwright.program.serving.iteration_shape import IterationLoad
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats

MODELS = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "gemma-3-12b",
    "phi-4",
    "mixtral-8x7b",
    "gpt-oss-120b",
    "deepseek-v2-lite",
    "deepseek-v3",
    "granite-4.0-h-micro",
    "minimax-text-01",
)
"""Dense, sliding windows, experts, latent attention, state-space and linear layers."""
DEVICES = ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "a100-sxm-80gb")
OVERLAPS = ("none", "none", "none", *FORMS)
PHASES = ("prompts", "decode", "mixed")
FORMATS = (
    StorageFormats(),
    StorageFormats(weights="fp8", kv="fp8"),
    StorageFormats(weights="fp4", kv="fp4"),
)
MOST_DEVICES = 64


class Draw(NamedTuple):
    """A replica with its price, an iteration's tokens, and sequences of one length in its cache."""

    model: str
    phase: str
    cost: ReplicaCost
    load: IterationLoad
    caches: dict[int, int]
    block_tokens: int


def draw(seed: int) -> Draw:
    """Return the draw of a seed; neighbouring seeds have different models and phases."""
    rng = np.random.default_rng(seed)
    name, phase = MODELS[seed % len(MODELS)], PHASES[seed // len(MODELS) % len(PHASES)]
    model = load_model(name)
    degrees = None
    while degrees is None:
        degrees = _degrees(rng, model.architecture)
    cost = ReplicaCost(
        model=model,
        times=serving_times_for(load_cluster(f"{_one(rng, DEVICES)} x 64").pool),
        degrees=degrees,
        formats=_one(rng, FORMATS),
        overheads=Overheads(*_one(rng, ((0.0, 0.0), (0.0005, 1e-7), (0.002, 2e-6)))),
    )
    context = int(10 ** rng.uniform(1, 5))
    sequences = 0 if phase == "prompts" else int(10 ** rng.uniform(0, 2.4))
    tokens = 0 if phase == "decode" else int(10 ** rng.uniform(0, 4.2))
    load = IterationLoad(
        prompt_tokens=float(tokens),
        prompt_positions=float(tokens / 2 + _one(rng, (0, 1000))),
        prompts=float(tokens > 0),
        prompt_ranks=float(rng.integers(1, degrees.attention_dp + 1)),
        sequences=float(sequences),
        context=float(context),
    )
    cost = replace(cost, overlap=_one(rng, OVERLAPS), allreduce=_one(rng, tuple(ALL_REDUCE_FORMS)))
    caches = {context: sequences} if sequences else {max(tokens, 1): 1}
    return Draw(name, phase, cost, load, caches, int(_one(rng, (1, 16, 64))))


def _one(rng: np.random.Generator, values: tuple[Any, ...]) -> Any:
    return values[rng.integers(len(values))]


def _degrees(rng: np.random.Generator, arch: Architecture) -> ReplicaDegrees | None:
    """Return random degrees, None where they break a law of serving plans."""
    states = arch.linear is not None or arch.state_space is not None
    tp, attention_dp, cp = _one(rng, (1, 2, 4, 8)), _one(rng, (1, 1, 2, 4, 8)), _one(rng, (1, 1, 1, 2, 4))
    pp = _one(rng, (1, 2, 3, 4, 8))
    ranks = tp * attention_dp * cp
    if (
        ranks * pp > MOST_DEVICES
        or (states and cp > 1)
        or any(width_problems(arch, tp, "tp", copied_kv_heads=True))
    ):
        return None
    if arch.moe is None:
        return ReplicaDegrees(attention_dp=attention_dp, tp=tp, pp=pp, cp=cp)
    ep = int(_one(rng, tuple(n for n in range(1, ranks + 1) if ranks % n == 0)))
    if any(expert_width_problems(arch.moe, ep, ranks // ep, "layout", ep)):
        return None
    return ReplicaDegrees(attention_dp=attention_dp, tp=tp, pp=pp, cp=cp, ep=ep, etp=ranks // ep)
