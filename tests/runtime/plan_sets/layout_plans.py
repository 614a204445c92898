"""Plans whose layers have different layouts, pair by pair: what each layout is, and where one changes to the other.

A layout fills a pipeline rank of two or four ranks. Every two levels of different factors meet in a plan, unless
``possible`` has them apart.
"""

import random
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product, zip_longest

from covering_plans import DEFAULT_ORDER, OPTIONS, OWN_STACK, SEQ_LEN, Proven

from greedy_cover import greedy_cover
from meshwright.cluster.load import load_cluster
from meshwright.plans.forms.conversion import ZERO_STATES, expand_layout
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortLayout
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.resolve import resolve_with
from meshwright.program.lowering.lower_plan import lower
from meshwright.runtime.verify.verify_case import VerifyCase
from meshwright.schedules.choice import stage_placement
from meshwright.stack.load import load_stack

SEED, TRIES = "layouts", 1200
LAYERS = 4
Layout = tuple[tuple[str, object], ...]
"""Keys of the short form's layout; ``sharding`` and ``gather`` besides."""


@dataclass(frozen=True)
class Ranged:
    """A plan of several layouts: of each block (embedding, layers, head) its layout and what it recomputes."""

    model: str
    layouts: tuple[tuple[str, Layout], ...]
    blocks: tuple[str, ...]
    recomputes: tuple[str, ...] = ("none",) * LAYERS
    pp: int = 1
    schedule: str = "1f1b"
    micro_batches: int = 2
    micro_batch: int = 1
    stages: tuple[int, ...] | None = None
    seq_len: int = SEQ_LEN
    batch_shares: tuple[tuple[int, ...] | None, ...] = ()
    state_shares: tuple[tuple[int, ...] | None, ...] = ()

    def with_shares(
        self, batch: tuple[tuple[int, ...], ...], states: tuple[tuple[int, ...], ...]
    ) -> "Ranged":
        """Return the plan with shares of the batch and of states for its layouts."""
        return replace(self, batch_shares=batch, state_shares=states)

    @property
    def ranks(self) -> int:
        return self.pp * self.of_stage

    @property
    def of_stage(self) -> int:
        degrees = dict(self.layouts[0][1])
        found = 1
        for axis in ("dp_replicate", "dp_shard", "cp", "tp"):
            found *= degrees.get(axis, 1)
        return found

    @property
    def replicas(self) -> int:
        every = [dict(layout) for _, layout in self.layouts]
        return max(of.get("dp_replicate", 1) * of.get("dp_shard", 1) for of in every)

    @property
    def together(self) -> int:
        """Sequences that move together."""
        shares = [share for share in self.batch_shares if share]
        return sum(shares[0]) if shares else self.replicas * self.micro_batch

    def data(self, experts: bool) -> dict:
        """Return the long form."""
        kind = Proven(self.model, schedule=self.schedule)
        chunks = kind.chunks if self.pp > 1 else 1
        choice = {"name": self.schedule}
        placement = stage_placement(_schedule(self.schedule), self.pp, chunks)
        layers = {"embed": {"layout": self.blocks[0]}, "head": {"layout": self.blocks[-1]}}
        for number, (layout, again) in enumerate(zip(self.blocks[1:-1], self.recomputes, strict=True)):
            layers[str(number)] = {"layout": layout, "recompute": again}
        return {
            "plan": 1,
            "model": self.model,
            "cluster": f"h100-sxm-80gb x {self.ranks}",
            "stack": OWN_STACK,
            "workload": {
                "seq_len": self.seq_len,
                "global_batch": self.together * self.micro_batches,
            },
            "layouts": {
                name: _layout(dict(keys), experts) | {"batch_share": share, "state_share": states}
                for (name, keys), share, states in zip_longest(
                    self.layouts,
                    self.batch_shares[: len(self.layouts)],
                    self.state_shares[: len(self.layouts)],
                )
            },
            "layers": layers,
            "pipeline": {
                "stages": written_stages(self.stages) if self.stages else "balanced",
                "placement": placement,
                "micro_batch": self.micro_batch,
                "schedule": choice,
            },
        }

    def lowered(self):
        """(program, model). Raises PlanError where it is not legal."""
        widest = max(dict(keys).get("tp", 1) * dict(keys).get("cp", 1) for _, keys in self.layouts)
        model = Proven(self.model, layers=LAYERS, tp=widest).graph()
        plan = LongPlan.model_validate(self.data(model.architecture.moe is not None))
        cluster, stack = load_cluster(plan.cluster), load_stack(OWN_STACK)
        legal = resolve_with(plan, model, cluster, stack, stack_binds=True)
        return lower(legal.long, model, cluster, legal.setting.workload, stack), model

    def trial(self):
        """What is tried of it."""
        return VerifyCase(*self.lowered(), OPTIONS)


