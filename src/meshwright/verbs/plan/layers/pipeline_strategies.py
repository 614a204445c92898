"""Group candidate strategies of layers by pipeline, with the cost of each for every block.

Layers of one plan share the pipeline: its ranks and the sequences that move through it together. So strategies are
sorted by both. Those of a pipeline that are worth a search are found at many prices of a byte in seconds: at each price
the strategy that costs a kind of layer the least is kept.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.block_costs import BlockCosts, block_costs
from meshwright.cost.memory.memory_breakdown import usable_device_bytes, workspace_bytes
from meshwright.cost.memory.micro_batches_in_flight import in_flight, sufficient
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.shared_pipeline import SharedPipeline
from meshwright.plans.choices.gather import GATHERS
from meshwright.plans.setting import Setting
from meshwright.verbs.plan.search_space import Scope, searched_space

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SCHEDULES = ("1f1b", "interleaved-1f1b")
"""Schedules of plans that are searched layer by layer."""
MOST_STRATEGIES = 20
PRICES = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 19)])
"""Prices of a byte, times what the quickest strategy saves over the leanest, by second and byte."""
LAYOUT_COLUMNS = (
    *("tp", "cp", "dp_replicate", "dp_shard", "ep", "etp", "micro_batch"),
    *("sharding", "gather", "sequence_parallel", "context", "order"),
)
"""Columns of plans that make the layout of a layer."""


@dataclass(frozen=True, eq=False)
class PipelineStrategies(SharedPipeline):
    """Strategies that share a pipeline, a row each.

    ``bound_s``: no plan of them has a shorter step, by the costs of single blocks; ``estimate_s``: no plan whose stages
    have equally many layers.
    """

    plans: PlanArrays
    costs: BlockCosts
    micro_batches: int
    bound_s: float = 0.0
    estimate_s: float = 0.0

    @property
    def layouts(self) -> Ints:
        """The number of each row's layout; rows of one layout differ in recomputation."""
        return distinct([self.plans.columns[name].astype(np.int64) for name in LAYOUT_COLUMNS]).inverse

    @property
    def meshes(self) -> Ints:
        """The number of each row's mesh: between rows of one mesh no activation moves."""
        columns = [name for name in LAYOUT_COLUMNS if name not in ("sharding", "gather")]
        return distinct([self.plans.columns[name].astype(np.int64) for name in columns]).inverse

    def take(self, rows: Ints | NDArray[np.bool_]) -> "PipelineStrategies":
        """Return some of the strategies."""
        return replace(self, plans=self.plans.take(rows), costs=self.costs.take(rows))

    @cached_property
    def in_flight(self) -> Ints:
        """Micro-batches that wait for their backward passes on each stage when its rank has the most of them: (K,)."""
        stages = self.ranks * self.chunks
        count = int(sufficient(self.schedule, self.ranks, np.array([self.micro_batches]))[0])
        held = in_flight(self.schedule, self.ranks, count, tuple(range(stages)))
        fullest = (moments[moments[:, :stages].sum(1).argmax(), :stages] for moments in held)
        return np.sum(list(fullest), axis=0)  # a rank has none of the others' stages


def pipeline_strategies(scope: Scope, setting: Setting) -> list[PipelineStrategies]:
    """Return the strategies of every pipeline of a question, the most promising ones first."""
    plans = searched_space(replace(scope, whole=True, wider=False), setting).plans
    known = np.array([one.usual and one.name in SCHEDULES for one in plans.schedules], dtype=np.bool_)
    plans = plans.take(known[plans.schedule] & _unmixed(plans) & (plans.gather != GATHERS.index("per-unit")))
    together = plans.dp_replicate * plans.dp_shard * plans.micro_batch
    counts = plans.micro_batches(setting.workload.computed_sequences)
    costs = block_costs(plans, setting)
    found = []
    for rows in distinct([plans.pp, plans.virtual_stages, plans.schedule, together]).groups():
        one = PipelineStrategies(plans.take(rows), costs.take(rows), int(counts[rows[0]]))
        found.append(with_bounds(one, setting))
    return sorted((one for one in found if one.bound_s < inf), key=lambda one: one.estimate_s)


def _unmixed(plans: PlanArrays) -> NDArray[np.bool_]:
    """Return the mask of plans without both kinds of data parallelism.

    Sharding over the ranks of both takes less memory at equal traffic (Galvatron, arXiv 2211.13878, section 3).
    """
    return np.asarray((plans.dp_replicate == 1) | (plans.dp_shard == 1))


