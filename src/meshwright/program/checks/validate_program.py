"""Check that a Program is sound. Reports every problem at once; a lowered legal plan has none (property test).

The rules look at coverage (stages, states, passes), dependencies, messages and deadlock, what surrounds the
schedule, copies of activations, and memory in flight. They count for themselves what
``program/lowering/lower_plan.py`` builds, so that a mistake there does not hide here. What they do not look at:
times, and whether the plan fits into memory.
"""

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph, Recomputed
from meshwright.model.transforms.blocks_by_layout import with_layouts
from meshwright.model.transforms.norm_kernels import with_fused_norms
from meshwright.model.transforms.recomputed_layers import with_recompute
from meshwright.model.transforms.vocabulary_parallel import with_vocabulary_parallel
from meshwright.program.checks.action_lists import LIST_RULES
from meshwright.program.checks.bidirectional_copies import COPY_RULES
from meshwright.program.checks.checked_program import CheckedProgram, Rule
from meshwright.program.checks.layers_and_states import STATE_RULES
from meshwright.program.checks.offload_order import OFFLOAD_RULES
from meshwright.program.checks.step_actions import STEP_RULES
from meshwright.program.program import Program

RULES: tuple[Rule, ...] = (*STATE_RULES, *LIST_RULES, *STEP_RULES, *COPY_RULES, *OFFLOAD_RULES)


def validate(program: Program, model: ModelGraph) -> list[Problem]:
    """Everything that is wrong with a Program; empty for a good one."""
    fused = with_fused_norms(model, program.stack.norm_products)
    planned = with_recompute(fused, _recomputed(program, len(model.layer_blocks)))
    planned, _ = with_layouts(planned, _layouts(program, len(model.layer_blocks)))
    case = CheckedProgram(
        program, planned if program.vocabulary is None else with_vocabulary_parallel(planned)
    )
    return [problem for rule in RULES for problem in rule(case)]


def _layouts(program: Program, layers: int) -> list[str]:
    """Return the layouts of the first block, of each layer and of the last block in this Program."""
    found: dict[int, int] = {}
    for stage in program.stages:
        of_layers = (block for block in stage.blocks if program.blocks[block].kind == "layer")
        found |= dict(zip(stage.layers, of_layers, strict=False))
    first, last = program.stages[0].blocks[0], program.stages[-1].blocks[-1]
    blocks = (first, *(found.get(layer, first) for layer in range(layers)), last)
    return [program.parts.of(block).name for block in blocks]


def _recomputed(program: Program, layers: int) -> list[Recomputed]:
    """Return the recomputation of each layer in this Program; empty for a layer in no stage."""
    found: dict[int, Recomputed] = {}
    for stage in program.stages:
        blocks = (program.blocks[index] for index in stage.blocks)
        runs_again = (block.recompute for block in blocks if block.kind == "layer")
        found |= dict(zip(stage.layers, runs_again, strict=False))
    return [found.get(layer, ()) for layer in range(layers)]
