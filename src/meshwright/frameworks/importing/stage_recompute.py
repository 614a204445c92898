"""Read options that recompute the first layers of each stage, as ranges of layers of a plan."""

from meshwright.frameworks.importing.imported_file import RECOMPUTED_FIRST, ImportedFile
from meshwright.model.architecture import Architecture
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.first_recomputed import first_recomputed
from meshwright.plans.layers.layer_assignment import stage_layers
from meshwright.plans.layers.recompute_by_layer import with_layer_recomputes


def with_recomputed_layers(
    foreign: ImportedFile, plan: ShortPlan | LongPlan, arch: Architecture
) -> ShortPlan | LongPlan:
    """Return the plan with the file's recomputed layers: in short where all layers come out alike."""
    first = foreign.value(RECOMPUTED_FIRST)
    if first is None or foreign.value("recompute") != "full":
        return plan
    long = plan if isinstance(plan, LongPlan) else expand(plan, arch)
    of_layers = first_recomputed(
        stage_layers(long.pipeline, arch.layers), arch.main_layers, arch.layers, first
    )
    if isinstance(plan, ShortPlan) and len(set(of_layers)) == 1:
        return plan.model_copy(update={"recompute": of_layers[0]})
    return with_layer_recomputes(long, of_layers)
