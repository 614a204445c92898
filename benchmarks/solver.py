"""The solver of schedules beside the table's best lists, published bubbles, and what no lists can be below.

    python benchmarks/solver.py             prints the page
    python benchmarks/solver.py --write     also writes benchmarks/solver.md

Needs OR-tools (`pip install 'meshwright[solve]'`) for the part on small pipelines. Takes about half an hour.
"""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "scripts"))

from accuracy import table
from schedule_page.play import Pipe, play
from schedule_page.section import Section, Target, filled, page_of
from schedule_page.zero_bubble_runs import kept_for_weights
from solver_branches import branches

from meshwright import __version__
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.pipeline import Knobs, Pipeline, v_placement
from meshwright.schedules.solve import Effort, Solution, solve
from meshwright.verbs.schedule.pass_times import RankTimes, for_pipeline

PROFILED = RankTimes(18.522, 18.086, 9.337, 0.601)
"""ms of a 6.2B model on 8 ranks: Zero Bubble (arXiv 2401.10241), its released scheduler's example."""
EIGHT = Pipe(ranks=8, micro_batches=32, times=PROFILED)
ONE_P_BUBBLE = 0.1238
"""Of the makespan: the released scheduler under 1F1B's memory with these times."""
LARGEST = Pipe(
    ranks=32,
    micro_batches=256,
    times=RankTimes(10.402, 10.248, 7.698, 0.46),
    kept=kept_for_weights(hidden=6144, heads=48, seq_len=1024),
)
"""GPT-28.3B of the same paper, profiled."""
LARGEST_BUBBLE = 0.0018
LIMITS = (6, 8, 10, 12, 14, 16, 18, 20, 24, 32)
SMALL_RANKS, SMALL_MICRO_BATCHES = (2, 3, 4), range(1, 9)
SHORT, LONG = Effort(seconds=20), Effort(seconds=60)


def searched(pipe: Pipe, limit: float, effort: Effort) -> Solution:
    """Lists for equal ranks in a V."""
    stages = pipe.ranks * pipe.chunks
    ticks = for_pipeline(pipe.times, pipe.ranks, StageChains(stages))
    pipeline = Pipeline(
        ranks=pipe.ranks,
        micro_batches=pipe.micro_batches,
        placement=v_placement(pipe.ranks, pipe.chunks),
        times=replace(ticks.times, kept=pipe.kept),
        knobs=Knobs(memory_limit=limit),
    )
    found = solve(pipeline, effort)
    assert not check_lists(found.lists, memory_limit=limit, kept=pipe.kept)
    return found.in_unit(ticks.in_unit)


def small() -> Section:
    """Equal times, few passes: proofs."""
    rows, proven, count = [], 0, 0
    for ranks in SMALL_RANKS:
        for limit in (ranks, 2 * ranks):
            cells = []
            for micro_batches in SMALL_MICRO_BATCHES:
                pipe = Pipe(ranks=ranks, micro_batches=micro_batches)
                found = searched(pipe, 2 * limit, Effort(seconds=60, method="exact"))
                cells.append(f"{found.makespan:g}" + ("" if found.proven else "?"))
                proven, count = proven + found.proven, count + 1
            rows.append([ranks, 2 * limit, *cells])
    text = f"""\
F = I = W = 1, no time for messages, one chunk, memory of P and of 2P micro-batches: the shortest makespan, by
constraint programming; proven for {proven} of {count}.

{table(["P", "limit", *(f"M = {m}" for m in SMALL_MICRO_BATCHES)], rows)}"""
    target = Target("unit times, P ≤ 4, M ≤ 8: proven", str(count), str(proven), proven == count)
    return Section("Small pipelines", text, (target,))


def limits() -> Section:
    """Profiled times under every limit."""
    rows, at_p = [], {}
    usual = play("1f1b", EIGHT)
    for chunks in (1, 2):
        pipe = replace(EIGHT, chunks=chunks)
        for limit in LIMITS:
            found = searched(pipe, limit, SHORT)
            if limit == 2 * pipe.ranks:
                at_p[chunks] = found
            rows.append([chunks, limit, *_cells(found, pipe)])
    parts = {chunks: _part(found, EIGHT) for chunks, found in at_p.items()}
    text = f"""\
P = 8, M = 32, F, I, W and message {", ".join(f"{time:g}" for time in PROFILED)} ms (Zero Bubble, arXiv 2401.10241), W
waits with half of what F holds. One chunk, or two in a V; 20 s of search for each. The memory of `1f1b` is 16; its
bubble is {usual.bubble_part:.4f} of the makespan. *Bubble*: of the makespan, as the paper has it. *Table*: the shortest
lists of all schedules that keep to the limit.

{table(["V", "limit", "table", "its bubble", "bubble", "at least", "gap", "found by"], rows)}"""
    one, two = parts[1], parts[2]
    return Section(
        "Profiled times under any limit",
        text,
        (
            Target(
                "one chunk, 1F1B's memory: bubble",
                f"≤ {ONE_P_BUBBLE}",
                f"{one:.4f}, {_standing(at_p[1])}",
                round(one, 4) <= ONE_P_BUBBLE,
            ),
            Target(
                "two chunks, 1F1B's memory: bubble beside 1F1B's",
                "≤ 1/2",
                f"{two:.4f}, {two / usual.bubble_part:.3f} of it, {_standing(at_p[2])}",
                two <= usual.bubble_part / 2,
            ),
        ),
    )


