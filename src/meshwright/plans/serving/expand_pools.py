"""Expand a serving plan's file: the workload, the layout of each phase, and the mesh of experts.

The mesh covers the ranks of a stage: ep·etp = cp·tp·attention_dp. An absent ``ep`` is 1, an absent ``etp`` fills up.
"""

from math import fsum

from meshwright.plans.serving.number_formats import NumberFormats
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.serving_file import (
    PoolSpec,
    ReplicaLayoutSpec,
    ServingFile,
    ServingWorkloadSpec,
)
from meshwright.plans.serving.serving_plan import PHASES, Batching, HandOver, Phase, Pool, ServingPlan
from meshwright.workload.serving.request_lengths import SHARE_TOLERANCE, RequestLengths
from meshwright.workload.serving.serving_workload import Objectives, ServingWorkload


def expand_pools(file: ServingFile, *, experts: bool) -> ServingPlan:
    """Return the plan in full, for a model with ``experts`` or without; its laws are not checked."""
    return ServingPlan(
        file.model,
        file.cluster,
        file.stack,
        serving_workload(file.workload),
        {name: _pool(name, spec, experts=experts) for name, spec in file.pools.items()},
        tuple(HandOver(edge.source, edge.to, edge.carry) for edge in file.edges),
    )


def serving_workload(spec: ServingWorkloadSpec) -> ServingWorkload:
    """Return the workload of a file whose keys do not contradict each other."""
    limits = spec.objectives
    objectives = Objectives() if limits is None else Objectives(limits.ttft_ms, limits.tpot_ms)
    return ServingWorkload(_lengths(spec), spec.concurrency, spec.rate_per_s, objectives)


def _lengths(spec: ServingWorkloadSpec) -> RequestLengths:
    """Return the histogram; shares that sum to 1 as far as decimals can say so are made to do so exactly."""
    if spec.lengths is None:
        assert spec.input_tokens is not None
        assert spec.output_tokens is not None
        return RequestLengths.fixed(spec.input_tokens, spec.output_tokens, spec.prefix_tokens)
    whole = fsum(entry.share for entry in spec.lengths)
    whole = whole if abs(whole - 1) <= SHARE_TOLERANCE else 1.0
    pairs = tuple((entry.input_tokens, entry.output_tokens, entry.share / whole) for entry in spec.lengths)
    return RequestLengths(pairs, spec.prefix_tokens)


def _pool(name: str, spec: PoolSpec, *, experts: bool) -> Pool:
    written: dict[Phase, ReplicaLayoutSpec]
    if spec.layouts is None:
        written = dict.fromkeys(PHASES[spec.does], spec.layout or ReplicaLayoutSpec())
    else:
        written = {"prefill": spec.layouts.prefill, "decode": spec.layouts.decode}
    return Pool(
        name,
        spec.does,
        spec.replicas,
        {phase: replica_layout(layout, experts=experts) for phase, layout in written.items()},
        Batching(**spec.batching.model_dump()),
        NumberFormats(spec.quantise.weights, spec.quantise.kv),
        spec.overlap,
        spec.allreduce,
    )


def replica_layout(spec: ReplicaLayoutSpec, *, experts: bool) -> ReplicaLayout:
    """Return the degrees with the mesh of experts filled in; where it can not fill a stage, etp is rounded down."""
    given = ReplicaLayout(spec.attention_dp, spec.tp, spec.pp, spec.cp)
    ep = spec.ep or 1
    filler = max(1, given.stage_ranks // ep) if experts else 1
    etp = spec.etp or filler
    return ReplicaLayout(spec.attention_dp, spec.tp, spec.pp, spec.cp, ep, etp)
