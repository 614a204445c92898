"""Peak memory of Vocabulary Parallelism's measured runs beside the cost model, and micro-batches in flight by lists."""

from collections.abc import Sequence
from itertools import groupby

from accuracy import table

from meshwright.play.in_flight import most_in_flight
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.vocabulary import FORMS
from meshwright.units import GIB
from schedule_page.order import within
from schedule_page.section import Section, Target
from schedule_page.vocabulary_runs import PLACES, WITHIN, Placed, names


def predicted(groups: Sequence[Sequence[Placed]]) -> Section:
    """The cost model's peaks by place of the vocabulary."""
    known = [run for group in groups for run in group if run.of.run.memory_gib]
    measured, found = [run.of.run.memory_gib or 0 for run in known], [run.of.memory_gib for run in known]
    tables = [
        f"### {schedule}\n\n{_places(list(of_schedule))}\n"
        for schedule, of_schedule in groupby(groups, key=lambda group: group[0].of.schedule)
    ]
    decimal = within([gib * GIB / 1e9 for gib in found], measured, WITHIN)
    text = f"""\
Peak memory of the device that holds most: published in GB / predicted by the cost model in GiB. Whether GB
are 2^30 or 1e9 bytes is not stated.

Within {WITHIN:.0%}: {within(found, measured, WITHIN)} if GB are GiB; {decimal} if they are 1e9 bytes. Where
our lists hold fewer micro-batches than the paper counts (`v-half` with a spread vocabulary, next section),
what is predicted is that much below what their lists held. By place, if GB are GiB:

{_by_place(known)}
{"".join(tables)}"""
    inside = sum(abs(gib / gb - 1) <= WITHIN for gib, gb in zip(found, measured, strict=True))
    what = f"peaks of Vocabulary Parallelism's runs within {WITHIN:.0%}, GB taken as GiB"
    target = Target(what, f"{len(known)}", f"{inside} of {len(known)}", inside == len(known))
    return Section("Vocabulary Parallelism's runs: memory", text, (target,))


def _by_place(runs: Sequence[Placed]) -> str:
    ordered = sorted(runs, key=lambda run: (run.of.schedule, PLACES.index(run.place)))
    rows = []
    for (schedule, place), found in groupby(ordered, key=lambda run: (run.of.schedule, run.place)):
        pairs = [(run.of.memory_gib, run.of.run.memory_gib or 0) for run in found]
        rows.append([schedule, place, within(*map(list, zip(*pairs, strict=True)), WITHIN)])
    return table(["schedule", "place", f"within {WITHIN:.0%}"], rows)


def _places(groups: Sequence[Sequence[Placed]]) -> str:
    rows = [[*names(group), *map(_cell, group)] for group in groups]
    return table(["P", "seq", "vocabulary", *(run.place for run in groups[0])], rows)


def _cell(run: Placed) -> str:
    peak = run.of.run.memory_gib
    return f"{'oom' if peak is None else f'{peak:.1f}'} / {run.of.memory_gib:.1f}"


def in_flight(groups: Sequence[Sequence[Placed]]) -> Section:
    """Micro-batches on the rank that has most, in lists and in the closed form that memory is predicted with."""

    def key(run: Placed) -> tuple[str, int, int]:
        return run.of.schedule, PLACES.index(run.place), run.shape[0]

    runs = sorted((run for group in groups for run in group), key=key)
    rows = []
    for (schedule, place, ranks), found in groupby(runs, key=key):
        of_place = list(found)
        counts = sorted({run.in_flight for run in of_place})
        words = f"{counts[0]:g}" if len(counts) == 1 else f"{counts[0]:g} to {counts[-1]:g}"
        rows.append([schedule, PLACES[place], ranks, words, f"{published(of_place[0]):g}"])
    text = f"""\
Micro-batches in flight on the rank that has most, counted in the lists (over sequences and vocabularies)
beside the paper's count: what the schedule holds by itself and one micro-batch more for each barrier, or
half as much more where S and T run on all ranks at once.

{table(["schedule", "place", "P", "lists", "paper"], rows)}"""
    return Section("Vocabulary Parallelism's runs: micro-batches in flight", text)


def published(run: Placed) -> float:
    """What the schedule holds by itself, and what a spread vocabulary adds by the paper."""
    ranks, micro_batches, chunks = run.shape
    own = max(map(most_in_flight, SCHEDULES[run.of.schedule].lists(ranks, micro_batches, chunks))) / chunks
    form = FORMS.get(run.place)
    if form is None:
        return own
    return min(micro_batches, 1.5 * own if form.exposed else own + form.barriers)
