"""Schedules beside what was published of them: makespans of a released scheduler, and closed forms.

The makespans (``schedules/zero-bubble.csv``) are those of the heuristic that the authors of Zero Bubble released, under
limits of P and of 2P micro-batches: the longest span of a rank, memory counted as here (F +2, I −1, W −1).
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accuracy import table

from meshwright.schedules.pipeline import Knobs
from meshwright.verbs.schedule.pass_times import RankTimes
from schedule_page.play import EQUAL, Pipe, Shown, play
from schedule_page.section import Section, Target

ROUNDING = 1e-6
GOLDEN = Path(__file__).parent / "zero-bubble.csv"
ZERO_CASES = ((4, 8), (4, 12), (8, 24), (8, 32), (8, 64))
"""P and M for which the released scheduler of ZB-V leaves no bubble at equal times."""
SIZES = ((4, 16), (8, 32), (16, 64))


@dataclass(frozen=True)
class Golden:
    """One row: a pipeline, and makespans at limits of P and of 2P micro-batches."""

    pipe: Pipe
    one_p: float
    two_p: float

    @property
    def bound(self) -> float:
        """No 1F1B is shorter: (M + P − 1)(F + I + W) and 2(P − 1) messages; with messages it is longer."""
        pipe, ends = self.pipe, self.pipe.ranks - 1
        return pipe.work + ends * (sum(pipe.times[:3]) + 2 * pipe.times.message)


def goldens() -> list[Golden]:
    """All rows of the table."""
    with GOLDEN.open(encoding="utf-8") as lines:
        return [_golden(row) for row in csv.DictReader(lines)]


def _golden(row: dict[str, str]) -> Golden:
    times = RankTimes(*(float(row[name]) for name in ("forward", "input", "weight", "message")))
    pipe = Pipe(ranks=int(row["ranks"]), micro_batches=int(row["micro_batches"]), times=times)
    return Golden(pipe, float(row["zb_1p"]), float(row["zb_2p"]))


def verdict(ours: float, theirs: float) -> str:
    """What our makespan is beside theirs."""
    if abs(ours - theirs) <= ROUNDING * theirs:
        return "met"
    return f"beaten by {theirs - ours:.3g}" if ours < theirs else f"**missed** by {ours - theirs:.3g}"


def makespans() -> Section:
    """Zero Bubble's golden makespans."""
    rows, verdicts, same = [], [], True
    for golden in goldens():
        p = golden.pipe.ranks
        usual = play("1f1b", golden.pipe).figures.makespan
        cells = [
            p,
            golden.pipe.micro_batches,
            _times(golden.pipe.times),
            f"{golden.bound:.7g}",
            f"{usual:.7g}",
        ]
        for name, limit, theirs in (("zb-h1", 2 * p, golden.one_p), ("zb-h2", 4 * p, golden.two_p)):
            ours = play("zero-bubble", golden.pipe, Knobs(memory_limit=limit))
            same &= play(name, golden.pipe).lists == ours.lists
            verdicts.append(verdict(ours.figures.makespan, theirs))
            held = f"{max(ours.figures.peak_memory):g} of {limit}"
            cells += [f"{theirs:.7g}", f"{ours.figures.makespan:.7g}", held, verdicts[-1]]
        rows.append([*cells, f"{golden.pipe.work:.7g}"])
    names = ["theirs, P", "ours", "held", "verdict", "theirs, 2P", "ours", "held", "verdict"]
    header = ["P", "M", "F, I, W, message", "1F1B, bound", "1F1B, played", *names, "work"]
    missed = sum("missed" in one for one in verdicts)
    found = f"{len(verdicts) - missed} of {len(verdicts)}, {sum('beaten' in v for v in verdicts)} beaten"
    text = f"""\
Makespans (the longest time from a rank's first start to its last end) of `zero-bubble` under limits of P
and of 2P micro-batches, in the unit of the times, beside those of the authors' scheduler. *Theirs*: made by
their released heuristic, without its integer program. *Ours*: played. *Held*: the most that a rank holds
and the limit, F +2, I −1, W −1. *Bound*: (M + P − 1)(F + I + W) + 2(P − 1) messages, below which no 1F1B
can be. `zb-h1` and `zb-h2` are the same lists as `zero-bubble` under these limits
{"in all rows" if same else "in some rows only"}.

{table(header, rows)}"""
    target = Target("makespans of Zero Bubble's scheduler met", f"{len(verdicts)}", found, not missed)
    return Section("Makespans of the Zero Bubble scheduler", text, (target,))


