"""Plans of models with linear attention: whatever cuts their sequences, heads, layers and states."""

from dataclasses import replace

from context_combinations import FORMS, TWO_DIMENSIONS
from covering_plans import Proven

from meshwright.plans.context_parallel import Context

LINEAR = Proven("minimax", layers=2)
CUT = replace(LINEAR, cp=2)
WIDE = replace(LINEAR, cp=4, micro_batches=1)
TENSORS = {"tp": 2, "sequence_parallel": True}
PACKED = replace(LINEAR, documents=9, micro_batch=2)

QUICK = (
    LINEAR,
    CUT,
    replace(CUT, **TENSORS),
    replace(CUT, model="minimax alternating", recompute="full", micro_batch=2, **TENSORS),
    replace(WIDE, context=Context(pieces="contiguous")),
    replace(WIDE, context=Context(form="all-gather", ulysses=2)),
    replace(CUT, recompute=("core_attn", "layernorm"), dp_shard=2, sharding="zero3", gather="per-layer"),
    replace(CUT, pp=2, layers=4, schedule="zb-h1", micro_batches=4),
    PACKED,
    replace(PACKED, cp=4),
)
FULL = (
    *(replace(CUT, context=form) for form in FORMS),
    *(replace(WIDE, context=context) for context in TWO_DIMENSIONS.values()),
    replace(WIDE, context=Context(ulysses=2, pieces="contiguous")),
    *(
        replace(PACKED, cp=4, context=form)
        for form in ("ulysses", "all-gather", Context(pieces="contiguous"))
    ),
    replace(PACKED, cp=2, recompute="full", **TENSORS),
    replace(CUT, pp=2, layers=4, schedule="dualpipe", micro_batches=4),
    replace(CUT, pp=2, layers=4, schedule="v-half", micro_batches=4, offload=0.5),
    replace(CUT, cp=6, micro_batches=1, context=Context(ulysses=3), sizes=(("num_attention_heads", 6),)),
)
