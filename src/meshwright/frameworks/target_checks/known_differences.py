"""Known differences of targets, as data: each row has the place, its effect on a step, and the reason.

``effect`` is one of eight, applied in the table's order to what the Program means and the target did:

==========  ====================================================================================================
units       what the Program sends for a whole stage at once goes block by block; the bytes stay
again       the target sends more of what is as large as something of the Program's, whole or in pieces: ``times`` in
            each micro-batch at most, or once more for each one of the plan's
kept        the target sends less of it than the Program: ``times`` in each micro-batch at most
recut       the same bytes in other pieces: all that is left of ``kind`` and ``what`` against what the target has
            left of ``done`` over the same ranks, times ``factor``
between     the target sends other pieces: at most ``factor`` times the plan's bytes, and at most ``most_bytes`` less
            in each micro-batch
absent      the target sends none of it
small       the target sends it beside the plan's, at most ``most_bytes`` each
order       the target sends the same in another order
==========  ====================================================================================================

``recut`` explains only what agrees in bytes; others but ``order`` and ``absent`` have their bounds. All else is a
disagreement. Sources: torchtitan 0.3.0, ``distributed/fsdp.py``, ``distributed/activation_checkpoint.py``,
``distributed/context_parallel``, ``components/loss.py``; Accelerate 1.15.0, ``utils/fsdp_utils.py``; DeepSpeed 0.19.8,
``runtime/zero/stage_1_and_2.py``, ``runtime/zero/stage3.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Effect = Literal["units", "again", "recut", "absent", "small", "order", "kept", "between"]
DATA = ("cp", "dp_shard", "dp_replicate", "edp_shard", "edp_replicate")
"""Axes over which states are gathered and reduced."""


@dataclass(frozen=True, slots=True)
class PlanKind:
    """Traits of a plan that select the rows."""

    sharding: str
    pipeline: bool
    recompute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row. Empty ``axes`` or ``what`` mean any.

    ``axes`` names at least one axis of the group, ``what`` the kind of block or the first word of what the Program
    says it is for.
    """

    name: str
    effect: Effect
    why: str
    kind: tuple[str, ...]
    axes: tuple[str, ...] = ()
    what: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    factor: float = 1.0
    times: int = 0
    most_bytes: int = 0
    shardings: tuple[str, ...] = ()
    pipeline: bool | None = None
    recomputes: tuple[str, ...] = ()


GATHERS, REDUCTIONS = ("all-gather",), ("reduce-scatter", "all-reduce")

