"""Build the closed-form group of one plan with several layouts, for one or many sets of constants.

Layouts, shapes and changes of layout come from the same functions as those of the lowered Program; times and memory
follow from the closed forms that plans with one layout have.
"""

from dataclasses import replace

import numpy as np

from meshwright.cluster.fast_domains import usable_domain
from meshwright.cost.closed_form.group_parts import PlanLayouts
from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.constants_by_row import ConstantCases
from meshwright.cost.operators.price_plans import layout_prices
from meshwright.model.transforms.blocks_by_layout import with_layouts
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.conversion import short_of_only_layout
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.layers.layout_by_layer import layouts_by_block
from meshwright.plans.layers.plan_of_layout import plan_of_main_layout, uneven_batches, uneven_states
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.setting import Setting
from meshwright.program.lowering.lower_plan import recomputed_model
from meshwright.program.lowering.plan_parts import plan_parts
from meshwright.program.lowering.stage_blocks import place_stages
from meshwright.program.lowering.stage_reshards import stage_reshards
from meshwright.stack.state_types import with_types


def layout_group(plan: LongPlan, setting: Setting, cases: ConstantCases | None = None) -> PlanGroup:
    """Return the group of a legal plan: one row, or one for each of the constants in ``cases``."""
    workload, cluster, architecture = setting.workload, setting.cluster, setting.model.architecture
    stack = with_types(setting.stack, workload.precision, plan.written_types, workload.optimizer)
    blocks = recomputed_model(setting.model, layer_recomputes(plan, architecture.layers), stack)
    model, layouts = with_layouts(blocks, layouts_by_block(plan, architecture.layers))
    own = replace(setting, model=model, stack=stack)
    parts = plan_parts(plan, model, layouts, cluster, workload, stack)
    stages, ways = (
        place_stages(plan, model),
        plan.choice.ways(plan.pipeline.ranks, plan.pipeline.virtual_stages),
    )
    reshards = stage_reshards(stages, ways, parts, architecture.hidden, usable_domain(cluster.pool))
    assert not uneven_batches(plan), "plans with uneven shares are simulated"
    assert not uneven_states(plan), "plans with uneven shares are simulated"
    rows = 1 if cases is None else len(cases.of)
    short = short_of_only_layout(plan_of_main_layout(plan))
    return PlanGroup(
        plans=replace(from_shorts([short] * rows), stages=plan.pipeline.stages),
        inverse=np.arange(rows),
        prices=layout_prices(parts, stages, plan.choice, own, cases),
        mode=parts[0].mode,
        setting=own,
        cases=cases,
        layouts=PlanLayouts(parts, reshards, (architecture.vocab, architecture.hidden)),
    )
