"""Mamba-2 layers: what cuts their sequences or their heads unevenly is refused by name, all at once."""

import pytest

from meshwright.cluster.load import load_cluster
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.stack_limits import broken_by_every_plan
from meshwright.plans.rules.state_space_layers import NO_CONTEXT
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.stack.load import load_stack
from meshwright.workload.packed_documents import Documents
from meshwright.workload.workload import Workload

CLUSTER = "h100-sxm-80gb x 16"


def problems(model="granite-4.0-h-micro", stack="meshwright", workload=(), **layout):
    data = {
        "plan": 1,
        "model": model,
        "cluster": CLUSTER,
        "workload": {"seq_len": 4096, "global_batch": 64, **dict(workload)},
        "layout": layout,
    }
    graph = load_model(model)
    plan = expand(ShortPlan.model_validate(data), graph.architecture)
    return check_plan(plan, graph, load_cluster(CLUSTER), load_stack(stack), stack_binds=False)


def setting(**workload):
    asked = Workload(seq_len=4096, global_batch=64, **workload)
    return Setting(load_model("granite-4.0-h-micro"), load_cluster(CLUSTER), asked, load_stack("meshwright"))


@pytest.mark.parametrize(
    "layout",
    [{"dp_replicate": 16}, {"tp": 8, "dp_replicate": 2}, {"pp": 4, "tp": 4, "sequence_parallel": True}],
)
def test_heads_stages_and_replicas_may_be_cut(layout):
    assert [one for one in problems(**layout) if one.severity == "error"] == []


def test_context_parallelism_and_documents_are_refused_together():
    found = problems(cp=2, dp_replicate=8, workload={"documents": 1000})
    cp, documents = (one for one in found if one.severity == "error")
    assert (cp.field, cp.value) == ("layout.cp", 2)
    assert "cp = 2 must be 1" in cp.rule
    assert cp.suggestion.startswith("cp: 1")
    assert documents.field == "workload.documents"
    assert "Mamba-2" in documents.rule


def test_tp_divides_the_heads_of_mamba():
    rules = [one.rule for one in problems("granite-4.0-h-350m", tp=3, dp_replicate=5)]
    assert not any("Mamba-2 heads" in rule for rule in rules)
    rules = [one.rule for one in problems("granite-4.0-h-350m", tp=32)]
    assert any("Mamba-2 heads % tp = 48 % 32 = 16" in rule for rule in rules)


def test_a_search_counts_cp_and_has_none_of_its_plans():
    space = enumerate_space(setting())
    assert set(space.base.cp) == {1}
    assert any(NO_CONTEXT in reason for reason in space.rejected)


def test_a_question_with_documents_is_refused():
    asked = setting(documents=Documents((1000,)))
    assert [problem.field for problem in broken_by_every_plan(asked)] == ["workload.documents"]
