"""Small spaces of serving plans: the search's question, and every plan of the space priced one by one in arrays."""

from dataclasses import replace
from itertools import product
from math import inf, nan

import numpy as np

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.pools_state import disaggregated_pools_state, serving_state
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.model.load import load_model
from meshwright.plans.serving.number_formats import NumberFormats
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.resolve_serving import serving_problems
from meshwright.plans.serving.rules.serving_rule_input import ServingRuleInput
from meshwright.plans.serving.serving_plan import Pool, ServingPlan
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.search.serving.candidate_table import Goal
from meshwright.stack.serving.serving_stack import load_serving_stack
from meshwright.verbs.plan.serving.pools.load_limits import LoadLimits
from meshwright.verbs.plan.serving.pools.replica_designs import Family
from meshwright.verbs.plan.serving.pools.serving_search import ServingSpace, search_serving
from meshwright.workload.serving.request_lengths import RequestLengths
from meshwright.workload.serving.serving_workload import ServingWorkload

DEGREES = (1, 2, 4, 8)
NAMES = ("attention_dp", "tp", "pp", "ep", "etp")
CHUNKS = (2048, 8192)
BUSY = 0.98


def family(model, device, stack, count=8):
    cluster, graph = load_cluster(f"{device} x {count}"), load_model(model)
    served = ServedModel(
        model=graph,
        times=serving_times_for(cluster.pool),
        memory_bytes=cluster.pool.device.memory_bytes,
        engine=load_serving_stack(stack),
    )
    return Family(stack, served, NumberFormats())


def limits(input_tokens, output_tokens, **others):
    return LoadLimits(lengths=RequestLengths.fixed(input_tokens, output_tokens), **others)


def found(families, asked, devices, objective="throughput", level=None):
    levels = {} if level is None else {one.stack: level for one in families}
    space = ServingSpace(
        families=tuple(families), limits=asked, devices=devices, chunks=CHUNKS, levels=levels
    )
    return search_serving(space, Goal(objective, 2.0, asked.rate_per_s is not None))


def legal_layouts(one, devices):
    """Return every layout whose plan breaks no law, with attention_dp only where experts are shared."""
    arch = one.served.model.architecture
    for adp, tp, pp, ep in product(DEGREES, repeat=4):
        if adp * tp * pp > devices or adp * tp % ep or (arch.moe is None and adp * ep > 1):
            continue
        layout = ReplicaLayout(adp, tp, pp, 1, ep, adp * tp // ep if arch.moe else 1)
        pool = Pool("all", "serve", 1, {"prefill": layout, "decode": layout})
        workload = ServingWorkload(RequestLengths.fixed(100, 10), 1)
        plan = ServingPlan("", "", one.stack, workload, {"all": pool})
        if not any(p.severity == "error" for p in serving_problems(ServingRuleInput(plan, arch, devices))):
            yield layout


def pools(one, layouts, chunks, replicas, caps):
    columns = {name: np.array([getattr(x, name) for x in layouts], float) for name in NAMES}
    return PoolArrays(
        degrees=ReplicaDegrees(cp=1.0, **columns),
        formats=one.storage,
        chunk_tokens=np.array(chunks, float),
        max_sequences=np.array(caps, float),
        kv_fraction=one.served.engine.kv_fraction,
        replicas=np.array(replicas, float),
    )


def loads(asked, most):
    """Return the pairs of clients and rate that a plan may have."""
    if asked.rate_per_s is not None:
        return [(nan, asked.rate_per_s)]
    if asked.concurrency is not None:
        return [(float(asked.concurrency), nan)]
    return [(float(count), nan) for count in range(1, most + 1)]


def every_plan(one, asked, devices, most):
    """Return requests/s, devices and latency of every plan of one pool and of two that keeps the limits.

    A plan of two pools whose concurrency is searched keeps them however many times it is copied.
    """
    layouts = list(legal_layouts(one, devices))
    single = [
        (layout, chunk, count, cap, *load)
        for layout in layouts
        for chunk in CHUNKS
        for count in range(1, devices // layout.devices + 1)
        for load in loads(asked, most)
        for cap in caps_of(asked, layout, count)
    ]
    rows = tuple(zip(*single, strict=True))
    state = serving_state(one.served, pools(one, *rows[:4]), asked.load(np.array(rows[4]), np.array(rows[5])))
    alone = kept(state.steady, asked, state.devices, state.fits)
    if asked.steps <= 0:
        return alone, len(single)
    double = [
        (fill, chunk, fills, write, writes, cap, *load)
        for fill, write in product(layouts, repeat=2)
        for writes in range(1, devices // write.devices + 1)
        for fills in range(1, (devices - writes * write.devices) // fill.devices + 1)
        for chunk in CHUNKS
        for load in loads(asked, most)
        for cap in caps_of(asked, write, writes, decode=True, clients=load[0])
    ]
    rows = tuple(zip(*double, strict=True))
    count = len(double)
    fill = pools(one, rows[0], rows[1], rows[2], [inf] * count)
    write = pools(one, rows[3], [CHUNKS[0]] * count, rows[4], rows[5])
    state = disaggregated_pools_state(
        one.served, fill, write, asked.load(np.array(rows[6]), np.array(rows[7]))
    )
    busy = state.steady.requests_per_s * state.pools["prefill"].iteration_s / fill.replicas
    fits = state.fits & ((busy <= BUSY) | (asked.concurrency is not None))
    if asked.concurrency is None and asked.rate_per_s is None:
        times = 2.0**20
        fill, write = (replace(pool, replicas=pool.replicas * times) for pool in (fill, write))
        more = disaggregated_pools_state(one.served, fill, write, asked.load(np.array(rows[6]) * times))
        fits = fits & (more.steady.tpot_s <= asked.tpot_s)
    both = kept(state.steady, asked, state.devices, fits)
    return np.concatenate([alone, both]), len(single) + count


def caps_of(asked, layout, count, *, decode=False, clients=nan):
    """Return the values of ``max_sequences`` of the space: equally many for each rank, or none."""
    ranks = layout.attention_dp * layout.pp
    if asked.concurrency is not None:
        return [inf, *range(ranks, -(-asked.concurrency // count) + ranks, ranks)]
    if decode and asked.rate_per_s is None:
        return [*range(ranks, int(clients // count) + 1, ranks), inf]
    return [inf]


def kept(steady, asked, devices, fits):
    steps = asked.steps
    tpot = steady.tpot_s if steps > 0 else np.zeros_like(steady.ttft_s)
    held = fits & (steady.ttft_s <= asked.ttft_s) & (tpot <= asked.tpot_s)
    latency = steady.ttft_s + steps * tpot
    return np.stack([steady.requests_per_s, np.broadcast_to(devices, held.shape), latency], 1)[held]
