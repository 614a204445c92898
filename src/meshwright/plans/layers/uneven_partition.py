"""Uneven partitions of the layers over stages: given as counts, or balanced with the head's weight.

Redistribution moves whole layers away from the last stage, which also has the head, until the largest stage has as
few FLOPs as it can (the "redis" baseline of Yeung et al., arXiv 2411.05288, section 6.2). The embedding has no FLOPs.
"""

from collections.abc import Sequence
from itertools import groupby

from meshwright.model.graph import ModelGraph, attended_positions
from meshwright.model.operators.operator_types import Attention
from meshwright.plans.forms.long import Stages
from meshwright.plans.layers.layer_assignment import balanced_counts


def head_in_layers(model: ModelGraph, seq_len: int) -> float:
    """Forward FLOPs of the head over those of a mean layer, causal."""
    flops = [
        sum(
            op.flops_per_token(
                attended_positions(op, seq_len, causal=True) if isinstance(op, Attention) else 0
            )
            for op in block.operators
        )
        for block in model.blocks
    ]
    layers = [flops[index] for index in model.layer_blocks]
    return flops[model.chain[-1][0]] / (sum(layers) / len(layers))


def redistributed_counts(layers: int, stages: int, head: float) -> tuple[int, ...]:
    """Layers per stage when the last stage also has the work of ``head`` layers; of equal partitions the most even."""
    if stages == 1:
        return (layers,)

    def counts(last: int) -> tuple[int, ...]:
        return (*balanced_counts(layers - last, stages - 1), last)

    def load(last: int) -> tuple[float, int]:
        return max(max(counts(last)[:-1]), last + head), -last

    most = layers - (stages - 1)
    return counts(min(range(max(0, most) + 1), key=load))


def redistributed_stages(layers: int, stages: int, head: float) -> tuple[tuple[str, ...], ...]:
    """Return the same as ``pipeline.stages`` of a plan."""
    return written_stages(redistributed_counts(layers, stages, head))


def written_stages(counts: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """``pipeline.stages`` of stages with so many layers, the embedding in the first and the head in the last."""
    result, first = [], 0
    for stage, count in enumerate(counts):
        keys = ["embed"] if stage == 0 else []
        keys += [f"{first}..{first + count - 1}"] if count else []
        result.append((*keys, *(["head"] if stage == len(counts) - 1 else [])))
        first += count
    return tuple(result)


def stages_in_words(stages: Stages) -> str:
    """Return the layers of every stage, ``3 4×30 3`` for one of 3, 30 of 4 and one of 3."""
    if isinstance(stages, str):
        return stages
    runs = [(count, len(list(run))) for count, run in groupby(map(_layers_of, stages))]
    return " ".join(f"{count}×{times}" if times > 1 else str(count) for count, times in runs)


def _layers_of(keys: Sequence[str]) -> int:
    """Layers of a stage that is written out: ``0..7`` are 8, ``5`` is one."""
    ends = [key.split("..") for key in keys if key[0].isdecimal()]
    return sum(int(range_[-1]) - int(range_[0]) + 1 for range_ in ends)
