"""Lists of 1F1B played with passes that the authors of Vocabulary Parallelism measured, beside measured iterations.

``tests/schedules/vocabulary/vocabulary_passes.csv`` holds means by rank of 40 runs on eight A100 (32 layers of
hidden size 3072, 128 micro-batches), from ``artifact/exp_one_host.csv`` of github.com/sail-sg/VocabularyParallelism
(commit 6191c3bf). There backward passes are whole, the output is S and T together, and the embedding's passes are
counted apart.
"""

import csv
from itertools import groupby
from pathlib import Path
from statistics import mean

from accuracy import table

from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.stage_times import StageTimes
from meshwright.schedules.vocabulary import FORMS
from meshwright.schedules.vocabulary.pass_times import PassTimes
from schedule_page.order import CELLS, all_right, order_of, summary, within
from schedule_page.section import Section, Target
from schedule_page.vocabulary_runs import played

PASSES = Path(__file__).parents[2] / "tests" / "schedules" / "vocabulary" / "vocabulary_passes.csv"
SHAPE = (8, 128, 1)
WITHIN = 0.025
Row = dict[str, str]


def iterations() -> Section:
    """Iterations by lists and measured passes, and their order within a vocabulary and a sequence."""
    with PASSES.open(encoding="utf-8") as lines:
        every = sorted(csv.DictReader(lines), key=_key)
    rows, orders, measured, found = [], [], [], []
    for (seq_len, vocab), members in groupby(every, key=_key):
        group = list(members)
        theirs, ours = [float(row["iteration_ms"]) for row in group], [makespan_ms(row) for row in group]
        orders.append(order_of(theirs, ours))
        cells = [f"{a / 1e3:.3f} / {b / 1e3:.3f}" for a, b in zip(theirs, ours, strict=True)]
        rows.append([seq_len, vocab, *cells, *orders[-1].cells])
        measured += theirs
        found += ours
    places = [row["place"] for row in every[: len(group)]]
    rows.append(["all", "", *[""] * len(places), *summary(orders)])
    inside = within(found, measured, WITHIN)
    text = f"""\
Runs of 1F1B on eight A100, published with the time of every pass: seconds of an iteration, measured / by
our lists, played with the measured passes of every rank. What comes before the first pass and the optimizer
are not played.

Within {WITHIN:.1%}: {inside}.

{table(["seq", "vocabulary", *places, *CELLS], rows)}"""
    counted = sum(abs(b / a - 1) <= WITHIN for a, b in zip(measured, found, strict=True))
    targets = (
        Target("pairs with measured passes in order, by lists", "all", summary(orders)[1], all_right(orders)),
        Target(
            f"iterations with measured passes within {WITHIN:.1%}",
            f"{len(found)}",
            f"{counted} of {len(found)}",
            counted == len(found),
        ),
    )
    return Section("Vocabulary Parallelism: lists with measured passes", text, targets)


def _key(row: Row) -> tuple[int, int]:
    return int(row["seq_len"]), int(row["vocab"])


def makespan_ms(row: Row) -> float:
    """The makespan of a row's lists; F, I and W of the head are taken to be equally long."""
    ranks, *_ = SHAPE
    backward, message = _ms(row["backward_us"]), float(row["message_us"]) / 1e3
    whole = (0.0,) * ranks
    times = StageTimes(tuple(_ms(row["forward_us"])), tuple(backward), whole, message)
    part = sum(mean(_ms(row[f"{name}_us"])) for name in ("output", "input", "input_backward"))
    form = FORMS.get(row["place"])
    share = None if form is None else form.share(PassTimes(*[ranks * part / 3] * 3), ranks)
    return played(SCHEDULES["1f1b"], SHAPE, times, share, row["place"]).makespan


def _ms(text: str) -> list[float]:
    return [float(word) / 1e3 for word in text.split()]
