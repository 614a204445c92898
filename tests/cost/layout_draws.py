"""Random legal plans with two or three layouts, on which closed forms and simulation are compared."""

import random
from collections.abc import Iterator

from lattice_plans import CLUSTERS, MODELS, SEQ_LEN

from meshwright.cluster.load import load_cluster
from meshwright.errors import PlanError
from meshwright.plans.forms.conversion import ZERO_STATES, expand_layout
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, Schedule, ShortLayout
from meshwright.plans.resolve import Resolved, resolve_with
from meshwright.schedules.choice import ScheduleChoice, stage_placement
from meshwright.stack.load import load_stack

STACKS = ("meshwright", "generic")
SCHEDULES = (
    *(("1f1b", 1),) * 3,
    ("gpipe", 1),
    ("interleaved-1f1b", 2),
    ("looped-bfs", 2),
    ("zb-h1", 1),
    ("zb-v", 2),
    ("v-half", 2),
)
"""Schedules and stages to a rank, as often as drawn."""
RECOMPUTES = ("none", "none", "selective", "full")
GATHERS = ("per-layer", "per-micro-batch", "per-step")
CONTEXTS = (None, None, "ulysses", "all-gather")


def drawn_plans(seed: str) -> Iterator[Resolved]:
    """Yield legal plans in an order that only the seed decides."""
    rng = random.Random(seed)
    while True:
        model, cluster, stack = rng.choice(tuple(MODELS)), rng.choice(tuple(CLUSTERS)), rng.choice(STACKS)
        plan = LongPlan.model_validate(_data(model, cluster, stack, rng))
        try:
            found = resolve_with(
                plan, MODELS[model], load_cluster(cluster), load_stack(stack), stack_binds=True
            )
        except PlanError:
            continue
        if len(set(found.long.layouts)) > 1:
            yield found


def _data(model: str, cluster: str, stack: str, rng: random.Random) -> dict:
    """Return the long form of a plan that may be illegal."""
    architecture, devices = MODELS[model].architecture, load_cluster(cluster).devices
    pp = rng.choice([pp for pp in (1, 2, 4) if devices % pp == 0])
    layouts = {
        name: _layout(devices // pp, architecture.moe is not None, rng)
        for name in "abc"[: rng.choice((2, 2, 3))]
    }
    schedule, chunks = rng.choice(SCHEDULES) if pp > 1 else rng.choice((("1f1b", 1), ("gpipe", 1)))
    return {
        "plan": 1,
        "model": model,
        "cluster": cluster,
        "stack": stack,
        "workload": {"seq_len": SEQ_LEN, "global_batch": 2 * CLUSTERS[cluster]},
        "layouts": layouts,
        "layers": _layers(architecture.layers, tuple(layouts), rng),
        "pipeline": {
            "placement": stage_placement(ScheduleChoice(schedule), pp, chunks),
            "micro_batch": rng.choice((1, 1, 2)),
            "schedule": Schedule.of(ScheduleChoice(schedule)).model_dump(),
        },
    }


def _layout(ranks: int, experts: bool, rng: random.Random) -> dict:
    """Return a layout that fills a pipeline rank."""
    rest, degrees = ranks, dict[str, int]()
    for axis, largest in rng.sample([("tp", 8), ("cp", 4), ("dp_shard", 64)], 3):
        degrees[axis] = rng.choice([d for d in (1, 2, 3, 4, 6, 8, 16) if d <= largest and rest % d == 0])
        rest //= degrees[axis]
    ep = rng.choice([e for e in (1, 2, 4, 8) if ranks % e == 0]) if experts else 1
    sharding = rng.choice(tuple(ZERO_STATES)) if degrees["dp_shard"] * degrees["cp"] > 1 else "none"
    short = ShortLayout(
        pp=1,
        rank_order=DEFAULT_RANK_ORDER,
        dp_replicate=rest,
        ep=ep,
        sequence_parallel=degrees["tp"] > 1 and rng.choice((True, True, False)),
        context=rng.choice(CONTEXTS) if degrees["cp"] > 1 else None,
        **degrees,
    )
    gather = rng.choice(GATHERS) if sharding == "zero3" else None
    long = expand_layout(short, sharding, has_experts=experts).model_dump()
    return long | {"states": ZERO_STATES[sharding].model_dump(), "gather": gather}


def _layers(layers: int, names: tuple[str, ...], rng: random.Random) -> dict:
    """Return rules for two to five ranges of layers."""
    cuts = sorted(rng.sample(range(1, layers), rng.choice((1, 2, 3, 4))))
    found = {"embed": {"layout": rng.choice(names)}, "head": {"layout": rng.choice(names)}}
    for first, stop in zip([0, *cuts], [*cuts, layers], strict=True):
        found[f"{first}..{stop - 1}"] = {"layout": rng.choice(names), "recompute": rng.choice(RECOMPUTES)}
    return found
