"""The measured runs of Zero Bubble (Qi et al., arXiv 2401.10241) beside played lists and the cost model.

The notes of the table of runs hold what the authors' scheduler saw: F, I (their B), W and a message, in ms, one figure
of each for all ranks, and the bubble that they computed, as a part of the makespan. Their memory limit counts a layer's
activations as 34h + 5as bytes for each token, of which 32h wait for W (h hidden size, a heads, s sequence;
``megatron/core/pipeline_parallel/zb_schedules.py`` of github.com/sail-sg/zero-bubble-pipeline-parallelism), and so do
the lists here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from accuracy import signed, table
from pass_profiles import read_notes

from meshwright.verbs.schedule.pass_times import RankTimes
from schedule_page.models import Measured, measured_runs
from schedule_page.order import CELLS, all_right, order_of, summary, within
from schedule_page.play import Pipe, Shown, play
from schedule_page.section import Section, Target

SOURCE = "Zero Bubble"
PROFILE = re.compile(r"theoretical bubble ([\d.]+); profiled TF/TB/TW/Tcomm ms ([\d./]+)")
WITHIN = 0.05


@dataclass(frozen=True)
class Profiled:
    """A run with the times that were profiled for it, in ms, and the bubble that its authors computed."""

    of: Measured
    times: RankTimes
    paper_bubble: float

    @property
    def micro_batches(self) -> int:
        """M."""
        return int(self.of.group.micro_batches[0])

    @cached_property
    def shown(self) -> Shown:
        """Our lists, played with the profiled times."""
        group, given = self.of.group, self.of.run.given
        assert given.hidden is not None
        assert given.heads is not None
        pipe = Pipe(
            ranks=group.ranks,
            micro_batches=self.micro_batches,
            chunks=group.chunks,
            times=self.times,
            kept=kept_for_weights(given.hidden, given.heads, given.seq_len),
        )
        return play(self.of.schedule, pipe)

    @property
    def lists_s(self) -> float:
        """Seconds of a step: the makespan, and what the cost model says is outside of it."""
        return self.shown.figures.makespan / 1e3 + self.of.outside_s


def kept_for_weights(hidden: int, heads: int, seq_len: int) -> float:
    """The part of a layer's activations that waits for W, as the authors' scheduler counts it."""
    return 32 * hidden / (34 * hidden + 5 * heads * seq_len)


def profiled_runs(path: str) -> tuple[list[list[Profiled]], list[Measured]]:
    """Runs of a table with profiled times, those of one model and batch together, and runs without such times."""
    notes, profiled, others = read_notes(path), list[Profiled](), list[Measured]()
    for run in measured_runs(path, SOURCE):
        match = PROFILE.search(notes[run.run.run_id])
        if match:
            times = RankTimes(*map(float, match[2].split("/")))
            profiled.append(Profiled(run, times, float(match[1])))
        else:
            others.append(run)
    return grouped(profiled), others


def grouped(runs: Sequence[Profiled]) -> list[list[Profiled]]:
    """Runs of one model and batch, the fastest first."""
    ordered = sorted(runs, key=lambda run: (*setting_key(run.of), run.of.measured_s))
    return [list(group) for _, group in groupby(ordered, key=lambda run: setting_key(run.of))]


def setting_key(run: Measured) -> tuple[int, int]:
    """What the runs of a group share: the model, by its width, and the batch."""
    return run.run.given.hidden or 0, run.run.given.global_batch


def _name(run: Profiled) -> list[object]:
    return [run.of.run.given.model, run.micro_batches]


def step_times(groups: Sequence[Sequence[Profiled]]) -> Section:
    """Bubbles beside the authors', step times beside measured ones."""
    rows = [_time_row(run) for group in groups for run in group]
    header = [
        "model",
        "M",
        "schedule",
        "bubble, theirs",
        "ours",
        "measured s",
        "lists s",
        "error",
        "model s",
        "error",
    ]
    runs = [run for group in groups for run in group]
    longer = [run for run in runs if run.shown.bubble_part > run.paper_bubble + 0.5e-4]
    ours = [run for run in longer if run.of.schedule.startswith("zb")]
    lists = within([r.lists_s for r in runs], [r.of.measured_s for r in runs], WITHIN)
    model = within([r.of.step_s for r in runs], [r.of.measured_s for r in runs], WITHIN)
    named = ", ".join(f"{run.of.run.given.model} with M = {run.micro_batches}" for run in ours)
    text = f"""\
Runs of Zero Bubble (arXiv 2401.10241) on A100-80GB. *Bubble*: as a part of the makespan; *theirs*:
published, computed by the authors from profiled F, I, W and messages, one figure of each for all ranks; *ours*:
our lists played with the same times. *Measured s*: seconds of a step, published. *Lists s*:
the played makespan, with what the cost model says is outside of the pipeline (optimizer, tied tables).
*Model s*: the cost model's prediction (`validate`), whose stages differ, as the last one has the head.
Constants of the cost model were fitted on these runs.

Step times within {WITHIN:.0%}: by lists {lists}; by the cost model {model}. Split schedules with a larger bubble
than the published one: {named or "none"}.

{table(header, rows)}"""
    what = "bubbles of zb-h1 and zb-h2 no longer than the published ones"
    split = sum(run.of.schedule.startswith("zb") for run in runs)
    found = f"{split - len(ours)} of {split}"
    return Section("Zero Bubble's runs: step times", text, (Target(what, f"{split}", found, not ours),))


def _time_row(run: Profiled) -> list[object]:
    measured = run.of.measured_s
    bubbles = [f"{run.paper_bubble:.4f}", f"{run.shown.bubble_part:.4f}"]
    lists = [f"{run.lists_s:.3f}", signed(run.lists_s / measured - 1)]
    model = [f"{run.of.step_s:.3f}", signed(run.of.step_s / measured - 1)]
    return [*_name(run), run.of.schedule, *bubbles, f"{measured:.3f}", *lists, *model]


def order(groups: Sequence[Sequence[Profiled]], others: Sequence[Measured]) -> Section:
    """Which schedule is fastest, by lists and by the cost model."""
    by_lists, by_model, with_others, rows = [], [], [], []
    for group in groups:
        measured = [run.of.measured_s for run in group]
        by_lists.append(order_of(measured, [run.lists_s for run in group]))
        by_model.append(order_of(measured, [run.of.step_s for run in group]))
        whole = [run.of for run in group] + [o for o in others if setting_key(o) == setting_key(group[0].of)]
        with_others.append(order_of([run.measured_s for run in whole], [run.step_s for run in whole]))
        names = ", ".join(run.of.schedule for run in group)
        rows.append([*_name(group[0]), names, *by_lists[-1].cells, *by_model[-1].cells])
    rows.append(["all", "", "", *summary(by_lists), *summary(by_model)])
    header = [
        "model",
        "M",
        "measured order",
        *(f"lists: {c}" for c in CELLS),
        *(f"model: {c}" for c in CELLS),
    ]
    spearman, pairs, regret = summary(with_others)
    text = f"""\
Groups are runs of one model, number of devices and batch. *Measured order*: the fastest first. *Lists* and
*model* as above. {len(others)} more runs, `zb-h2` with a synchronous
gradient norm, have no profiled times; with them in its groups the cost model has Spearman {spearman},
{pairs} pairs, regret {regret}.

{table(header, rows)}"""
    targets = [
        Target(f"pairs of Zero Bubble's runs in order, {by}", "all", summary(orders)[1], all_right(orders))
        for by, orders in (("by lists", by_lists), ("by the cost model", with_others))
    ]
    return Section("Zero Bubble's runs: order", text, tuple(targets))
