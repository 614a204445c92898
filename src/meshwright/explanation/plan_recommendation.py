"""Find the recommended plan for the model, cluster and workload of another plan."""

from pathlib import Path

from meshwright.explanation.plan_difference import USUAL, ExplainedPlan, legal_plan
from meshwright.plans.resolve import Resolved
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer

RECOMMENDED = "recommended"


def is_recommended(name: object) -> bool:
    """Return true if a name stands for the recommended plan: there is no such file."""
    return isinstance(name, str | Path) and str(name) == RECOMMENDED and not Path(name).exists()


def recommended(own: Resolved) -> Resolved:
    """Return the recommended plan of the same model, cluster, workload and stack. Raises InfeasibleError."""
    header = ExplainedPlan.of(own).header
    first = answer(PlanRequest(header, top=1), own.setting).proposals[0]
    found = legal_plan(first.plan, USUAL, own.setting)
    assert isinstance(found, Resolved), found
    return found
