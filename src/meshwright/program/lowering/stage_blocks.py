"""The blocks of each stage: the plan's partition of the layers, embedding and encoder first, head last."""

from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.layers.layer_assignment import StageLayers, stage_layers
from meshwright.program.program import Stage


def place_stages(plan: LongPlan, model: ModelGraph) -> tuple[Stage, ...]:
    """Stages in order of the data's way, chain by chain, each with its pipeline rank."""
    contents = stage_layers(plan.pipeline, len(model.layer_blocks))
    return tuple(
        Stage(index, rank, stage_blocks(content, model), tuple(range(content.first, content.last)))
        for index, (content, rank) in enumerate(zip(contents, plan.pipeline.placement, strict=True))
    )


def stage_blocks(content: StageLayers, model: ModelGraph) -> tuple[int, ...]:
    """Return the indices of one stage's blocks in the model, in forward order."""
    embed = (model.chain[0][0], *model.encoder_blocks) if content.embed else ()
    head = (model.chain[-1][0],) if content.head else ()
    return embed + model.layer_blocks[content.first : content.last] + head
