"""What is emulated: composed plans, every schedule on unequal stages and slow links, and plans with a fault."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from meshwright.cost.operators.price_plans import program_prices
from meshwright.plans.forms.conversion import ZERO_STATES, expand, expand_layout
from meshwright.plans.forms.long import LongPlan, Stages
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, Schedule, ShardingName, ShortLayout, ShortPlan
from meshwright.plans.resolve import Resolved, load_nouns, resolve, resolve_with
from meshwright.runtime.emulation.local_program import EXPERT_AXES
from meshwright.schedules.action import Action
from meshwright.schedules.choice import ScheduleChoice, stage_placement
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs, Pipeline
from meshwright.schedules.solve import Effort, solve
from meshwright.schedules.vocabulary import FORMS
from meshwright.simulate.plan_estimate import lower_and_simulate, stage_times

SLOW_LINKS = Path(__file__).parent / "slow_links.yaml"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan, on how many processes it is emulated, and for a fault what is done to the interpreter.

    ``solved`` are seconds in which the solver looks for lists within the schedule's memory, which replace its own.
    ``message`` replaces the seconds of a message by so many shortest passes, during which the sender goes on.
    ``ranges``: of a plan with several layouts, the layout of each range of layers and what runs again. ``synchronise``
    are the entries of that key.
    """

    layout: dict[str, int]
    schedule: str = "1f1b"
    chunks: int = 1
    vocabulary: str | None = None
    sharding: str = "none"
    gather: str | None = None
    recompute: str = "full"
    model: str = "llama-3.1-8b"
    stack: str = "meshwright"
    batch: int = 64
    stages: Stages = "balanced"
    processes: int = 4
    cluster: Path | None = None
    solved: float | None = None
    message: float | None = None
    fault: str = ""
    ranges: Mapping[str, str] | None = None
    synchronise: tuple[Mapping[str, object], ...] = ()

    @property
    def name(self) -> str:
        """The row's key and first words."""
        degrees = " ".join(f"{axis} {degree}" for axis, degree in self.layout.items())
        if self.ranges is not None:
            ranges = "; ".join(f"{layers} {words}" for layers, words in self.ranges.items())
            return f"{degrees}, {self.schedule}{self._chunks}, {ranges}, {self.model}, {self.stack}"
        parts = [
            degrees,
            self.schedule + (f"+{self.vocabulary}" if self.vocabulary else "") + self._chunks,
            self.sharding,
            self.gather or "",
            f"recompute {self.recompute}",
        ]
        parts += ["" if self.stages == "balanced" else "unequal stages", self.model, self.stack]
        parts += [f"on {self.cluster.stem.replace('_', ' ')}"] if self.cluster else []
        parts += [f"lists solved for {self.solved:g} s"] if self.solved else []
        parts += [f"message {self.message} of a pass"] if self.message else []
        parts += map(entry_name, self.synchronise)
        return ", ".join(part for part in parts if part and part != "none")

    @property
    def _chunks(self) -> str:
        return f" ×{self.chunks}" if self.chunks > 1 else ""


def entry_name(entry: Mapping[str, object]) -> str:
    """Return an entry of ``synchronise`` in words: ``parameter every 20, fragments 5, delay 3``."""
    words = [f"{entry['state']} every {entry['every']}"]
    words += [
        f"{key} {_short(entry[key])}" for key in ("fragments", "delay", "compress", "outer") if key in entry
    ]
    return " ".join(words)


def _short(value: object) -> str:
    """Return a value of an entry; of a mapping its values, or the name of a choice with numbers."""
    if not isinstance(value, Mapping):
        return str(value)
    return " ".join(str(name) if isinstance(of, Mapping) else str(of) for name, of in value.items())