def _schedule(name: str):
    from meshwright.schedules.choice import ScheduleChoice

    return ScheduleChoice(name)


def _layout(keys: dict, experts: bool) -> dict:
    sharding, gather = keys.pop("sharding", "none"), keys.pop("gather", None)
    short = ShortLayout(pp=1, rank_order=DEFAULT_ORDER, **keys)
    long = expand_layout(short, sharding, has_experts=experts).model_dump()
    return long | {"states": ZERO_STATES[sharding].model_dump(), "gather": gather}


def layout(**keys) -> Layout:
    """Return keys of a layout, hashable."""
    return tuple(keys.items())


TP = {"tp": 2, "sequence_parallel": False}
SP = {"tp": 2, "sequence_parallel": True}
SHARDED: dict[str, dict[str, object]] = {
    "replicas": {},
    "zero1": {"sharding": "zero1"},
    "zero2": {"sharding": "zero2"},
    "zero3 by layer": {"sharding": "zero3", "gather": "per-layer"},
    "zero3 by micro-batch": {"sharding": "zero3", "gather": "per-micro-batch"},
    "zero3 by step": {"sharding": "zero3", "gather": "per-step"},
}
"""How the data-parallel ranks of a layout share states."""
MESHES: dict[str, dict[str, object]] = {
    "dp": {},
    "tp": TP,
    "tp of sequences": SP,
    "ring": {"cp": 2},
    "contiguous ring": {"cp": 2, "context": {"pieces": "contiguous"}},
    "ulysses": {"cp": 2, "context": "ulysses"},
    "all-gather": {"cp": 2, "context": "all-gather"},
    "tp and ring": {"tp": 2, "cp": 2, "sequence_parallel": True},
    "tp 4": {"tp": 4, "sequence_parallel": True},
}
"""What a layout does with its four ranks besides data parallelism."""
WHERE: dict[str, dict[str, object]] = {
    "inside a stage": {"blocks": "aaabbb"},
    "there and back": {"blocks": "abbaba"},
    "from stage to stage": {"blocks": "aaabbb", "pp": 2, "stages": (2, 2)},
    "inside stages": {"blocks": "baabba", "pp": 2, "stages": (1, 3)},
    "three layouts": {"blocks": "aabbcc"},
    "a layout by stage of a V": {"blocks": "aabbab", "pp": 2, "schedule": "v-half"},
}
SCHEDULES = {
    "1f1b": {},
    "gpipe": {"schedule": "gpipe"},
    "interleaved": {"schedule": "interleaved-1f1b"},
    "zb-h1": {"schedule": "zb-h1"},
}
MODELS = {"llama": "llama", "gpt2": "gpt2", "gemma2": "gemma2", "experts": "mixtral"}
RECOMPUTED = {
    "none": ("none",) * 4,
    "full in one layout": ("none", "none", "full", "full"),
    "unlike": ("full", "selective", "none", "full"),
}
SHARES: dict[str, tuple[dict[int, tuple[int, ...]] | None, ...]] = {
    "even shares": (None, None),
    "uneven shares of the first": ({1: (8,), 2: (3, 5), 4: (1, 3, 2, 2)}, None),
    "unlike shares": ({1: (8,), 2: (3, 5), 4: (1, 3, 2, 2)}, {1: (8,), 2: (6, 2), 4: (4, 1, 1, 2)}),
}
"""The sequences of each replica of both layouts, by their number; None: equally many."""
WEIGHTS: dict[int, tuple[int, ...]] = {2: (1, 3), 4: (3, 0, 1, 4)}
"""Weights of the ranks that share states, by their number."""
OF_HALVES: dict[int, tuple[int, ...]] = {2: (0, 1), 4: (1, 0, 1, 0)}
"""Weights for a model with tensors that only 2 divides: the ledger rounds the shard of each block up."""
STATE_SHARES = {
    "even shards": (),
    "uneven shards of the first": ("first",),
    "uneven shards": ("first", "second"),
}
"""The layouts whose ranks have unlike shares of the states."""
FACTORS = {
    "first": MESHES,
    "second": MESHES,
    "first states": SHARDED,
    "second states": SHARDED,
    "where": WHERE,
    "schedule": SCHEDULES,
    "model": MODELS,
    "recompute": RECOMPUTED,
    "micro-batch": {"1": 1, "2": 2},
    "batch": SHARES,
    "shards": STATE_SHARES,
}
TIED = ("gpt2", "gemma2")
"""Models whose head has the table of the embedding: on one rank both have one layout."""
THIRD = layout(dp_shard=2, tp=2, sequence_parallel=True, sharding="zero1")


