"""What is kept after F, I and W is what the Program's ledger says, to the byte; what is exchanged too."""

from itertools import product

import pytest

pytest.importorskip("torch")

from local_plans import run, small
from step_traffic import TRAFFIC, program_traffic
from tiny_models import tiny

from meshwright.cost.operators.pass_prices import CATEGORY
from meshwright.simulate.memory_ledger import activation_curve, peak_activation_bytes

WATCHED = ("F", "B", "I", "W", "S", "T", "RELOAD")
RECOMPUTES = ("none", "full", ("layernorm",), ("mlp",), ("core_attn",), ("layernorm", "mlp", "core_attn"))


def kept(interpreter):
    """Watch an interpreter: (kind, stage, live bytes of that micro-batch) after every pass."""
    seen = []

    def hear(action, word):
        if word == "end" and action.kind in ("F", "B", "I", "W"):
            run_of = interpreter.running.get((action.stage, action.micro_batch))
            seen.append((action.kind, action.stage, run_of.live_bytes() if run_of else 0))

    interpreter.hear = hear
    return seen


def expected(program, kind, stage):
    after = {"F": program.activation_bytes, "I": program.weight_gradient_bytes}
    return after[kind][stage] if kind in after else 0


def held_against_the_ledger(case):
    *_, seen = run(case, "bf16", probe=kept)
    assert any(seen)
    for kind, stage, found in (row for rank in seen for row in rank):
        assert found == expected(case.program, kind, stage), (kind, stage)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("family", "recompute"), list(product(("llama", "qwen3"), RECOMPUTES)), ids=str)
def test_passes_keep_what_the_ledger_says_under_every_recomputation(family, recompute):
    held_against_the_ledger(small(tiny(family), {"schedule": "zb-h1"}, recompute=recompute, pp=2))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "pipeline", [{"schedule": "zb-h1"}, {"schedule": "interleaved-1f1b", "virtual_stages": 2}], ids=str
)
def test_each_layer_keeps_what_the_ledger_says_of_its_own_recomputation(pipeline):
    of_layers = ("full", "none", ("mlp",), "full", "none")
    case = small(tiny("llama", num_hidden_layers=5), pipeline, recomputes=of_layers, pp=2)
    assert len(set(case.program.activation_bytes)) == len(case.program.stages)
    held_against_the_ledger(case)


CONTEXTS = ("ring", "all-gather", "token-ring", "rsa", {"form": "ring", "ulysses": 2})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_passes_keep_what_the_ledger_says_where_sequences_are_cut(context):
    held_against_the_ledger(small(tiny("llama"), {"schedule": "zb-h1"}, pp=2, cp=4, context=context))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("context", "recompute"), list(product(("ring", CONTEXTS[-1]), ("none", ("core_attn",)))), ids=str
)
def test_linear_attention_keeps_what_enters_the_pieces_of_a_rank(context, recompute):
    plan = {"pp": 2, "cp": 4, "context": context, "recompute": recompute}
    held_against_the_ledger(small(tiny("minimax"), {"schedule": "zb-h1"}, **plan))