UNEQUAL: Stages = (("embed", "0..5"), ("6..15",), ("16..25",), ("26..31", "head"))
UNEQUAL_16: Stages = (("embed", "0..4"), ("5..7",), ("8..12",), ("13..15", "head"))
UNEQUAL_16_TWICE: Stages = (
    ("embed", "0..1"),
    ("2",),
    ("3..5",),
    ("6..7",),
    ("8..10",),
    ("11",),
    ("12..14",),
    ("15", "head"),
)
APART = "generic"
"""A stack that runs nothing beside compute."""
CASES = (
    Case(layout={"pp": 4}),
    Case(layout={"pp": 4, "dp_shard": 16, "tp": 8}, sharding="zero1", batch=256, model="llama-3.1-70b"),
    Case(layout={"pp": 4, "dp_shard": 4, "tp": 2}, sharding="zero1", processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="gpipe", sharding="zero2", processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, sharding="zero3", gather="per-step"),
    Case(layout={"pp": 4, "dp_shard": 4}, sharding="zero3", gather="per-layer", processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, sharding="zero3", gather="per-micro-batch", processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, stages=UNEQUAL, sharding="zero1"),
    Case(layout={"pp": 4, "tp": 4}, stages=UNEQUAL, recompute="none", processes=8),
    Case(layout={"pp": 4, "dp_shard": 8}, schedule="interleaved-1f1b", chunks=2, sharding="zero1"),
    Case(layout={"pp": 4, "dp_shard": 8, "tp": 2}, schedule="interleaved-1f1b", chunks=2, sharding="zero1",
         processes=8, batch=128),
    Case(layout={"pp": 4, "dp_replicate": 2, "dp_shard": 4, "tp": 2}, schedule="interleaved-1f1b", chunks=2,
         sharding="zero3", gather="per-step", processes=8, batch=128),
    Case(layout={"pp": 2, "dp_shard": 4, "tp": 2}, schedule="interleaved-1f1b", chunks=4, sharding="zero1",
         processes=8),
    Case(layout={"pp": 4, "dp_replicate": 4, "tp": 2}, model="llama-3.2-1b", processes=8),
    Case(layout={"pp": 8, "dp_shard": 2}, sharding="zero1", processes=8, model="llama-3.2-1b"),
    Case(layout={"pp": 4, "dp_shard": 2, "tp": 2}, schedule="zb-h1", sharding="zero1"),
    Case(layout={"pp": 4, "dp_shard": 2, "tp": 2}, schedule="zb-h1", sharding="zero1", stack=APART, processes=8),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="zb-h1", sharding="zero3", gather="per-layer"),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="zb-h2", sharding="zero1", processes=8),
    Case(layout={"pp": 4, "tp": 4}, schedule="zb-h2", recompute="none"),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="v-half", chunks=2, sharding="zero1"),
    Case(layout={"pp": 4, "tp": 2}, schedule="v-half", chunks=2, processes=8, batch=32),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="v-min", chunks=2, sharding="zero3", gather="per-step"),
    Case(layout={"pp": 4, "tp": 2, "dp_shard": 2}, schedule="v-min", chunks=2, sharding="zero1", stack=APART,
         processes=8),
    Case(layout={"pp": 4}, vocabulary="vocab-1", batch=32),
    Case(layout={"pp": 4, "tp": 2}, vocabulary="vocab-2", processes=8, batch=32, stack=APART),
    Case(layout={"pp": 4, "dp_shard": 4}, schedule="v-half", chunks=2, vocabulary="vocab-1", sharding="zero1"),
    Case(layout={"pp": 4}, vocabulary="interlaced", recompute="none", batch=32),
    Case(layout={"pp": 4, "dp_shard": 8, "ep": 8}, sharding="zero1", model="mixtral-8x7b", processes=8),
    Case(layout={"pp": 2, "dp_shard": 16, "ep": 2}, sharding="zero2", recompute="none", model="mixtral-8x7b",
         processes=8, batch=32),
    Case(layout={"pp": 4, "dp_shard": 4, "tp": 2, "ep": 4, "etp": 2}, schedule="zb-h1", sharding="zero1",
         model="mixtral-8x7b", processes=8),
    Case(layout={"pp": 4, "dp_shard": 8, "ep": 8}, schedule="dualpipe", chunks=2, sharding="zero1",
         model="mixtral-8x7b", processes=8),
    Case(layout={"pp": 4, "dp_shard": 8, "ep": 4}, sharding="zero3", gather="per-step", model="qwen3-30b-a3b",
         processes=8),
    Case(layout={"pp": 8, "dp_shard": 64, "ep": 32}, schedule="zb-v", chunks=2, sharding="zero1",
         model="deepseek-v3", processes=8, batch=1024),
)  # fmt: skip


LAYOUTS: Mapping[str, tuple[dict[str, int], ShardingName, str | None]] = {
    "replicated": ({"dp_replicate": 8}, "none", None),
    "sharded": ({"dp_shard": 8}, "zero1", None),
    "reduced": ({"dp_shard": 8}, "zero2", None),
    "by-layer": ({"dp_shard": 8}, "zero3", "per-layer"),
    "by-step": ({"dp_shard": 8}, "zero3", "per-step"),
    "by-micro-batch": ({"dp_shard": 8}, "zero3", "per-micro-batch"),
    "two-wide": ({"dp_shard": 4, "tp": 2}, "zero1", None),
    "four-wide": ({"dp_shard": 2, "tp": 4}, "zero1", None),
    "long": ({"dp_shard": 4, "cp": 2}, "zero1", None),
    "long-and-wide": ({"dp_shard": 2, "tp": 2, "cp": 2}, "zero3", "per-layer"),
}
"""Layouts of eight devices: degrees, sharding and gather."""


