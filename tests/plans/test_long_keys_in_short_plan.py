"""Keys of the long form, or of a later release, in a short plan."""

import pytest

from meshwright.errors import InputError
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.forms.short import ShortPlan

SHORT = {
    "plan": 1,
    "model": "llama-3.1-8b",
    "cluster": "h100-sxm-80gb x 8",
    "workload": {"seq_len": 4096, "global_batch": 64},
}


@pytest.mark.parametrize(
    ("section", "field", "rule"),
    [
        ({"groups": {}}, "groups", "long form"),
        ({"states": {}}, "states", "long form"),
        ({"pipeline": {"placement": [0]}}, "pipeline.placement", "long form"),
        ({"layout": {"grid": {}}}, "layout.grid", "long form"),
        ({"layout": {"batch_share": [2, 1]}}, "layout.batch_share", "long form"),
        ({"layout": {"state_share": [2, 1]}}, "layout.state_share", "long form"),
        ({"calls": {}}, "calls", "not supported yet"),
        ({"group": {}}, "group", "unknown key"),
    ],
)
def test_refused_by_name(section, field, rule):
    with pytest.raises(InputError) as caught:
        validated(ShortPlan, SHORT | section)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert rule in problem.rule
