"""CPU seconds of making lists and of playing them, by themselves and as the Program of a model."""

import gc
import random
import time
from dataclasses import dataclass

from accuracy import table

from meshwright.cost.operators.price_plans import program_prices
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.resolve import resolve
from meshwright.program.lowering.lower_plan import lower
from meshwright.schedules.bubble_metrics import figures_of
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.stage_times import StageTimes, equal_times, rounded_times
from meshwright.schedules.timeline import played
from meshwright.simulate.simulator import simulate
from schedule_page.section import Section, Target

REPEATS = 3
LARGE = (64, 2048)
LARGE_S = 10.0


@dataclass(frozen=True)
class Case:
    """A schedule of a size, with the target in CPU seconds; ``unequal`` stages differ by a tenth."""

    name: str
    ranks: int
    micro_batches: int
    chunks: int
    target_s: float
    limit: float | None = None
    unequal: bool = False

    @property
    def times(self) -> StageTimes:
        """Of all stages; messages take a twentieth of a pass where stages differ."""
        stages = self.ranks * self.chunks
        if not self.unequal:
            return equal_times(stages)
        draw = random.Random(stages)
        of_stages = [draw.uniform(0.9, 1.1) for _ in range(stages)]
        return rounded_times(of_stages, of_stages, of_stages, 0.05, 0.5)

    @property
    def words(self) -> str:
        """The schedule and what is unusual about it."""
        more = [f"limit {self.limit:g}"] if self.limit else []
        return ", ".join([self.name, *more, *(["unequal stages"] if self.unequal else [])])


CASES = (
    Case("interleaved-1f1b", 16, 512, 4, 1.0),
    Case("1f1b", *LARGE, 1, LARGE_S),
    Case("zb-h1", *LARGE, 1, LARGE_S),
    Case("zb-h2", *LARGE, 1, LARGE_S),
    Case("zero-bubble", *LARGE, 1, LARGE_S, limit=192),
    Case("zero-bubble", *LARGE, 1, LARGE_S, limit=192, unequal=True),
    Case("zb-v", *LARGE, 2, LARGE_S),
    Case("v-half", *LARGE, 2, LARGE_S),
)

SIMULATED = CASES[:3]
MODEL, DEVICE = "llama-3.1-405b", "h100-sxm-80gb"


def speed() -> Section:
    """CPU seconds of every case beside its target."""
    rows, targets = [], []
    for case in CASES:
        lists_s, figures_s = min((_seconds(case) for _ in range(REPEATS)), key=sum)
        whole, passes = lists_s + figures_s, _passes(case)
        cells = [case.words, case.ranks, case.micro_batches, case.chunks, f"{passes:,}", f"{lists_s:.2f}"]
        rows.append([*cells, f"{figures_s:.2f}", f"{whole:.2f}", f"{case.target_s:g}"])
        what = f"lists and figures of {case.words}, {case.ranks} × {case.micro_batches} × {case.chunks}"
        targets.append(
            Target(what, f"≤ {case.target_s:g} CPU s", f"{whole:.2f} CPU s", whole <= case.target_s)
        )
    simulated, simulated_targets = _simulated()
    header = ["schedule", "P", "M", "V", "passes", "lists", "figures", "together", "target"]
    text = f"""\
Measured: CPU seconds of this process, best of {REPEATS}, on a host with other work. *Lists*: made anew.
*Figures*: the lists played, and memory, messages and bubbles counted. *Unequal stages* differ by up to a
tenth and have messages.

{table(header, rows)}

The simulator plays a whole step: passes on the compute stream, exchanges of states beside it, every link with one
message at a time. *Lowered*: the plan as a Program; *simulated*: its step; both for {MODEL} on one `{DEVICE}` a
pipeline rank.

{table(SIMULATED_HEADER, simulated)}"""
    return Section("Speed", text, (*targets, *simulated_targets))


SIMULATED_HEADER = ["schedule", "P", "M", "V", "actions", "lowered", "simulated", "target"]


def _simulated() -> tuple[list[list[object]], list[Target]]:
    """Whole steps in the simulator: rows and targets."""
    rows: list[list[object]] = []
    targets = []
    for case in SIMULATED:
        actions, lowered_s, simulated_s = _simulated_seconds(case)
        shape = [case.words, case.ranks, case.micro_batches, case.chunks]
        rows.append([*shape, f"{actions:,}", f"{lowered_s:.2f}", f"{simulated_s:.2f}", f"{case.target_s:g}"])
        what = f"simulated step of {case.words}, {case.ranks} × {case.micro_batches} × {case.chunks}"
        met = simulated_s <= case.target_s
        targets.append(Target(what, f"≤ {case.target_s:g} CPU s", f"{simulated_s:.2f} CPU s", met))
    return rows, targets


def _simulated_seconds(case: Case) -> tuple[int, float, float]:
    """Actions of a step, CPU seconds of lowering its plan, the least CPU seconds of playing it."""
    plan = ShortPlan(
        plan=1,
        model=MODEL,
        cluster=f"{DEVICE} x {case.ranks}",
        workload=WorkloadSpec(seq_len=4096, global_batch=case.micro_batches),
        stack="meshwright",
        layout=ShortLayout(pp=case.ranks),
        pipeline=ShortPipeline(schedule=case.name, virtual_stages=case.chunks),
    )
    resolved = resolve(plan)
    setting = resolved.setting
    gc.collect()
    begun = time.process_time()
    program = lower(resolved.long, setting.model, setting.cluster, setting.workload, setting.stack)
    lowered_s = time.process_time() - begun
    prices, seconds = program_prices(program, setting), list[float]()
    for _ in range(REPEATS):
        gc.collect()
        begun = time.process_time()
        simulate(program, prices)
        seconds.append(time.process_time() - begun)
    return sum(map(len, program.lists)), lowered_s, min(seconds)


def _passes(case: Case) -> int:
    return case.ranks * case.micro_batches * case.chunks * (3 if SCHEDULES[case.name].split else 2)


def _seconds(case: Case) -> tuple[float, float]:
    """CPU seconds of making the lists and of playing them."""
    kind, times = SCHEDULES[case.name], case.times
    knobs = Knobs(memory_limit=case.limit)
    pipeline = kind.pipeline(case.ranks, case.micro_batches, case.chunks, times, knobs)
    ways = kind.ways(case.ranks, case.chunks)
    gc.collect()
    begun = time.process_time()
    lists = kind.make(pipeline)
    made = time.process_time()
    figures_of(lists, played(lists, times, ways), times, ways)
    return made - begun, time.process_time() - made