def possible(levels: dict[str, str]) -> bool:
    """Return whether a plan can have these levels; the factors may be some."""
    first, second = levels.get("first"), levels.get("second")
    if first == second == "tp 4":
        return False  # neither has states to share, so the two are one
    if first == second is not None and levels.get("first states") == levels.get("second states") is not None:
        return False
    where, schedule = levels.get("where", ""), levels.get("schedule", "1f1b")
    if "V" in where and schedule != "1f1b":
        return False
    uneven = levels.get("batch", "even shares") != "even shares"
    if uneven and (levels.get("micro-batch") == "2" or levels.get("model") == "experts"):
        return False
    stages = WHERE[where].get("pp", 1) if where else 2
    for mesh in STATE_SHARES[levels.get("shards", "even shards")]:
        table_apart = levels.get("model") in TIED and where and (stages > 1)
        if levels.get(f"{mesh} states") == "replicas" or levels.get("model") == "experts" or table_apart:
            return False
        if _shards(levels.get(mesh, "dp")) == 1:
            return False
    if stages == 1 and schedule in ("interleaved", "zb-h1"):
        return False
    for mesh, states in (("first", "first states"), ("second", "second states")):
        shards = _shards(levels.get(mesh, "dp"))
        if levels.get(states, "replicas") != "replicas" and shards == 1:
            return False
        if levels.get("model") == "experts" and levels.get(mesh) == "tp":
            return False
    if levels.get("model") == "experts" and first is not None and second is not None:
        return _ways(first) == _ways(second) or not first
    return True


def _ways(mesh: str) -> int:
    """Return the ranks that share a sequence in a mesh."""
    keys = MESHES[mesh]
    return keys.get("tp", 1) * keys.get("cp", 1)


def _shards(mesh: str) -> int:
    """Return the ranks that may share states in a mesh."""
    return 4 // _ways(mesh) * MESHES[mesh].get("cp", 1)


