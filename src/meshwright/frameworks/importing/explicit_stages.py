"""Stages that a file writes out, as stages of a plan: in short where they are the usual ones, in full otherwise."""

from itertools import accumulate

from meshwright.errors import Problem
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, ImportedFile, Stage
from meshwright.model.architecture import Architecture
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.layer_assignment import stage_layers


def uneven_stages(
    foreign: ImportedFile, short: ShortPlan, long: LongPlan, arch: Architecture, problems: list[Problem]
) -> ShortPlan | LongPlan | None:
    """Return the plan with the file's stages; None and a problem where they do not hold the model's layers."""
    stages = _with_further(foreign, arch, len(long.pipeline.placement))
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


def spread_layers(foreign: ImportedFile, arch: Architecture) -> int:
    """Return the number of layers that the framework spreads over stages, without multi-token prediction layers."""
    return arch.main_layers if foreign.value(NEXT_LAYERS) else arch.layers


def _with_further(foreign: ImportedFile, arch: Architecture, count: int) -> tuple[Stage, ...] | None:
    """Return the file's stages; multi-token prediction layers are in the last one unless the file places them."""
    stages: tuple[Stage, ...] | None = foreign.value("stages")
    main = spread_layers(foreign, arch)
    if main == arch.layers:
        return stages and tuple(stage._replace(further=0) for stage in stages)
    if not stages and main % count == 0:
        stages = tuple(Stage(i == 0, main // count, i == count - 1) for i in range(count))
    if stages and not any(stage.further for stage in stages):
        stages = (*stages[:-1], stages[-1]._replace(further=arch.next_token_layers))
    return stages and tuple(Stage(s.embed, s.layers + s.further, s.head) for s in stages)


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
