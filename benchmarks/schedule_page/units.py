"""ZeroPP: what a larger unit of micro-batches gives in gathers, and takes in bubble and memory."""

from accuracy import table

from meshwright.schedules.pipeline import Knobs
from meshwright.verbs.schedule.pass_times import RankTimes
from schedule_page.play import EQUAL, Pipe, gathers, play
from schedule_page.section import Section

RANKS, CHUNKS, MICRO_BATCHES = 8, 2, 96
UNITS = (8, 12, 16, 24, 32, 48, 96)
PROFILED = RankTimes(18.522, 18.086, 9.337, 0.601)
"""ms of a 1.5B model on A100, from the appendix of Zero Bubble (arXiv 2401.10241): W takes half as long as F."""


def trade_off() -> Section:
    """Bubble, memory and gathers by the size of a unit."""
    rows = [_row(name, unit) for name in ("zeropp", "looped-bfs") for unit in UNITS]
    header = ["schedule", "unit", "units", "bubble rate", "its form", "profiled", "held", "gathers"]
    passes = ", ".join(f"{time:g}" for time in PROFILED[:3])
    text = f"""\
P = {RANKS} ranks, V = {CHUNKS} chunks, M = {MICRO_BATCHES} micro-batches. *Bubble rate*: played, makespan /
M(F + I + W) − 1, where F, I and W take equally long and messages no time; *profiled*: the same where a rank
takes {passes} ms and a message {PROFILED.message:g} ms, as was measured for a 1.5B model (Zero Bubble,
arXiv 2401.10241). *Its form*: of ZeroPP's lists, (P−1)(F+I) + (n−1)·max(0, (P−1)(F+I) − V·U·W) in times of
a chunk for n units of U. *Held*: the most that a rank holds, counted in micro-batches over a whole rank;
1F1B holds {RANKS}. *Gathers*: of a stage's parameters over all stages, counted in the lists, units × stages
for F and as many for I. `looped-bfs` is the same order without split backward passes.

{table(header, rows)}"""
    return Section("ZeroPP: size of a unit", text)


def _row(name: str, unit: int) -> list[object]:
    equal, profiled = (
        play(
            name, Pipe(ranks=RANKS, micro_batches=MICRO_BATCHES, chunks=CHUNKS, times=times), Knobs(unit=unit)
        )
        for times in (EQUAL, PROFILED)
    )
    form = f"{closed_form(unit) / equal.pipe.work:.1%}" if name == "zeropp" else "–"
    rates = [f"{shown.figures.bubble_rate:.1%}" for shown in (equal, profiled)]
    held = f"{equal.micro_batches_held:.3g}"
    return [name, unit, MICRO_BATCHES // unit, rates[0], form, rates[1], held, gathers(equal.lists)]


def closed_form(unit: int) -> float:
    """The bubble of units without a rest at equal times, in the time of a pass over a whole rank."""
    ends = 2 * (RANKS - 1)
    return (ends + (MICRO_BATCHES // unit - 1) * max(0, ends - CHUNKS * unit)) / CHUNKS
