"""Plans with a form of context parallelism that does not fit: (plan, about, field, rule, suggestion)."""

from dataclasses import replace

from plan_cases import STACK, long_plan

CONTEXTS = replace(STACK, contexts=("ring", "ulysses", "ring+ulysses"))
CONTEXT_CASES = [
    (
        long_plan({"cp": 64}, workload={"seq_len": 4100}),
        {},
        "workload.seq_len",
        "seq_len % (2·cp) = 4100 % 128 = 4 ≠ 0",
        "seq_len: 4096",
    ),
    (
        long_plan({"cp": 64, "context": {"form": "ring", "ulysses": 3}}),
        {"stack": CONTEXTS},
        "layout.context.ulysses",
        "cp % ulysses = 64 % 3 = 1 ≠ 0",
        "context: ring+ulysses2",
    ),
    (
        long_plan({"dp_shard": 8, "cp": 8, "context": {"form": "ring", "ulysses": 8}}),
        {"stack": CONTEXTS},
        "layout.context.ulysses",
        "ulysses 8 is all of cp",
        "context: ulysses",
    ),
    (
        long_plan({"dp_shard": 8, "cp": 8, "context": {"form": "ulysses", "ulysses": 8}}),
        {"stack": CONTEXTS},
        "layout.context.ulysses",
        "form ulysses is over all of cp",
        "leave it out",
    ),
    (
        long_plan({"cp": 64, "context": "ulysses"}),
        {"stack": CONTEXTS},
        "layout.context",
        "kv_heads/tp % ulysses = 8/1 % 64 = 8 ≠ 0",
        "context: ring+ulysses8",
    ),
    (
        long_plan({"dp_shard": 32, "cp": 2, "context": "rsa"}),
        {"stack": CONTEXTS},
        "layout.context",
        "test-stack@1.0 has ring, ulysses, ring+ulysses",
        "context: ring",
    ),
    (
        long_plan({"dp_shard": 32, "cp": 2, "context": {"pieces": "contiguous"}}),
        {"stack": CONTEXTS},
        "layout.context.pieces",
        "test-stack@1.0 cuts sequences into pieces head-tail",
        "pieces: head-tail",
    ),
    (
        long_plan({"cp": 64, "context": {"form": "ring", "ulysses": 8}}, workload={"seq_len": 4104}),
        {"stack": CONTEXTS},
        "workload.seq_len",
        "seq_len % (2·cp/ulysses) = 4104 % 16 = 8 ≠ 0",
        "seq_len: 4096",
    ),
    (
        long_plan({"dp_shard": 8, "cp": 8, "context": "ulysses"}, workload={"seq_len": 4100}),
        {"stack": CONTEXTS},
        "workload.seq_len",
        "seq_len % cp = 4100 % 8 = 4 ≠ 0",
        "seq_len: 4096",
    ),
    (
        long_plan({"dp_shard": 32, "tp": 2}),
        {"stack": replace(STACK, sequence_parallel=False)},
        "layout.sequence_parallel",
        "has no sequence parallelism",
        "sequence_parallel: false",
    ),
]
