"""Rules on validation of an optimizer step against the global gradient norm, before or after the step."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.stack.stack import OWN_STACK

FIELD = "pipeline.schedule.step_validation"


def validation_in_pipeline(case: RuleInput) -> Iterator[Problem]:
    """Only where there are several pipeline ranks does one of them step before it knows what the others have."""
    validation = case.plan.choice.step_validation
    if validation == "after" and case.pp == 1:
        rule = "the norm comes from rank to rank of a pipeline, and pp = 1"
        yield Problem(FIELD, validation, rule, "pp: 2, or take it out")


def validation_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse a kind of step validation that the stack does not have."""
    validation, stack = case.plan.choice.step_validation, case.stack
    if validation is not None and validation not in stack.step_validations:
        rule = f"{stack.id} knows the norm of all gradients before it steps, always"
        yield Problem(FIELD, validation, rule, f"take it out, or stack: {OWN_STACK}")


def tied_embedding_delays_ends(case: RuleInput) -> Iterator[Problem]:
    """Where the first and the last rank add up the gradient of one table, both wait for it all the same."""
    plan = case.plan
    first, last = (plan.pipeline.placement[end] for end in (0, -1))
    if plan.choice.step_validation != "after" or first == last or plan.choice.form is not None:
        return
    if case.arch.tied_embeddings:
        rule = f"pipeline ranks {first} and {last} add up the shared table's gradient before their step"
        hint = "a schedule that has both ends on one rank (zb-v), or little to gain"
        yield Problem(FIELD, "after", rule, hint, "warning")


STEP_RULES: tuple[Rule, ...] = (validation_in_pipeline, tied_embedding_delays_ends)
