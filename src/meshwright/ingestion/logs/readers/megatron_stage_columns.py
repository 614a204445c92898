"""The layers of every stage if Megatron's options make them unequal, as a cell of a table of runs.

A layout lists them all. Without one, multi-token-prediction layers are in the last of equal stages.
"""

from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.megatron.importing.pipeline_layout import read_layout
from meshwright.ingestion.logs.events import Settings, first_text, is_on, whole
from meshwright.ingestion.logs.readers.megatron_model_columns import Found
from meshwright.validation.cell_parsers import stage_layers_text

LAYOUT, FURTHER = "pipeline_model_parallel_layout", "mtp_num_layers"
ENDS = (
    *("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"),
    *("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"),
)
ACCOUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def is_uneven(settings: Settings) -> bool:
    """Return whether an option makes stages unequal."""
    stages_given = any(first_text(settings, name) for name in (LAYOUT, *ENDS))
    return stages_given or any(is_on(settings, name) for name in ACCOUNTED)


def stage_columns(settings: Settings) -> Found:
    """Yield ``stage_layers`` if stages are unequal and the options give the length of each."""
    layout = first_text(settings, LAYOUT)
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
    return [stage.layers + stage.further for stage in read_layout(GivenOption(LAYOUT, (layout,), 0), [])]


def _with_further(settings: Settings) -> list[int]:
    """Return the layers of equal stages, with multi-token-prediction layers in the last."""
    layers, further = whole(settings, "num_layers"), whole(settings, FURTHER)
    stages = (whole(settings, "pipeline_model_parallel_size") or 1) * (
        whole(settings, "virtual_pipeline_model_parallel_size") or 1
    )
    if not layers or not further or stages == 1 or layers % stages:
        return []
    return [*[layers // stages] * (stages - 1), layers // stages + further]
