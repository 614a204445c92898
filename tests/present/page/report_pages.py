"""Reports of plans for the tests of their pages."""

from functools import cache

from meshwright.explanation.report.report_document import ReportRequest, report_document
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.verbs.predict.predict_plan import predicted

SMALL = {
    "plan": 1,
    "model": "llama-3.1-8b",
    "cluster": "h100-sxm-80gb x 8",
    "workload": {"seq_len": 4096, "global_batch": 32},
    "stack": "megatron-core",
    "layout": {"pp": 2, "dp_shard": 2, "tp": 2},
    "sharding": "zero1",
}


@cache
def document(search: bool = True):
    """The report's document of a small plan."""
    resolved = resolve(ShortPlan.model_validate(SMALL))
    request = ReportRequest("plan.yaml", resolved, predicted(resolved), search=search)
    return report_document(request, lambda what, part: None)
