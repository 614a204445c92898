"""Features of a plan to prove (tp, zero3, recomputation, …) and their cost in ranks of a small plan."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

from meshwright.model.encoder import Encoder, VisionEncoder
from meshwright.model.graph import ModelGraph
from meshwright.plans.context_parallel import HEADS_ALONE, Context
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, ShortPlan
from meshwright.plans.layers.layer_assignment import chain_layers
from meshwright.plans.layers.plan_of_layout import sequences_together, uneven_batches, uneven_states
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes, layer_recomputes
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.shrink.small_combinations import small_replicas
from meshwright.workload.optimizer_choice import ADAMW
from meshwright.workload.optimizers.muon import BLOCKWISE

AXIS_DEGREE = 2
"""An axis of degree 2 shows what any degree does."""
OFFLOADING_RANKS = 4
"""On fewer no pass of 1F1B is held for so long that its activations leave the device."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature as ``text``, and the factor ``ranks`` by which it multiplies a small plan's ranks.

    Lists that are written are for all of their pipeline ranks; of every other pipeline two ranks show what it does, or
    four where activations go to the host.
    """

    text: str
    ranks: int = 1


def features(
    short: ShortPlan, long: LongPlan, model: ModelGraph, *, forwarding: bool = False
) -> dict[str, Feature]:
    """Return the active features of a plan by name. ``short`` has its degrees; ``long`` its stages.

    ``forwarding``: copies of tokens go from node to node, and are handed on inside of them.
    """
    layout, found = short.layout, dict[str, Feature]()
    if layout.pp > 1:
        found["pp"] = Feature(_pipeline(short, long, model), pipeline_ranks(short))
    if layout.dp_replicate > 1:
        degree = small_replicas(long.synchronise, "dp_replicate", layout.dp_replicate)
        found["dp_replicate"] = Feature("replicas", degree)
    if layout.dp_shard > 1:
        gather = f", gathered {long.gather}" if short.sharding == "zero3" else ""
        degree = small_replicas(long.synchronise, "dp_shard", layout.dp_shard)
        found["dp_shard"] = Feature(f"{short.sharding} over shards{gather}", degree)
    if layout.tp > 1:
        how = "with" if layout.sequence_parallel else "without"
        found["tp"] = Feature(f"tensor parallelism {how} sequence parallelism", AXIS_DEGREE)
    if layout.ep > 1:
        forwarded = Feature("experts over ep, copies of tokens handed on inside of nodes", AXIS_DEGREE**2)
        found["ep"] = forwarded if forwarding else Feature("experts over ep", AXIS_DEGREE)
    if layout.expert_order is not None:
        found["expert_order"] = Feature("experts on other ranks than the model has them")
    if layout.etp > 1:
        found["etp"] = Feature("widths of experts over etp", AXIS_DEGREE)
    if layout.cp > 1:
        found |= _context(layout.cp, layout.context_in_full)
    recomputes = layer_recomputes(long, model.architecture.layers)
    if set(recomputes) != {"none"}:
        found["recompute"] = Feature(f"recomputation: {format_layer_recomputes(recomputes)}")
    if long.offload_rule.share:
        found["offload"] = Feature(f"activations wait on the host: {long.offload}")
    if short.workload.optimizer_in_full != ADAMW:
        found["optimizer"] = Feature(_optimizer(short))
    if short.workload.adapter is not None:
        found["adapter"] = Feature(f"{short.workload.adapter.adapter}")
    if long.dtypes is not None:
        types = ", ".join(f"{key} {word}" for key, word in long.written_types.items())
        found["dtypes"] = Feature(f"element types of states: {types}")
    if long.host_shares.some:
        found["host_states"] = Feature(f"states are on the host: {long.offload}")
    if model.tied_gradients:
        found["tied_embeddings"] = Feature("embedding and last stage share a table")
    if model.architecture.encoder is not None:
        found["encoder"] = Feature(_encoder(model.architecture.encoder))
    if model.architecture.next_token_layers:
        found["next_tokens"] = Feature("layers predict further tokens")
    if short.workload.capacity is not None:
        found["capacity"] = Feature(f"experts drop tokens: {workload_of(short).capacity}")
    if micro_batches(short, long) > 1:
        what = "losses" if short.workload.optimizer_in_full.forward_only else "gradients"
        found["micro_batches"] = Feature(f"{what} of several micro-batches are summed")
    if short.pipeline.micro_batch > 1:
        found["micro_batch"] = Feature("a micro-batch has several sequences")
    if uneven_batches(long):
        found["batch_share"] = Feature("replicas have unlike numbers of sequences")
    if uneven_states(long):
        found["state_share"] = Feature("ranks have unlike shares of the states")
    if long.synchronise:
        listed = ", ".join(dict.fromkeys(f"{entry.state} over {entry.over}" for entry in long.synchronise))
        found["synchronise"] = Feature(f"exchanges of replicas: {listed}")
    if tuple(layout.rank_order) != DEFAULT_RANK_ORDER:
        found["rank_order"] = Feature("rank order " + _listed(layout.rank_order))
    return found


def _encoder(encoder: Encoder) -> str:
    return "an encoder reads " + ("images" if isinstance(encoder, VisionEncoder) else "a second text")


def _context(cp: int, context: Context) -> dict[str, Feature]:
    """Each dimension of context parallelism, and a ring that has a next rank and another one before."""
    found = {"cp": Feature(f"context parallelism, {context.form}", AXIS_DEGREE)}
    if context.pieces == "contiguous":
        found["cp"] = replace(found["cp"], text=f"{found['cp'].text}, contiguous pieces")
    if context.two_dimensional:
        found["cp_ulysses"] = Feature("heads exchanged inside of groups of cp", AXIS_DEGREE)
    if cp // context.heads(cp) > AXIS_DEGREE:
        found["long_ring"] = Feature("more than two ranks with parts of a sequence", AXIS_DEGREE)
    return found


def context_of(context: Context, chosen: Collection[str]) -> tuple[int, Context]:
    """Degree and form of cp with those of its features that are ``chosen``."""
    inner = AXIS_DEGREE if "cp_ulysses" in chosen else 1
    outer = AXIS_DEGREE ** sum(name in chosen for name in ("cp", "long_ring"))
    if outer == 1 and inner > 1:
        return inner, HEADS_ALONE
    return outer * inner, context.model_copy(update={"ulysses": inner})


def pipeline_ranks(short: ShortPlan) -> int:
    """Return the number of pipeline ranks that a small copy of the pipeline needs."""
    if short.pipeline.choice.written:
        return short.layout.pp
    return min(
        short.layout.pp, OFFLOADING_RANKS if short.offload and short.offload.rule.share else AXIS_DEGREE
    )


def micro_batches(short: ShortPlan, long: LongPlan) -> int:
    """Micro-batches of a step."""
    if uneven_batches(long):
        return long.workload.global_batch // sequences_together(long)
    shared = 2 if short.workload.optimizer_in_full.splits_perturbations else 1
    replicas = prod((short.layout.dp_replicate, short.layout.dp_shard)) // shared
    return short.workload.global_batch // (replicas * short.pipeline.micro_batch)


def stage_counts(long: LongPlan, model: ModelGraph) -> tuple[int, ...]:
    """Layers of each stage of one chain."""
    return tuple(stage.count for stage in chain_layers(long.pipeline, model.architecture.layers))


def _pipeline(short: ShortPlan, long: LongPlan, model: ModelGraph) -> str:
    parts = [f"pipeline {short.pipeline.choice}"]
    if short.pipeline.virtual_stages > 1:
        parts.append(f"{short.pipeline.virtual_stages} stages a rank")
    if len(set(stage_counts(long, model))) > 1:
        parts.append("uneven stages")
    return ", ".join(parts)


def _optimizer(short: ShortPlan) -> str:
    """Name the optimizer, and say where it computes other numbers than one device would."""
    optimizer = short.workload.optimizer_in_full
    cut = short.layout.tp > 1 or short.layout.etp > 1
    if not (optimizer.kind.of_matrices and cut and optimizer.tensor == BLOCKWISE):
        return str(optimizer)
    return f"{optimizer}; blocks by themselves: other numbers than one device, the reference takes the same blocks"


def _listed(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value)