def chain_kinds(setting: Setting) -> tuple[int, ...]:
    """Return the block index of the embedding, of every layer, and of the head."""
    chain = setting.model.chain
    return chain[0][0], *setting.model.layer_blocks, chain[-1][0]


def with_bounds(pipeline: PipelineStrategies, setting: Setting) -> PipelineStrategies:
    """Return the pipeline with its lower bound, and an estimate for stages of equally many layers.

    Every rank has M micro-batches, the mean rank 1/P of the seconds of all; in 1F1B a micro-batch goes through all
    stages besides. The estimate has the usual fill of a schedule with V stages per rank, (P − 1)/(V·M), and messages.
    """
    costs, kinds = pipeline.costs, chain_kinds(setting)
    room = usable_device_bytes(setting.cluster) - float(workspace_bytes(setting.cluster))
    room -= float(costs.peak_bytes[:, kinds[1:-1]].min())
    stages = np.array_split(np.arange(len(kinds)), pipeline.ranks * pipeline.chunks)
    held = np.concatenate([np.full(len(own), pipeline.in_flight[stage]) for stage, own in enumerate(stages)])
    least = np.full_like(held, pipeline.in_flight.min())
    passes, ranks = pipeline.micro_batches * costs.passes_s, pipeline.ranks
    fill = (ranks - 1) / pipeline.micro_batches
    whole, bound = (
        _priced_seconds(pipeline, seconds, list(zip(kinds, of.tolist(), strict=True)), room) / ranks
        for seconds, of in ((passes + costs.optimizer_s, held), (passes, least))
    )
    sends = pipeline.micro_batches * pipeline.chunks * float(costs.sends_s.min())
    return replace(
        pipeline,
        estimate_s=whole * (1 + fill / pipeline.chunks) + sends,
        bound_s=bound * (1 + fill * (pipeline.chunks == 1)),
    )


def _priced_seconds(
    pipeline: PipelineStrategies, seconds: Floats, layers: Sequence[tuple[int, int]], room: float
) -> float:
    """Return a lower bound of the ``seconds`` of layers on ranks that share their memory.

    ``layers`` are (kind, micro-batches in flight).
    Lagrange's: at any price λ of a byte Σ min(seconds + λ·bytes) − λ·P·room is at most the seconds of all ranks
    together; the largest one counts. Infinite where nothing fits.
    """
    costs, ranks, counts = pipeline.costs, pipeline.ranks, Counter(layers)
    sizes = {key: costs.state_bytes[:, key[0]] + key[1] * costs.kept_bytes[:, key[0]] for key in counts}
    if sum(count * float(sizes[key].min()) for key, count in counts.items()) > ranks * room:
        return inf
    spread = max(float(max(size.max() - size.min() for size in sizes.values())), 1.0)
    prices = PRICES * float(np.ptp(seconds, axis=0).max()) / spread
    whole = -prices * ranks * room
    for (kind, held), count in counts.items():
        priced = seconds[:, kind, None] + prices * sizes[kind, held][:, None]
        whole = whole + count * priced.min(0)
    return float(whole.max())


def worthwhile(found: PipelineStrategies, setting: Setting) -> PipelineStrategies:
    """Return the strategies that cost some kind of layer the least at some price of memory."""
    costs, kinds = found.costs, sorted(set(chain_kinds(setting)))
    seconds = found.micro_batches * costs.passes_s + costs.exchanges_s + costs.optimizer_s
    chosen: dict[int, None] = {}
    for held in sorted({int(found.in_flight.min()), int(found.in_flight.max())}):
        size = costs.state_bytes + held * costs.kept_bytes
        for price, kind in ((price, kind) for price in PRICES for kind in _most_first(kinds, setting)):
            chosen |= dict.fromkeys(
                _cheapest(seconds[:, kind], size[:, kind], costs.peak_bytes[:, kind], price)
            )
    return found.take(np.array(list(chosen)[:MOST_STRATEGIES], dtype=np.int64))


def _most_first(kinds: Sequence[int], setting: Setting) -> list[int]:
    every = chain_kinds(setting)
    return sorted(kinds, key=lambda kind: -every.count(kind))


def _cheapest(seconds: Floats, size: Floats, peak: Floats, price: float) -> Iterator[int]:
    """Yield the row of the least seconds and priced bytes, of equal ones the leanest."""
    spread = max(float(size.max() - size.min()), 1.0)
    scale = float(seconds.max() - seconds.min()) / spread
    yield int(np.lexsort((peak, size, seconds + price * scale * size))[0])
