"""The pictures of docs/schedules.md by file name: each schedule, four on one time axis, a spread vocabulary."""

from dataclasses import replace

from compare_placements import stage_times
from schedule_pages import SMALL, played

from meshwright.present.schedule_picture import Panel, schedule_svg, schedules_svg
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.timeline import run
from meshwright.schedules.vocabulary import FORMS
from meshwright.schedules.vocabulary.pass_times import PassTimes, durations

TOGETHER = ("gpipe", "1f1b", "zb-h1", "zb-h2")
LAYERS = (2, 2, 2, 2)
LAYER, HEAD = PassTimes(1, 1, 1), PassTimes(2, 2, 2)
SPREAD = "vocab-2"


def pictures() -> dict[str, str]:
    """File name → SVG; the same text whenever schedules are the same."""
    alone = {f"{name}.svg": _alone(name) for name in SCHEDULES}
    return alone | {"together.svg": _together(), "vocabulary.svg": _vocabulary()}


def _alone(name: str) -> str:
    found = played(name)
    made = found.made
    return schedule_svg(
        made.lists, found.timeline, made.shape.ways, title=found.title, subtitle=_words(name), kept=made.kept
    )


def _words(name: str) -> str:
    figures = played(name).figures
    return (
        f"F = I = W = 1 on a whole rank, no messages: makespan {figures.makespan:g}, "
        f"bubble {figures.bubble_rate:.1%} of the work"
    )


def _together() -> str:
    panels = [
        Panel(
            lists=played(name).made.lists,
            timeline=played(name).timeline,
            ways=played(name).made.shape.ways,
            title=name,
            subtitle=_words(name),
        )
        for name in TOGETHER
    ]
    return schedules_svg(panels, title=f"{SMALL.stages} ranks, {SMALL.micro_batches} micro-batches")


def _vocabulary() -> str:
    """1F1B with a head of two layers behind the last stage, and with a quarter of it on every rank."""
    title = f"1f1b: {sum(LAYERS)} layers, and a head that takes as long as {HEAD.forward:g} of them"
    return schedules_svg([_at_ends(), _spread()], title=title)


def _at_ends() -> Panel:
    kind, times = SCHEDULES["1f1b"], stage_times(LAYERS, LAYER, HEAD)
    lists = kind.lists(len(LAYERS), SMALL.micro_batches or 0, 1)
    ways = kind.ways(len(LAYERS), 1)
    timeline = run(lists, durations(times), 0, ways)
    return Panel(lists=lists, timeline=timeline, ways=ways, title="ends: the head in the last stage")


def _spread() -> Panel:
    kind, form, ranks = SCHEDULES["1f1b"], FORMS[SPREAD], len(LAYERS)
    times, share = stage_times(LAYERS, LAYER), form.share(HEAD, ranks)
    pipeline = replace(kind.pipeline(ranks, SMALL.micro_batches or 0, 1), times=times)
    usual = kind.lists(ranks, pipeline.micro_batches, 1)
    lists = form.lists(usual, pipeline, kind.ways(ranks, 1), share)
    ways = form.ways(kind.ways(ranks, 1), ranks)
    timeline = run(lists, durations(times, share), 0, ways)
    return Panel(lists=lists, timeline=timeline, ways=ways, title=f"{SPREAD}: a part of it on every rank")
