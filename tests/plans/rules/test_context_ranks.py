"""A form whose ranks come in multiples is refused with other numbers of ranks, by `check` and by a search alike."""

from dataclasses import replace

import numpy as np
import pytest
from plan_cases import DENSE, STACK, cluster, graph, long_plan, short_plan

from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.choices.context import context
from meshwright.plans.choices.plan_choice import ChoiceRuleInput
from meshwright.plans.context_parallel import Context
from meshwright.plans.context_parallel_forms import CONTEXT_FORMS
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.setting import Setting

DEGREES = (1, 2, 4, 8)


@pytest.mark.parametrize("form", [Context(), Context(ulysses=2)], ids=str)
def test_a_form_has_a_multiple_of_its_ranks(monkeypatch, form):
    monkeypatch.setitem(CONTEXT_FORMS, "ring", replace(CONTEXT_FORMS["ring"], ring_multiple=4))
    stack = replace(STACK, contexts=("ring", "ring+ulysses"))
    layouts = [{"dp_shard": 64 // cp, "cp": cp, "context": form} for cp in DEGREES]
    model, nodes = graph(DENSE), cluster(64)
    plans = [long_plan(layout) for layout in layouts]
    checked = [
        not any("multiple of 4 ranks" in problem.rule for problem in check_plan(plan, model, nodes, stack))
        for plan in plans
    ]
    setting = Setting.of(model, nodes, workload_of(plans[0]), stack)
    arrays = from_shorts([short_plan(layout) for layout in layouts])
    given = ChoiceRuleInput(arrays, setting, {"context": (form,)})
    masks = [mask for reason, mask in context.searched.rule(given, form) if "multiple of 4" in reason]
    assert len(masks) == 1
    ranks = [cp // form.ulysses if cp > 1 else 1 for cp in DEGREES]
    assert checked == [count in (0, 1) or count % 4 == 0 for count in ranks]
    np.testing.assert_array_equal(masks[0], checked)
