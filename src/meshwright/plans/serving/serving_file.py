"""A serving plan as a file holds it. ``plans/serving/expand_pools.py`` makes the plan in full of it.

A key that is absent has the default of its type; absent degrees and replicas are 1, and the mesh of experts follows
from the other degrees where the model has experts.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from meshwright.plans.files.strict_types import Strict, one_of
from meshwright.plans.forms.short import Degree, NamedStack, Version
from meshwright.plans.serving.number_formats import KV_FORMATS, WEIGHT_FORMATS
from meshwright.plans.serving.serving_plan import (
    DEFAULT_BLOCK_TOKENS,
    DEFAULT_CHUNK_TOKENS,
    DEFAULT_KV_FRACTION,
    AllReduce,
    Does,
    Overlap,
    Policy,
    Preempt,
)
from meshwright.workload.serving.request_lengths import MAX_LENGTHS, MAX_TOKENS
from meshwright.workload.serving.serving_workload import MAX_CONCURRENCY, MAX_OBJECTIVE_MS, MAX_RATE_PER_S

MAX_POOLS = 64
MAX_EDGES = MAX_POOLS**2
MAX_NAME = 64
MAX_SEQUENCES = 2**24
DEFAULT_STACK = "generic-serving"

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
Milliseconds = Annotated[float, Field(gt=0, le=MAX_OBJECTIVE_MS)]
PoolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]+$", max_length=MAX_NAME)]


class ObjectivesSpec(Strict):
    """Limits on mean latencies in ms."""

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None


class LengthsSpec(Strict):
    """Lengths of a share of the requests."""

    input_tokens: Tokens
    output_tokens: Tokens
    share: Annotated[float, Field(gt=0, le=1)]


class ServingWorkloadSpec(Strict):
    """The workload of serving. Lengths are ``input_tokens`` and ``output_tokens``, or a histogram ``lengths``."""

    task: Literal["serve"]
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    lengths: Annotated[tuple[LengthsSpec, ...], Field(min_length=1, max_length=MAX_LENGTHS)] | None = None
    prefix_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 0
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = None
    rate_per_s: Annotated[float, Field(gt=0, le=MAX_RATE_PER_S)] | None = None
    objectives: ObjectivesSpec | None = None


class ReplicaLayoutSpec(Strict):
    """Degrees of a replica. ``ep`` and ``etp`` None: they follow from the model and from the other degrees."""

    attention_dp: Degree = 1
    tp: Degree = 1
    pp: Degree = 1
    cp: Degree = 1
    ep: Degree | None = None
    etp: Degree | None = None


class PhaseLayoutsSpec(Strict):
    """A layout for each phase of one pool, between which weights and caches change (Seesaw, arXiv 2503.06433)."""

    prefill: ReplicaLayoutSpec
    decode: ReplicaLayoutSpec


class BatchingSpec(Strict):
    """Limits of iterations and of the cache (``plans/serving/serving_plan.py``)."""

    policy: Policy = "continuous"
    chunk_tokens: Tokens = DEFAULT_CHUNK_TOKENS
    max_sequences: Annotated[int, Field(ge=1, le=MAX_SEQUENCES)] | None = None
    block_tokens: Tokens = DEFAULT_BLOCK_TOKENS
    kv_fraction: Annotated[float, Field(gt=0, le=1)] = DEFAULT_KV_FRACTION
    prefix_cache: bool = True
    preempt: Preempt = "recompute"


class QuantiseSpec(Strict):
    """Number formats of weights and caches; None: the released weights' own, and the model's type."""

    weights: Annotated[str, one_of(lambda: WEIGHT_FORMATS)] | None = None
    kv: Annotated[str, one_of(lambda: KV_FORMATS)] | None = None


class PoolSpec(Strict):
    """A pool of equal replicas, with one layout or one for each phase."""

    does: Does
    replicas: Degree = 1
    layout: ReplicaLayoutSpec | None = None
    layouts: PhaseLayoutsSpec | None = None
    batching: BatchingSpec = BatchingSpec()
    quantise: QuantiseSpec = QuantiseSpec()
    overlap: Overlap = "none"
    allreduce: AllReduce = "auto"


class EdgeSpec(Strict):
    """A hand-over of caches between pools. ``from`` is a Python keyword, hence the alias."""

    source: Annotated[str, Field(alias="from")]
    to: str
    carry: Literal["kv"] = "kv"


class ServingFile(Strict):
    """A serving plan as people write it."""

    examples: ClassVar[Mapping[str, str]] = {
        "workload": "workload: {task: serve, input_tokens: 4000, output_tokens: 1000, concurrency: 64}",
        "stack": "stack: vllm",
        "pools": "pools: {all: {does: serve, layout: {tp: 8}}}",
        "does": "does: serve",
        "layout": "layout: {tp: 8}",
        "layouts": "layouts: {prefill: {tp: 8}, decode: {tp: 8}}",
        "edges": "edges: [{from: fill, to: write, carry: kv}]",
        "from": "from: fill",
        "to": "to: write",
        "carry": "carry: kv",
    }
    plan: Version
    model: str
    cluster: str
    workload: ServingWorkloadSpec
    stack: NamedStack = DEFAULT_STACK
    pools: Annotated[dict[PoolName, PoolSpec], Field(min_length=1, max_length=MAX_POOLS)]
    edges: Annotated[tuple[EdgeSpec, ...], Field(max_length=MAX_EDGES)] = ()