def _ranged(schedule: str = "1f1b", chunks: int = 1, *, pp: int = 4, stack: str = "meshwright",
            batch: int = 64, **ranges: str) -> Case:  # fmt: skip
    """A plan of several layouts; ``ranges`` are those of ``embed`` and ``head``, and ``from_N`` from layer N on."""
    first = {
        int(name.removeprefix("from_")): words for name, words in ranges.items() if name.startswith("from_")
    }
    stops = [*sorted(first)[1:], 32]
    layers = {f"{at}..{stop - 1}": first[at] for at, stop in zip(sorted(first), stops, strict=True)}
    return Case(
        layout={"pp": pp},
        schedule=schedule,
        chunks=chunks,
        stack=stack,
        batch=batch,
        processes=pp,
        ranges={"embed": ranges["embed"], **layers, "head": ranges["head"]},
    )


RANGED = (
    _ranged(embed="two-wide", from_0="two-wide", from_20="by-layer full", head="by-layer"),
    _ranged(embed="sharded", from_0="sharded full", from_12="two-wide full", from_24="four-wide", head="four-wide"),
    _ranged(embed="two-wide", from_0="sharded full", from_8="sharded", head="two-wide"),
    _ranged(embed="by-layer", from_0="by-layer full", from_10="long full", from_18="long", head="sharded"),
    _ranged(embed="by-step", from_0="by-step full", from_15="reduced full", head="reduced"),
    _ranged(embed="by-micro-batch", from_0="by-micro-batch full", from_16="sharded full", head="sharded"),
    _ranged(embed="replicated", from_0="two-wide full", from_21="by-layer", head="replicated"),
    _ranged(embed="long-and-wide", from_0="long-and-wide full", from_9="four-wide full", head="four-wide"),
    _ranged("gpipe", embed="two-wide", from_0="two-wide full", from_13="by-layer full", head="by-layer"),
    _ranged("interleaved-1f1b", 2, embed="two-wide", from_0="two-wide full", from_14="sharded full", head="two-wide"),
    _ranged("interleaved-1f1b", 2, embed="sharded", from_0="by-layer full", from_17="long full", head="sharded"),
    _ranged("zb-h1", embed="four-wide", from_0="four-wide full", from_11="sharded full", head="sharded"),
    _ranged("v-half", 2, embed="two-wide", from_0="two-wide full", from_19="by-step full", head="by-step"),
    _ranged(pp=8, batch=128, embed="sharded", from_0="sharded full", from_14="two-wide full", from_26="by-layer",
            head="by-layer"),
    _ranged("zb-h1", stack=APART, embed="two-wide", from_0="two-wide full", from_16="by-layer full", head="two-wide"),
)  # fmt: skip
"""Plans with several layouts, which change inside a stage and from stage to stage."""


def _on_slow_links(schedule: str, vocabulary: str | None = None, solved: float | None = None) -> Case:
    """Four stages per way through the model, none like another, or twice as many; 12 micro-batches."""
    kind = SCHEDULES[schedule]
    chunks = kind.fixed_chunks or (2 if kind.chunked else 1)
    return Case(
        layout={"pp": 4},
        schedule=schedule,
        chunks=chunks,
        vocabulary=vocabulary,
        recompute="none",
        model="llama-3.2-1b",
        batch=12,
        stages=UNEQUAL_16_TWICE if chunks // kind.chains == 2 else UNEQUAL_16,
        cluster=SLOW_LINKS,
        solved=solved,
    )


