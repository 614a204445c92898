"""Make a plan of one layout from a plan of several: one of its layouts, for all layers.

Rules and lowering read each layout in this way, with its own states, gathers and sequences of a replica.
"""

from meshwright.plans.forms.long import Layout, LongPlan
from meshwright.plans.layers.layer_assignment import parse_layer_key
from meshwright.plans.synchronisation.synchronisation import shares_per_replica

MOST_LAYERS = 10**6
"""More than any model has."""


def plan_of_layout(plan: LongPlan, name: str) -> LongPlan:
    """Return ``plan`` with the layout ``name`` for all layers; a plan with no other one is returned as it is."""
    layout = plan.layouts[name]
    if len(plan.layouts) == 1 and layout.states is None and layout.gather is None:
        return plan
    return plan.model_copy(
        update={
            "layouts": {name: layout.model_copy(update={"states": None, "gather": None})},
            "states": plan.states if layout.states is None else layout.states,
            "gather": layout.gather or plan.gather,
            "layers": {key: rule.model_copy(update={"layout": name}) for key, rule in plan.layers.items()},
            "pipeline": plan.pipeline.model_copy(update={"micro_batch": _micro_batch(plan, layout)}),
        }
    )


def _micro_batch(plan: LongPlan, layout: Layout) -> int:
    """Return the sequences of a replica in a layout; ``batch_share`` multiplies the plan's own."""
    if layout.batch_share is not None:
        return plan.pipeline.micro_batch
    return max(1, sequences_together(plan) // replicas(layout))


def each_layout(plan: LongPlan) -> list[LongPlan]:
    """Return the plans that have one of ``plan``'s layouts each."""
    return [plan_of_layout(plan, name) for name in plan.layouts]


def plan_of_main_layout(plan: LongPlan) -> LongPlan:
    """Return the plan that has the layout of most layers everywhere: what describes a plan of several in short."""
    if len(plan.layouts) == 1:
        return plan_of_layout(plan, next(iter(plan.layouts)))
    counts = dict.fromkeys(plan.layouts, 0)
    for key, rule in plan.layers.items():
        if rule.layout in counts and key not in ("embed", "head"):
            counts[rule.layout] += len(parse_layer_key(key, MOST_LAYERS) or ())
    return plan_of_layout(plan, max(counts, key=counts.__getitem__))


def replicas(layout: Layout) -> int:
    """Return the number of data-parallel replicas of a layout."""
    return layout.grid.dp_replicate * layout.grid.dp_shard


def sequences_together(plan: LongPlan) -> int:
    """Return the sequences that move through the pipeline together.

    They are the sum of a layout's ``batch_share``; without any, ``pipeline.micro_batch`` counts those of one replica in
    the layout with most replicas.
    """
    shares = [layout.batch_share for layout in plan.layouts.values() if layout.batch_share is not None]
    if shares:
        return max(1, sum(shares[0]))
    return plan.pipeline.micro_batch * max(replicas(layout) for layout in plan.layouts.values())


def micro_batches_of(plan: LongPlan, sequences: int) -> int:
    """Return the micro-batches of a step of so many computed sequences; coded gradients repeat them."""
    return sequences // sequences_together(plan) * shares_per_replica(plan.synchronise)


def uneven_batches(plan: LongPlan) -> bool:
    """Return true if a layout gives its replicas shares of the batch."""
    return any(layout.batch_share is not None for layout in plan.layouts.values())


def state_weights(layout: Layout) -> tuple[int, ...] | None:
    """Return the weights of the ranks that share a layout's states; None where all have equally much."""
    share = layout.state_share
    return None if share is None or isinstance(share, str) else share


def uneven_states(plan: LongPlan) -> bool:
    """Return true if ranks of a layout have unlike shares of the states."""
    return any(state_weights(layout) is not None for layout in plan.layouts.values())
