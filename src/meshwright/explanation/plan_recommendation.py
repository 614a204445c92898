"""Find the recommended plan for the model, cluster and workload of another plan."""

from pathlib import Path

from meshwright.explanation.plan_difference import USUAL, legal_plan
from meshwright.plans.forms.conversion import short_of_only_layout
from meshwright.plans.layers.plan_of_layout import plan_of_main_layout
from meshwright.plans.resolve import Resolved
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, answer
from meshwright.verbs.predict.predict_plan import closed_form_plan

RECOMMENDED = "recommended"


def is_recommended(name: object) -> bool:
    """Return true if a name stands for the recommended plan: there is no such file."""
    return isinstance(name, str | Path) and str(name) == RECOMMENDED and not Path(name).exists()


def same_question(own: Resolved) -> PlanAnswer:
    """Search the plans for the same model, cluster, workload and stack. Raises InfeasibleError."""
    header = closed_form_plan(own) or short_of_only_layout(plan_of_main_layout(own.long))
    return answer(PlanRequest(header, top=1), own.setting)


def recommended(own: Resolved) -> Resolved:
    """Return the recommended plan of the same model, cluster, workload and stack. Raises InfeasibleError."""
    first = same_question(own).proposals[0]
    found = legal_plan(first.plan, USUAL, own.setting)
    assert isinstance(found, Resolved), found
    return found