def plan_of(levels: dict[str, str]) -> Ranged:
    """Return the plan of a level for each factor."""
    where = WHERE[levels["where"]]
    layouts = []
    for name, mesh, states in (("a", "first", "first states"), ("b", "second", "second states")):
        keys, sharded = MESHES[levels[mesh]], SHARDED[levels[states]]
        axis = "dp_shard" if sharded else "dp_replicate"
        found = {axis: 4 // _ways(levels[mesh]), **keys, **sharded}
        if levels["model"] == "experts" and found.get("tp", 1) < 4:
            found["ep"] = 2
        layouts.append((name, layout(**found)))
    if "three" in levels["where"]:
        layouts.append(("c", THIRD))
    blocks = where["blocks"]
    if levels["model"] in TIED and (where.get("pp", 1) == 1 or "V" in levels["where"]):
        blocks = blocks[:-1] + blocks[0]
    recomputes = RECOMPUTED[levels["recompute"]]
    shares = tuple(
        of and of[4 // _ways(levels[mesh])]
        for of, mesh in zip(SHARES[levels["batch"]], ("first", "second"), strict=True)
    )
    uneven, weighed = STATE_SHARES[levels["shards"]], OF_HALVES if levels["model"] == "gpt2" else WEIGHTS
    weights = tuple(
        weighed[_shards(levels[mesh])] if mesh in uneven else None for mesh in ("first", "second")
    )
    keys = {key: value for key, value in where.items() if key != "blocks"}
    if levels["schedule"] == "interleaved":
        keys["stages"] = (1,) * LAYERS
    return Ranged(
        MODELS[levels["model"]],
        tuple(layouts),
        tuple(blocks),
        recomputes,
        micro_batches=4 if where.get("pp", 1) > 1 else 2,
        micro_batch=FACTORS["micro-batch"][levels["micro-batch"]],
        batch_shares=shares,
        state_shares=weights,
        **{**SCHEDULES[levels["schedule"]], **keys},
    )


def pairs_of(levels: dict[str, str]) -> set:
    """Return the pairs of levels that meet in a plan; its factors have the order of ``FACTORS``."""
    return set(combinations(levels.items(), 2))


def every_pair() -> set:
    """Return every two levels of different factors that a plan can have."""
    found = set()
    for one, other in combinations(FACTORS, 2):
        for a, b in product(FACTORS[one], FACTORS[other]):
            if possible({one: a, other: b}):
                found.add(((one, a), (other, b)))
    return found


@cache
def chosen_levels() -> tuple[dict[str, str], ...]:
    """Return levels in which every possible pair meets."""
    draw = random.Random(SEED)
    drawn = []
    while len(drawn) < TRIES * len(FACTORS):
        levels = {factor: draw.choice(tuple(of)) for factor, of in FACTORS.items()}
        if possible(levels):
            drawn.append(levels)
    return tuple(drawn[place] for place in greedy_cover([(pairs_of(levels),) for levels in drawn]))


def of_one_layout(share: tuple[int, ...], keys: dict, **others: object) -> Ranged:
    """Return a plan of one layout with shares of the batch."""
    return Ranged("llama", (("a", layout(**keys)),), tuple("aaaaaa"), batch_shares=(share,), **others)


SHARED: dict[str, Ranged] = {
    "one layout, zero3 by layer, shares 1 3 2 2": of_one_layout(
        (1, 3, 2, 2), {"dp_shard": 4, **SHARDED["zero3 by layer"]}, recomputes=RECOMPUTED["unlike"]
    ),
    "one layout, zero1 in two replicas, shares 3 1 1 1": of_one_layout(
        (3, 1, 1, 1), {"dp_replicate": 2, "dp_shard": 2, "sharding": "zero1"}
    ),
    "one layout, tp of sequences, interleaved, shares 1 3": of_one_layout(
        (1, 3),
        {"dp_replicate": 2, **SP},
        pp=2,
        schedule="interleaved-1f1b",
        stages=(1,) * LAYERS,
        micro_batches=4,
    ),
    "one layout, zero2, ring, shares 3 1, shards 1 4 2 1": of_one_layout(
        (3, 1), {"dp_shard": 2, "cp": 2, "sharding": "zero2"}, state_shares=((1, 4, 2, 1),)
    ),
    "one layout, ring, dualpipe, shares 3 1": of_one_layout(
        (3, 1), {"dp_replicate": 2, "cp": 2}, pp=2, schedule="dualpipe", micro_batches=4
    ),
}
"""Plans of one layout with uneven shares of the batch."""


def layout_plans() -> tuple[tuple[str, Ranged], ...]:
    """Return the plans of these levels, with the levels in words, and those of one layout."""
    drawn = tuple((", ".join(levels.values()), plan_of(levels)) for levels in chosen_levels())
    return drawn + tuple(SHARED.items())