EVERY = (
    *map(_on_slow_links, SCHEDULES),
    *(_on_slow_links("1f1b", form) for form in FORMS),
    _on_slow_links("zb-h1", "vocab-1"),
    _on_slow_links("zb-v", "vocab-2"),
    _on_slow_links("zb-h1", solved=20.0),
    _on_slow_links("zb-v", solved=20.0),
)
"""Every schedule, spread vocabularies, and lists of the solver."""
BLOCKED, LEFT = (
    "each send blocks until its message is taken",
    "reductions go on only when the norm needs them",
)
FAULTY = (
    *(
        Case(layout={"pp": 4}, schedule=name, chunks=chunks, batch=8, recompute="none",
             message=0.8, fault=fault)
        for name, chunks in (
            ("gpipe", 1), ("zb-h1", 1), ("zb-h2", 1), ("v-half", 2), ("interleaved-1f1b", 2), ("1f1b", 1),
        )
        for fault in ("", BLOCKED)
    ),
    Case(layout={"pp": 4, "dp_shard": 16, "tp": 8}, schedule="interleaved-1f1b", chunks=2, sharding="zero1",
         batch=256, model="llama-3.1-70b"),
    Case(layout={"pp": 4, "dp_shard": 16, "tp": 8}, schedule="interleaved-1f1b", chunks=2, sharding="zero1",
         batch=256, model="llama-3.1-70b", fault=LEFT),
)  # fmt: skip


def resolved(case: Case) -> Resolved:
    """The plan of a case."""
    own = {"name": case.schedule, "vocabulary": case.vocabulary}
    plan = _resolved(case, own)
    if case.solved is None:
        return plan
    lines = format_csv(_solved(plan, case.solved)).splitlines()
    return _resolved(case, {"file": "solved.csv", "lists": tuple(lines)})


def _solved(plan: Resolved, seconds: float) -> list[list[Action]]:
    """Lists for the plan's own times, in the memory that its schedule takes by default."""
    program, _ = lower_and_simulate(plan.long, plan.setting)
    pipeline = Pipeline(
        ranks=program.pipeline_ranks,
        micro_batches=program.micro_batches,
        placement=plan.long.pipeline.placement,
        times=stage_times(program, program_prices(program, plan.setting)),
        knobs=Knobs(memory_limit=2.0 * program.pipeline_ranks),
    )
    return solve(pipeline, Effort(seconds=seconds)).lists


def _resolved(case: Case, schedule: Mapping[str, object]) -> Resolved:
    if case.ranges is not None:
        return resolve(_plan_by_ranges(case, case.ranges))
    devices = prod(degree for axis, degree in case.layout.items() if axis not in EXPERT_AXES)
    short = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": case.model,
            "cluster": str(case.cluster) if case.cluster else f"h100-sxm-80gb x {devices}",
            "stack": case.stack,
            "workload": {"seq_len": 4096, "global_batch": case.batch},
            "layout": case.layout,
            "sharding": case.sharding,
            "pipeline": {"schedule": schedule, "virtual_stages": case.chunks},
            "recompute": case.recompute,
        }
        | ({"gather": case.gather} if case.gather else {})
        | ({"synchronise": case.synchronise} if case.synchronise else {})
    )
    nouns = load_nouns(short)
    assert nouns.model is not None
    assert nouns.cluster is not None
    assert nouns.stack is not None
    long = expand(short, nouns.model.architecture)
    pipeline = long.pipeline.model_copy(update={"stages": case.stages})
    return resolve_with(
        long.model_copy(update={"pipeline": pipeline}), nouns.model, nouns.cluster, nouns.stack
    )


def _plan_by_ranges(case: Case, ranges: Mapping[str, str]) -> LongPlan:
    """Return the long form of a plan with several layouts."""
    named = dict.fromkeys(words.split()[0] for words in ranges.values())
    choice = ScheduleChoice(case.schedule)
    return LongPlan.model_validate(
        {
            "plan": 1,
            "model": case.model,
            "cluster": f"h100-sxm-80gb x {8 * case.layout['pp']}",
            "stack": case.stack,
            "workload": {"seq_len": 4096, "global_batch": case.batch},
            "layouts": {name: _layout(*LAYOUTS[name]) for name in named},
            "layers": {
                layers: {"layout": words.split()[0], "recompute": [*words.split(), "none"][1]}
                for layers, words in ranges.items()
            },
            "pipeline": {
                "placement": stage_placement(choice, case.layout["pp"], case.chunks),
                "micro_batch": 1,
                "schedule": Schedule.of(choice).model_dump(),
            },
        }
    )


def _layout(degrees: dict[str, int], sharding: ShardingName, gather: str | None) -> dict[str, object]:
    short = ShortLayout(
        pp=1, rank_order=DEFAULT_RANK_ORDER, sequence_parallel=degrees.get("tp", 1) > 1, **degrees
    )
    long = expand_layout(short, sharding, has_experts=False).model_dump()
    return long | {"states": ZERO_STATES[sharding].model_dump(), "gather": gather}