FSDP_EXPERTS = (
    Difference(
        name="experts in their layer's unit",
        effect="recut",
        why="without ep FSDP gathers a layer's experts together with the rest of the layer",
        kind=GATHERS,
        axes=DATA,
        what=("layer",),
    ),
    Difference(
        name="experts in their layer's unit",
        effect="recut",
        why="without ep FSDP reduces the gradients of a layer's experts together with the rest of the layer",
        kind=REDUCTIONS,
        axes=DATA,
        what=("layer",),
    ),
)
NORM = (
    Difference(
        name="gradient norm",
        effect="absent",
        why="the norm is summed over each axis in turn, not over all ranks at once",
        kind=("all-reduce",),
        axes=("world",),
        what=("gradient",),
    ),
    Difference(
        name="gradient norm",
        effect="small",
        why="the squares of all parameters' norms, over each axis in turn, and counts of tokens",
        kind=("all-reduce",),
        most_bytes=2**14,
    ),
)
TORCHTITAN = (
    Difference(
        name="FSDP's units",
        effect="units",
        why="FSDP gathers and reduces unit by unit: the embedding, each layer, the last norm with the output layer",
        kind=(*GATHERS, *REDUCTIONS),
        axes=DATA,
        what=("stage",),
        pipeline=True,
    ),
    *FSDP_EXPERTS,
    Difference(
        name="output layer gathered again",
        effect="again",
        why="norm and output layer are one unit, and the chunked loss calls the output layer by itself",
        times=2,
        kind=GATHERS,
        axes=DATA,
        what=("head",),
    ),
    Difference(
        name="output layer reduced in every micro-batch",
        effect="again",
        why="the chunked loss ends with a reduction of its own, which the pipeline does not put off",
        times=1,
        kind=("reduce-scatter", "all-reduce"),
        axes=DATA,
        what=("head",),
        pipeline=True,
    ),
    Difference(
        name="last norm reduced by itself",
        effect="recut",
        why="the chunked loss ends the output layer's backward pass before the norm's begins",
        kind=REDUCTIONS,
        axes=DATA,
        what=("head",),
    ),
    Difference(
        name="loss in chunks",
        effect="recut",
        why="maximum, sum and target logit are reduced in 8 chunks of the tokens",
        kind=("all-reduce",),
        axes=("tp",),
        what=("loss",),
    ),
    Difference(
        name="gradients that tp does not cut",
        effect="recut",
        why="each norm's partial gradient is summed over tp by itself, in bf16 as the backward pass makes it",
        kind=("all-reduce",),
        axes=("tp",),
        what=("whole",),
        factor=0.5,
        pipeline=False,
    ),
    Difference(
        name="gradients that tp does not cut",
        effect="recut",
        why="each norm's partial gradient is summed over tp by itself, when the micro-batches' sum is there",
        kind=("all-reduce",),
        axes=("tp",),
        what=("whole",),
        pipeline=True,
    ),
    Difference(
        name="gradients that tp does not cut",
        effect="between",
        why="the last norm is in the output layer's unit: its gradient is summed over tp in every micro-batch",
        kind=("all-reduce",),
        axes=("tp",),
        what=("whole",),
        factor=4,
        pipeline=True,
    ),
    Difference(
        name="keys and values gathered",
        effect="recut",
        why="context parallelism gathers keys and values where a ring would pass them on",
        kind=("ring",),
        done=("all-gather",),
        axes=("cp",),
        what=("forward",),
    ),
    Difference(
        name="gradients of keys and values reduced",
        effect="recut",
        why="the gathered keys and values are kept, so that only their gradients travel back",
        kind=("ring",),
        done=("reduce-scatter",),
        axes=("cp",),
        what=("backward",),
        factor=0.5,
    ),
    Difference(
        name="recomputation when it is needed",
        effect="order",
        why="a checkpoint runs its forward pass again at the first value that is missing, after what needs none",
        kind=("all-gather", "reduce-scatter"),
        axes=("tp", "cp"),
        recomputes=("full", "selective"),
    ),
    *NORM,
)
ACCELERATE = (
    *FSDP_EXPERTS,
    Difference(
        name="tied table in one unit",
        effect="recut",
        why="table, last norm and output layer are one unit, kept from the forward to the backward pass",
        kind=GATHERS,
        axes=DATA,
        what=("embed", "head"),
        factor=0.5,
    ),
    Difference(
        name="tied table in one unit",
        effect="recut",
        why="table, last norm and output layer are one unit",
        kind=GATHERS,
        axes=DATA,
        what=("embed", "head"),
    ),
    Difference(
        name="tied table in one unit",
        effect="recut",
        why="gradients of table, last norm and output layer are reduced together",
        kind=REDUCTIONS,
        axes=DATA,
        what=("embed", "head"),
    ),
    Difference(
        name="output layer kept",
        effect="kept",
        why="last norm and output layer stay gathered from the forward to the backward pass",
        times=1,
        kind=GATHERS,
        axes=DATA,
        what=("head",),
    ),
    *NORM,
)
DEEPSPEED = (
    Difference(
        name="buckets",
        effect="recut",
        why="gradients are reduced in buckets of reduce_bucket_size elements",
        kind=REDUCTIONS,
        axes=DATA,
    ),
    Difference(
        name="one flat gather",
        effect="recut",
        why="after the optimizer all parameters are gathered at once, experts among them",
        kind=GATHERS,
        axes=DATA,
        shardings=("zero1", "zero2"),
    ),
    Difference(
        name="output layer kept",
        effect="kept",
        why="the output layer stays gathered from the forward to the backward pass",
        times=1,
        kind=GATHERS,
        axes=DATA,
        what=("head",),
        shardings=("zero3",),
    ),
    Difference(
        name="module by module",
        effect="between",
        why="parameters are gathered as modules come; those that are used again within stage3_max_reuse_distance = "
        "1e9 stay",
        kind=GATHERS,
        axes=DATA,
        most_bytes=2 * 10**9,
        shardings=("zero3",),
    ),
    *NORM,
)
DIFFERENCES: Mapping[str, tuple[Difference, ...]] = {
    "torchtitan": TORCHTITAN,
    "deepspeed": DEEPSPEED,
    "accelerate": ACCELERATE,
}
"""What each target does in its own way."""
