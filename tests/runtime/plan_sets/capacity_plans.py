"""Plans whose experts have a capacity: every scope, policy and way to fill places, each with something else."""

from dataclasses import replace
from itertools import cycle, product

from context_combinations import PARTS
from covering_plans import Proven
from next_token_plans import further

from meshwright.workload.expert_capacity import Capacity

FEW = Capacity(factor=0.7)
"""Some are dropped, whoever comes."""
BOUNDED = Proven("mixtral", dp_replicate=2, ep=2, micro_batch=2, layers=2, capacity=FEW)
CUT = replace(BOUNDED, dp_replicate=1, tp=2, cp=2, ep=2, sequence_parallel=True)
"""A micro-batch of two sequences, in the parts of four ranks."""
CAPACITIES = tuple(
    Capacity(factor=0.7, drop=drop, scope=scope, pad=pad)
    for scope, drop, pad in product(("rank", "micro-batch", "sequence"), ("probs", "position"), (False, True))
)
EIGHT = (("num_local_experts", 8),)
LOSS = (("aux_loss_alpha", 0.5), ("bias_update_speed", 0.05))
OTHERS = (
    replace(BOUNDED, capacity=Capacity(factor=1.3, pad=True)),
    replace(BOUNDED, capacity=Capacity(factor=8.0)),
    replace(BOUNDED, model="gpt_oss", etp=2, ep=1, capacity=Capacity(factor=0.9, pad=True)),
    replace(CUT, model="gpt_oss", ep=2, etp=2, capacity=replace(FEW, scope="sequence")),
    replace(
        CUT, model="deepseek_v3", sizes=LOSS, recompute="full", capacity=replace(FEW, scope="micro-batch")
    ),
    replace(BOUNDED, model="qwen2_moe", recompute=("moe",), capacity=replace(FEW, drop="position", pad=True)),
    replace(BOUNDED, model="deepseek_v2", recompute=("moe_act",), sizes=LOSS[:1]),
    replace(CUT, documents=9, capacity=replace(FEW, scope="sequence", drop="position")),
    replace(BOUNDED, once=True, expert_order=((5, 0, 3, 2, 4, 1),)),
    replace(BOUNDED, expert_order=((5, 0, 3, 2, 4, 1),), capacity=Capacity(factor=1.1, pad=True)),
    replace(
        BOUNDED, dp_replicate=4, ep=4, once=True, node=2, sizes=EIGHT, capacity=replace(FEW, drop="position")
    ),
    replace(CUT, once=True, capacity=replace(FEW, scope="sequence")),
    replace(BOUNDED, pp=2, schedule="dualpipe", micro_batches=4, layers=4),
    replace(BOUNDED, pp=2, layers=4, recomputes=("full", "none", ("moe",), ("moe_act",))),
    replace(further("deepseek_v3", 1, dp_replicate=2, ep=2, pp=2, micro_batches=4), capacity=FEW),
    replace(BOUNDED, pp=2, schedule="zb-h1", step_validation="after", micro_batches=4, layers=4),
)


def alone() -> list[Proven]:
    """Every capacity: where ranks have parts of a scope, or all of it where they would fill places together."""
    together = [capacity for capacity in CAPACITIES if capacity.pad and capacity.scope != "rank"]
    return [replace(BOUNDED if c in together else CUT, capacity=c) for c in CAPACITIES]


def composed(*left_out: str) -> list[Proven]:
    """Every other part of a plan, with a capacity each."""
    base = Proven("mixtral", micro_batch=2, layers=4, micro_batches=4)
    capacities = cycle([c for c in CAPACITIES if not c.pad or c.scope == "rank"])
    parts = [
        {"dp_replicate": 2 if factor == "experts" else 1} | said
        for factor, levels in PARTS.items()
        for said in levels.values()
        if factor not in left_out
    ]
    return [replace(base, **said, capacity=next(capacities)) for said in parts]