def _times(times: RankTimes) -> str:
    return ", ".join(f"{time:g}" for time in times)


def zb_v() -> Section:
    """The cases in which ZB-V has no bubble."""
    shown = [play("zb-v", Pipe(ranks=p, micro_batches=m, chunks=2)) for p, m in ZERO_CASES]
    rows = [
        (s.pipe.ranks, s.pipe.micro_batches, "0", f"{s.bubble:g}", f"{s.micro_batches_held:g}", s.pipe.ranks)
        for s in shown
    ]
    zero = sum(s.bubble == 0 and s.micro_batches_held <= s.pipe.ranks for s in shown)
    text = f"""\
Equal F, I and W of 1 over a whole rank, messages without time. Bubbles of the authors' released scheduler
beside played ones; what a rank holds, counted in micro-batches, beside the limit.

{table(["P", "M", "theirs", "played", "held", "limit"], rows)}"""
    target = Target(
        "ZB-V without bubble within P micro-batches",
        f"{len(rows)}",
        f"{zero} of {len(rows)}",
        zero == len(rows),
    )
    return Section("ZB-V", text, (target,))


@dataclass(frozen=True)
class Form:
    """What was published of a schedule, at F = I = W = 1 over a rank: bubble and micro-batches held for P ranks."""

    name: str
    bubble: str
    chunks: int
    bubble_at: tuple[float, float]
    """So many times P, plus so many."""
    held_at: tuple[float, float]
    messages: int
    held: str


FORMS = (
    Form("1f1b", "(P−1)(F+I+W)", 1, (3, -3), (1, 0), 1, "P"),
    Form("zb-h1", "(P−1)(F+I−W)", 1, (1, -1), (1, 0), 1, "P"),
    Form("zb-h2", "(P−1)(F+I−2W)", 1, (0, 0), (2, -1), 1, "2P−1"),
    Form("zb-v", "0", 2, (0, 0), (1, 0), 2, "P"),
    Form("v-half", "1F1B's / 2", 2, (1.5, -1.5), (0.5, 0), 2, "P/2"),
    Form("v-min", "1F1B's · 2/3", 2, (2, -2), (1 / 3, 0), 2, "P/3"),
    Form("dualpipe", "(P/2−1)(F&B+B−3W)", 2, (1, -2), (1, 1), 1, "P+1"),
    Form("dualpipev", "(P−1)(F&B+B−3W) of chunks", 2, (1, -1), (1, 0.5), 2, "P+1/2"),
)


def forms() -> Section:
    """Closed forms beside played figures."""
    rows = [row for form in FORMS for row in _form_rows(form)]
    header = ["schedule", "P", "M", "bubble", "its value", "played", "held", "its value", "counted"]
    text = f"""\
Equal F, I and W of 1 over a whole rank, messages without time; F&B, a pair of passes that runs at once, is
taken as F + B, nothing of it overlapped. *Bubble* and *held* (micro-batches on the rank that holds most):
as published by the schedules' authors (arXiv 2401.10241, the table in the README of
github.com/sail-sg/zero-bubble-pipeline-parallelism for V-Half and V-Min, the README of
github.com/deepseek-ai/DualPipe). *Played*: the makespan beyond M(F + I + W). *Messages*: beside those of
1F1B, published and counted; a rank's own turn of a V sends none.

The forms of V-Half and V-Min are what they come to for many ranks; the forms of DualPipe count F and B of a
pair as one pass that gives its results at its end, while lists let the gradient leave as soon as I has
ended, which makes their bubbles shorter.

{table([*header, "messages", "counted"], rows)}"""
    return Section("Closed forms", text)


def _form_rows(form: Form) -> Iterator[list[object]]:
    for p, m in SIZES:
        shown = play(form.name, Pipe(ranks=p, micro_batches=m, chunks=form.chunks, times=EQUAL))
        yield [
            form.name,
            p,
            m,
            form.bubble,
            f"{_at(form.bubble_at, p):g}",
            f"{shown.bubble:g}",
            *_held(form, shown),
        ]


def _held(form: Form, shown: Shown) -> list[object]:
    held = f"{shown.micro_batches_held:.3g}"
    volume = shown.figures.p2p_volume
    return [
        form.held,
        f"{_at(form.held_at, shown.pipe.ranks):.3g}",
        held,
        form.messages,
        f"{volume or 0:.3g}",
    ]


def _at(line: tuple[float, float], ranks: int) -> float:
    return line[0] * ranks + line[1]
