"""What a rank holds whole while it runs, unit by unit, is what the ledger of memory counts."""

from dataclasses import replace

import pytest
from covering_plans import BY_UNIT, told

from meshwright.program.model_states.peak_unsharded_stages import peak_unsharded_stages
from meshwright.runtime.executor.interpreter import Interpreter
from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.verify.verify_case import VerifyCase


def watched():
    """In a rank: after every action the stages that are whole or on their way, held against the list's."""
    walk = Interpreter.walk

    def watching(self, batches):
        plan, states, seen = self.plan, self.states, []
        of_stage = {stage: plan.units_of(stage) for stage in plan.stages}

        def hear(action, word):
            parameters = [
                any(unit.whole is not None for unit in units) or stage in states.gathering
                for stage, units in of_stage.items()
            ]
            gradients = [
                any(unit.gradients.flat is not None for unit in units) for units in of_stage.values()
            ]
            seen.append((sum(parameters), sum(gradients) + bool(states.reductions.begun)))

        self.hear = hear
        walk(self, batches)
        actions = plan.program.lists[plan.pipeline_rank]
        listed = peak_unsharded_stages(actions, plan.stages, plan.program.overlapped)
        for which in (0, 1):
            most = max(sum(counts[which]) for counts in listed)
            assert max(found[which] for found in seen) == most, (plan.pipeline_rank, which)

    Interpreter.walk = watching


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("schedule", ["zeropp", "looped-bfs", "interleaved-1f1b"])
def test_a_run_holds_what_the_ledger_counts(schedule):
    plan = replace(BY_UNIT, schedule=schedule, micro_batches=8)
    assert run_case(VerifyCase(*plan.lowered()), lambda what, part: None, watched).caught_by == (), told(plan)
