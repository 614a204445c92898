"""Stages that a file writes out, as stages of a plan: in short where they are the usual ones, in full otherwise."""

from itertools import accumulate

from meshwright.errors import Problem
from meshwright.import_.foreign import Foreign, Stage
from meshwright.model.architecture import Architecture
from meshwright.plan.layers import stage_layers
from meshwright.plan.long import LongPlan
from meshwright.plan.short import ShortPlan


def uneven_stages(
    foreign: Foreign, short: ShortPlan, long: LongPlan, arch: Architecture, problems: list[Problem]
) -> ShortPlan | LongPlan | None:
    """The plan with the file's stages; None and a problem where they do not hold the model's layers."""
    stages: tuple[Stage, ...] | None = foreign.value("stages")
    if not stages:
        return short
    held = sum(stage.layers for stage in stages)
    if held != arch.layers:
        rule = f"the stages hold {held} layers, the model has {arch.layers}"
        problems.append(
            Problem(
                foreign.words("stages").split(" ")[0], held, rule, f"{arch.layers - held:+} layers in all"
            )
        )
        return None
    if len(stages) != len(long.pipeline.placement):
        rule = f"{len(stages)} stages do not fill pp = {short.layout.pp} ranks evenly"
        problems.append(
            Problem(
                foreign.words("stages").split(" ")[0],
                len(stages),
                rule,
                f"{max(1, round(len(stages) / short.layout.pp)) * short.layout.pp} stages",
            )
        )
        return None
    usual = [Stage(s.embed, s.count, s.head) for s in stage_layers(long.pipeline, arch.layers)]
    if usual == list(stages):
        return short
    written = long.pipeline.model_copy(update={"stages": stage_texts(stages)})
    return long.model_copy(update={"pipeline": written})


def stage_texts(stages: tuple[Stage, ...]) -> tuple[tuple[str, ...], ...]:
    """``[[embed, 0..7], [8..15, head]]``: what each stage holds, as a plan writes it."""
    ends = list(accumulate(stage.layers for stage in stages))
    return tuple(
        (
            *(("embed",) if stage.embed else ()),
            *_range(end - stage.layers, end),
            *(("head",) if stage.head else ()),
        )
        for stage, end in zip(stages, ends, strict=True)
    )


def _range(first: int, end: int) -> tuple[str, ...]:
    if first == end:
        return ()
    return (str(first),) if end - first == 1 else (f"{first}..{end - 1}",)