def _part(found: Solution, pipe: Pipe) -> float:
    return 1 - pipe.work / found.makespan


def _standing(found: Solution) -> str:
    return "proven shortest" if found.proven else f"gap {found.gap:.3%}"


def _cells(found: Solution, pipe: Pipe) -> list[object]:
    bubbles = (1 - pipe.work / time for time in (found.seed_makespan, found.makespan, found.bound))
    before, after, least = (f"{max(0.0, part):.4f}" for part in bubbles)
    return [found.best_seed, before, after, least, _standing(found), found.found_by]


def dualpipe() -> Section:
    """Two chunks in a V under DualPipe's memory."""
    pipe = replace(EIGHT, chunks=2)
    theirs = play("dualpipe", pipe)
    held = max(theirs.figures.peak_memory)
    rows: list[list[object]] = [_beside("`dualpipe`", theirs.figures.makespan, held, 2, theirs.bubble)]
    found = {limit: searched(pipe, limit, LONG) for limit in (held, held + 2)}
    for limit, of in found.items():
        rows.append(_beside(f"searched, {_standing(of)}", of.makespan, limit, 1, theirs.bubble))
        rows.append(_beside("no lists in a V are below", of.bound, limit, 1, theirs.bubble))
    text = f"""\
The same times, and memory for {held:g}, which is what our lists of `dualpipe` hold; then two more, one micro-batch for
the parameters that DualPipe holds twice and two chunks in a V once (how many micro-batches those are is the model's
matter). 60 s of search. F and B of a pair run one after the other in these lists: what DualPipe gains by running both
at once is not in them.

{table(["lists", "parameters", "limit", "makespan, ms", "bubble, ms", "beside dualpipe's"], rows)}"""
    return Section("DualPipe at equal memory", text)


def _beside(name: str, makespan: float, limit: float, parameters: int, usual: float) -> list[object]:
    bubble = makespan - EIGHT.work
    return [name, parameters, f"{limit:g}", f"{makespan:.3f}", f"{bubble:.3f}", f"{bubble / usual:.3f}"]


def largest() -> Section:
    """The longest pipeline of Zero Bubble's runs."""
    found = searched(LARGEST, 4 * LARGEST.ranks, LONG)
    text = f"""\
GPT-28.3B of Zero Bubble: P = 32, M = 256, {3 * 32 * 256:,} passes, memory of 2P micro-batches, W waits with
{LARGEST.kept:.4f} of what F holds, as its authors count. Best of the table: `{found.best_seed}`, makespan
{found.seed_makespan:.3f} ms, bubble {1 - LARGEST.work / found.seed_makespan:.4f} of it. Searched ({found.found_by},
{found.steps:,} steps): {found.makespan:.3f} ms, bubble {_part(found, LARGEST):.4f}; no lists are below
{found.bound:.3f} ms ({found.bound_reason}): {_standing(found)}."""
    part = _part(found, LARGEST)
    target = Target(
        "GPT-28.3B, memory of 2P: bubble",
        f"≤ {LARGEST_BUBBLE}, published",
        f"{part:.4f}, {_standing(found)}",
        round(part, 4) <= LARGEST_BUBBLE,
    )
    return Section("A long pipeline", text, (target,))


def sections() -> Iterator[Section]:
    """All parts."""
    yield small()
    yield limits()
    yield dualpipe()
    yield largest()
    yield branches()


def page() -> str:
    """The page that is kept under ``benchmarks/``."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    head = f"""\
Lists found by `meshwright schedule auto`, by version {__version__} on {date.today().isoformat()} ({machine}, shared).
Made by `python benchmarks/solver.py --write`. All makespans are *played* on a virtual clock; nothing was run on
devices. Memory as everywhere for schedules: F of a micro-batch on a whole rank holds 2. A *gap* is what the lists take
beyond a bound that no lists are below; *proven* means that there is none. Searches end at a time, so that a faster
machine may find shorter lists where a gap is left."""
    return f"# Schedule solver\n\n{filled(head)}\n\n{page_of(list(sections()))}"


def main(arguments: list[str]) -> None:
    """Print the page, and write it where asked."""
    text = page()
    print(text)
    if "--write" in arguments:
        (Path(__file__).parent / "solver.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