OFFLOADS = {
    "1f1b": ({"schedule": "1f1b"}, {"pp": 4}),
    "split": ({"schedule": "zb-h1"}, {"pp": 4, "recompute": ("layernorm", "mlp")}),
    "two stages a rank": ({"schedule": "interleaved-1f1b", "virtual_stages": 2}, {"pp": 2}),
    "in a V": ({"schedule": "v-half", "virtual_stages": 2}, {"pp": 2, "recompute": "full"}),
    "all forward first": ({"schedule": "gpipe"}, {"pp": 1}),
    "over tp": ({"schedule": "1f1b"}, {"pp": 4, "tp": 2, "sequence_parallel": True}),
    "a spread vocabulary": ({"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}}, {"pp": 4}),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("name", "activations"), list(product(OFFLOADS, ("all", 0.5))), ids=str)
def test_a_rank_holds_what_the_ledger_says_while_activations_are_on_the_host(name, activations):
    pipeline, degrees = OFFLOADS[name]
    model = tiny("llama", num_hidden_layers=8, **({"num_key_value_heads": 2} if "tp" in degrees else {}))
    case = small(model, pipeline, offload={"activations": activations}, **degrees)
    lists = case.program.lists
    assert any(action.kind == "OFFLOAD" for actions in lists for action in actions)
    *_, seen = run(case, "bf16", probe=held)
    grid = case.program.parts.only.grid
    for rank, found in enumerate(seen):
        pipeline_rank = grid.coordinates(rank)["pp"]
        curve = dict(reversed(activation_curve(case.program, pipeline_rank)[1:]))
        expected = [curve[at] for at, action in enumerate(lists[pipeline_rank]) if action.kind in WATCHED]
        assert found == expected
        assert max(found) == peak_activation_bytes(case.program, pipeline_rank)


def held(interpreter):
    """Watch an interpreter: bytes of all passes that wait, with those of its share, after each pass and copy back."""
    seen = []

    def hear(action, word):
        if word == "end" and action.kind in WATCHED:
            shares = interpreter.vocabulary.running.values() if interpreter.vocabulary else ()
            seen.append(sum(run.live_bytes() for run in (*interpreter.running.values(), *shares)))

    interpreter.hear = hear
    return seen


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("family", "sequence_parallel"), list(product(("gpt2", "gemma2", "llama"), (True, False)))
)
def test_tensor_parallel_passes_keep_what_the_ledger_says(family, sequence_parallel):
    model, pipeline = tiny(family), {"schedule": "zb-h1"}
    held_against_the_ledger(small(model, pipeline, pp=2, tp=2, sequence_parallel=sequence_parallel))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("family", "recompute"),
    [
        ("mixtral", "none"),
        ("mixtral", "full"),
        ("mixtral", ("moe",)),
        ("mixtral", ("moe", "layernorm")),
        ("mixtral", ("moe_act", "core_attn")),
        ("qwen3_moe", "none"),
        ("gpt_oss", ("moe_act",)),
        ("minimax", "none"),
        ("minimax", "full"),
        ("minimax", ("core_attn", "layernorm")),
    ],
    ids=str,
)
def test_routed_layers_keep_what_the_ledger_says(family, recompute):
    held_against_the_ledger(small(tiny(family), {"schedule": "zb-h1"}, recompute=recompute, pp=2))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "more",
    [
        {"pp": 2},
        {"pp": 2, "recompute": "full"},
        {"pp": 2, "recompute": ("layernorm", "mlp")},
        {"pp": 2, "tp": 2},
        {"pp": 2, "tp": 2, "sequence_parallel": False},
    ],
    ids=str,
)
def test_state_spaces_keep_what_the_ledger_says(more):
    held_against_the_ledger(small(tiny("granitemoehybrid"), {"schedule": "zb-h1"}, **more))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("recompute", ["none", ("moe",), ("moe_act",)], ids=str)
def test_padded_experts_keep_what_the_ledger_says(recompute):
    pipeline, capacity = {"schedule": "zb-h1"}, {"factor": 1.2, "pad": True}
    held_against_the_ledger(small(tiny("mixtral"), pipeline, recompute=recompute, pp=2, capacity=capacity))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("family", ["mixtral", "minimax"])
def test_routed_layers_keep_what_the_ledger_says_on_tensor_ranks(family):
    held_against_the_ledger(small(tiny(family), {"schedule": "zb-h1"}, pp=2, tp=2))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("node", "once"), [(8, False), (2, True), (8, True), (2, False)])
def test_ranks_of_experts_together_keep_what_the_ledger_says_however_copies_travel(once, node):
    """One rank's experts are chosen more often than another's."""
    case = small(tiny("qwen3_moe"), {"schedule": "zb-h1"}, once=once, node=node, dp_shard=4, ep=4)
    *_, seen = run(case, "bf16", probe=kept)
    for passes in zip(*seen, strict=True):
        (kind, stage), sizes = passes[0][:2], [size for *_, size in passes]
        assert sum(sizes) == len(sizes) * expected(case.program, kind, stage)
        assert kind == "W" or len(set(sizes)) > 1


def test_micro_batches_of_two_sequences_keep_twice_as_much():
    pipeline = {"schedule": "zb-h1", "micro_batch": 2}
    held_against_the_ledger(small(tiny("llama"), pipeline, global_batch=16, pp=2))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "degrees",
    [
        {"pp": 2, "tp": 2, "sharding": "zero1", "recompute": "full"},
        {"pp": 2, "dp_shard": 2, "sharding": "zero3", "gather": "per-layer"},
        {"dp_shard": 2, "dp_replicate": 2, "sharding": "zero3", "gather": "per-layer"},
        {"dp_shard": 2, "tp": 2, "sharding": "zero2", "sequence_parallel": False},
    ],
    ids=str,
)
def test_every_rank_exchanges_the_bytes_that_the_program_counts(degrees):
    case = small(tiny("qwen3"), **degrees)
    *_, logs, _ = run(case)
    grid = case.program.parts.only.grid
    first = [
        rank
        for rank in range(grid.ranks)
        if not any(v for k, v in grid.coordinates(rank).items() if k != "pp")
    ]
    found = dict.fromkeys(TRAFFIC, 0)
    for traffic in (traffic for rank in first for traffic in logs[rank]):
        found["pp" if traffic.kind == "p2p" else CATEGORY[traffic.axes[-1]]] += int(traffic.logical_bytes)
    assert found == program_traffic(case.program)
