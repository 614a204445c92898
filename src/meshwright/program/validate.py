"""Is this Program sound? Every problem at once; a lowered legal plan has none (property test).

The rules look at coverage (stages, states, passes), dependencies, messages and deadlock, what surrounds the
schedule, and memory in flight. They count for themselves what ``lower.py`` builds, so that a mistake there does not
hide here. What they do not look at: times, and whether the plan fits into memory.
"""

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.model.spread import with_spread_vocabulary
from meshwright.program.case import Case, Rule
from meshwright.program.check_copies import COPY_RULES
from meshwright.program.check_lists import LIST_RULES
from meshwright.program.check_states import STATE_RULES
from meshwright.program.check_step import STEP_RULES
from meshwright.program.program import Program

RULES: tuple[Rule, ...] = (*STATE_RULES, *LIST_RULES, *STEP_RULES, *COPY_RULES)


def validate(program: Program, model: ModelGraph) -> list[Problem]:
    """Everything that is wrong with a Program; empty for a good one."""
    case = Case(program, model if program.vocabulary is None else with_spread_vocabulary(model))
    return [problem for rule in RULES for problem in rule(case)]
