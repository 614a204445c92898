"""Plans whose workload says of routing what no model of theirs can do: (plan, about, field, rule, suggestion)."""

from dataclasses import replace

from plan_cases import SPARSE, STACK, long_plan

FIELD, CAPACITY = "workload.routing", "workload.capacity"
OF_EXPERTS = {"architecture": SPARSE}


def bounded(capacity, layout=None):
    return long_plan(layout or {"dp_shard": 64}, workload={"capacity": capacity})


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
    (
        long_plan({"dp_shard": 64, "ep": 8, "expert_order": ((7, 6, 5, 4, 3, 2, 1, 1),)}),
        {"architecture": SPARSE},
        "layout.expert_order",
        "row 0 must name each of the experts 0 to 7 once",
        "",
    ),
    (
        bounded({"factor": 1.0}),
        {},
        CAPACITY,
        "the model has no experts",
        "leave it out",
    ),
    (
        bounded({"factor": 5.0, "pad": True}),
        OF_EXPERTS,
        f"{CAPACITY}.factor",
        "above experts / experts of a token = 8 / 2 = 4 a padded expert has more places than there are tokens",
        "4 or less, or pad: false",
    ),
    (
        bounded({"factor": 1.0}),
        OF_EXPERTS | {"stack": replace(STACK, capacity_scopes=())},
        CAPACITY,
        f"{STACK.id} gives experts all tokens that chose them",
        "leave it out, or another stack",
    ),
    (
        bounded({"factor": 1.0, "scope": "sequence"}),
        OF_EXPERTS | {"stack": replace(STACK, capacity_scopes=("rank",))},
        f"{CAPACITY}.scope",
        f"{STACK.id} does not count the tokens of a sequence",
        "one of rank",
    ),
    (
        bounded({"factor": 1.0, "pad": True}),
        OF_EXPERTS | {"stack": replace(STACK, capacity_scopes=("rank",), deduplicates_exchange=True)},
        f"{CAPACITY}.pad",
        "an exchange that sends a token once to a node does not pad",
        "pad: false",
    ),
    (
        bounded({"factor": 1.0, "pad": True, "scope": "sequence"}, {"dp_shard": 16, "cp": 2, "tp": 2}),
        OF_EXPERTS | {"stack": replace(STACK, capacity_scopes=("rank", "sequence"))},
        f"{CAPACITY}.pad",
        "cp·tp = 2·2 ranks share a sequence, and none knows what is left to fill",
        "pad: false, or scope: rank",
    ),
]
