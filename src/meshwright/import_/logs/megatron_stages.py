"""Layers of every stage, where Megatron's options make them unequal, as a cell of a table of runs.

A layout says them all. Layers that predict further tokens are in the last of equal stages where there is none.
"""

from meshwright.import_.command_line import Given
from meshwright.import_.foreign import Fact
from meshwright.import_.logs.events import Settings, is_on, said, whole
from meshwright.import_.logs.megatron_model import Found
from meshwright.import_.megatron_layout import read_layout
from meshwright.validation.cells import stage_layers_text

LAYOUT, FURTHER = "pipeline_model_parallel_layout", "mtp_num_layers"
ENDS = (
    *("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"),
    *("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"),
)
ACCOUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def is_uneven(settings: Settings) -> bool:
    """Whether an option asks for stages that are not alike."""
    asked = any(said(settings, name) for name in (LAYOUT, *ENDS))
    return asked or any(is_on(settings, name) for name in ACCOUNTED)


def stage_cells(settings: Settings) -> Found:
    """``stage_layers`` where stages are not alike and the options say how long each is."""
    layout = said(settings, LAYOUT)
    held = _of_layout(layout) if layout else [] if is_uneven(settings) else _with_further(settings)
    if (
        held
        and min(held) > 0
        and sum(held) == sum(whole(settings, name) or 0 for name in ("num_layers", FURTHER))
    ):
        words = (
            f"{LAYOUT} {layout}"
            if layout
            else f"{FURTHER} {settings[FURTHER]} in the last of {len(held)} stages"
        )
        yield "stage_layers", Fact(stage_layers_text(held), words)


def _of_layout(layout: str) -> list[int]:
    return [stage.layers + stage.further for stage in read_layout(Given(LAYOUT, (layout,), 0), [])]


def _with_further(settings: Settings) -> list[int]:
    """Equal stages of the main model, what predicts further tokens behind the last."""
    layers, further = whole(settings, "num_layers"), whole(settings, FURTHER)
    stages = (whole(settings, "pipeline_model_parallel_size") or 1) * (
        whole(settings, "virtual_pipeline_model_parallel_size") or 1
    )
    if not layers or not further or stages == 1 or layers % stages:
        return []
    return [*[layers // stages] * (stages - 1), layers // stages + further]
