"""Plans whose workload says of routing what no model of theirs can do: (plan, about, field, rule, suggestion)."""

from plan_cases import SPARSE, long_plan

FIELD = "workload.routing"
OF_EXPERTS = {"architecture": SPARSE}
ROUTING_CASES = [
    (
        long_plan({"dp_shard": 64}, workload={"routing": 0.5}),
        {},
        FIELD,
        "the model has no experts",
        "leave it out",
    ),
    (
        long_plan({"dp_shard": 64}, workload={"routing": ((1.0, 2.0),)}),
        OF_EXPERTS,
        FIELD,
        "has counts of 2 experts, the model has 8",
        "8 numbers in each row",
    ),
    (
        long_plan({"dp_shard": 64}, workload={"routing": ((1.0,) * 8,) * 3}),
        OF_EXPERTS,
        FIELD,
        "has 3 rows, the model has 16 routed layers",
        "16 rows, or one for all",
    ),
    (
        long_plan({"dp_shard": 64, "ep": 8, "expert_order": ((7, 6, 5, 4, 3, 2, 1, 0),)}),
        OF_EXPERTS,
        "layout.expert_order",
        "test-stack@1.0 has the experts as the model numbers them",
        "stack: meshwright",
    ),
]
