"""What it means that a plan computes and exchanges what one device computes."""

from meshwright.runtime.verify.outcome import DOUBTFUL
from meshwright.runtime.verify.tried import no_fault, tried


def equal_to_one_device(plan, change=no_fault):
    """Run it; ``change`` is made in every rank before."""
    outcome = tried(plan.trial(), lambda what, part: None, change)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL
