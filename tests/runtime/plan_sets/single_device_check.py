"""What it means that a plan computes and exchanges what one device computes."""

from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.run_case import no_fault, run_case


def equal_to_one_device(plan, change=no_fault):
    """Run it; ``change`` is made in every rank before."""
    outcome = run_case(plan.trial(), lambda what, part: None, change)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL
