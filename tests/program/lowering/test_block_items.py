from lowered_programs import lowered, short_plan

from meshwright.program.pass_items import Collective, Compute, Overlap


def layer(kind, block=1, name="dense", layout=None, facts=None, **keys):
    """The items of a layer's pass and its block; norms are kernels of their own unless ``facts`` fuse them."""
    plan = lowered(short_plan(name, layout or {}, **keys), **({"norm_products": ()} | (facts or {})))
    return plan.program.block_items[block, kind], plan.model.blocks[block]


def names(items):
    """What runs, in order: operators with their phase, collectives with their kind; overlaps in brackets."""
    return [_name(item) for item in items]


def _name(item):
    if isinstance(item, Compute):
        return f"{item.operator.name} {item.phase}"
    if isinstance(item, Collective):
        return f"{item.kind} {item.phase}"
    return [_name(part) for part in (*item.compute, *item.overlapped)]


def test_input_gradients_come_last_operator_first():
    items, block = layer("I")
    chain = [op.name for op in block.operators if not op.name.startswith(("enter", "leave"))]
    assert names(items) == [f"{name} I" for name in reversed(chain)]


def test_weight_gradients_come_last_operator_first_where_there_are_weights():
    items, _ = layer("W")
    assert names(items) == ["ffn_down W", "ffn_up W", "ffn_norm W", "o W", "qkv W", "input_norm W"]


def test_collectives_stand_at_the_boundaries_of_the_tensor_region():
    items, _ = layer("F", layout={"tp": 2})
    assert names(items) == [
        "input_norm F",
        "all-gather F",
        "qkv F",
        "attention F",
        "o F",
        "reduce-scatter F",
        "attention_residual F",
        "ffn_norm F",
        "all-gather F",
        "ffn_up F",
        "ffn_activation F",
        "ffn_down F",
        "reduce-scatter F",
        "ffn_residual F",
    ]


def test_inputs_are_gathered_again_beside_the_first_gradient_of_the_region():
    items, _ = layer("I", layout={"tp": 2})
    assert names(items)[-4:] == ["attention I", ["qkv I", "all-gather W"], "reduce-scatter I", "input_norm I"]
    without, _ = layer("I", layout={"tp": 2}, facts={"tp_regathers_input": False})
    assert names(without)[-3:] == ["qkv I", "reduce-scatter I", "input_norm I"]


def test_full_recomputation_runs_the_forward_pass_again_with_its_collectives():
    layout = {"tp": 2, "cp": 2}
    forward, _ = layer("F", layout=layout, recompute="full")
    again, _ = layer("I", layout=layout, recompute="full")
    plain, _ = layer("I", layout=layout)

    def as_recomputed(shown):
        return [as_recomputed(part) for part in shown] if isinstance(shown, list) else shown[:-1] + "R"

    assert names(again)[: len(forward)] == [as_recomputed(shown) for shown in names(forward)]
    assert again[len(forward) :] == plain


def test_a_set_runs_its_operators_again_just_before_the_gradient_that_needs_them():
    items, _ = layer("I", recompute=("layernorm", "core_attn"))
    shown = names(items)
    assert [name for name in shown if name.endswith("R")] == ["ffn_norm R", "attention R", "input_norm R"]
    for name, user in (("ffn_norm", "ffn_up"), ("attention", "attention"), ("input_norm", "qkv")):
        assert shown.index(f"{user} I") == shown.index(f"{name} R") + 1


def test_a_set_whose_input_is_recomputed_too_runs_after_it():
    items, _ = layer("I", recompute=("layernorm", "mlp"))
    again = [name for name in names(items) if name.endswith("R")]
    assert again == ["ffn_norm R", "ffn_up R", "ffn_activation R", "ffn_down R", "input_norm R"]


def test_a_set_in_the_tensor_region_brings_its_input_together_again():
    items, _ = layer("I", layout={"tp": 2}, recompute=("mlp",))
    again = [name for name in names(items) if isinstance(name, str) and name.endswith("R")]
    assert again == ["all-gather R", "ffn_up R", "ffn_activation R", "ffn_down R"]


def test_a_norm_that_its_product_computes_runs_again_with_it_alone():
    facts = {"norm_products": ("qkv", "ffn_up")}
    for recompute in ("mlp",), ("layernorm", "mlp"):
        items, _ = layer("I", layout={"tp": 2}, facts=facts, recompute=recompute)
        again = [name for name in names(items) if isinstance(name, str) and name.endswith("R")]
        assert again == ["ffn_norm R", "all-gather R", "ffn_up R", "ffn_activation R", "ffn_down R"]
    assert layer("I", facts=facts, recompute=("layernorm",))[0] == layer("I", facts=facts)[0]


def test_where_no_exchange_is_kept_the_whole_layer_is_walked_again_first():
    facts = {"recomputes_exchanges": True, "tp_regathers_input": False}
    keys = {"layout": {"tp": 2, "cp": 2}, "recompute": ("layernorm", "mlp")}
    items, _ = layer("I", facts=facts, **keys)
    forward, _ = layer("F", facts=facts, **keys)
    again = ("input_norm", "ffn_norm", "ffn_up", "ffn_activation", "ffn_down")
    walked = []
    for item in forward:
        if isinstance(item, Overlap):
            walked += [f"{c.kind} R" for c in item.overlapped]
        elif isinstance(item, Collective) or item.operator.name in again:
            walked.append(names([item])[0][:-1] + "R")
    assert names(items)[: len(walked)] == walked
    assert [name for name in walked if name.split()[0] not in again] == [
        "all-gather R",
        "ring R",
        "reduce-scatter R",
        "all-gather R",
        "reduce-scatter R",
    ]
    assert items[len(walked) :] == layer("I", facts=facts, layout=keys["layout"])[0]
    assert names(layer("I", facts=facts, layout={"tp": 2}, recompute="none")[0])[0] == "ffn_residual I"


def test_operators_in_a_row_run_again_together_and_forwards():
    items, _ = layer("I", recompute=("mlp",))
    shown = names(items)
    first = shown.index("ffn_up R")
    assert shown[first : first + 4] == ["ffn_up R", "ffn_activation R", "ffn_down R", "ffn_down I"]
    assert sum(name.endswith("R") for name in shown) == 3


def test_experts_that_run_again_exchange_their_tokens_again():
    items, _ = layer("I", 2, "moe", {"dp_shard": 4, "ep": 4}, sharding="zero1", recompute=("moe",))
    again = [name for name in names(items) if name.endswith("R")]
    there = ["dispatch R", "all-to-all R", "expert_up R", "expert_activation R", "expert_down R"]
    assert again == [*there, "all-to-all R", "combine R"]


def test_attention_that_runs_again_sends_its_keys_round_again():
    items, _ = layer("I", layout={"cp": 2}, recompute=("core_attn",))
    shown = names(items)
    assert shown.index(["attention R", "ring R"]) + 1 == shown.index(["attention I", "ring I"])


def test_embedding_and_head_are_never_recomputed():
    for block in (0, 2):
        items, _ = layer("I", block=block, recompute="full")
        assert not [name for name in names(items) if name.endswith("R")]


def test_experts_forward_and_backward_mirror_each_other():
    layout = {"dp_shard": 4, "tp": 2, "ep": 4, "etp": 2}
    forward, _ = layer("F", 2, "moe", layout, sharding="zero1")
    backward, _ = layer("I", 2, "moe", layout, sharding="zero1")
    kinds = [(c.kind, c.axes) for c in forward if isinstance(c, Collective) and c.axes != ("tp",)]
    assert kinds == [
        ("all-to-all", ("ep",)),
        ("all-gather", ("etp",)),
        ("reduce-scatter", ("etp",)),
        ("all-to-all", ("ep",)),
    ]
    assert kinds == [(c.kind, c.axes) for c in backward if isinstance(c, Collective) and c.axes != ("tp",)]


def test_keys_and_values_go_round_beside_attention():
    for kind in ("F", "I"):
        items, _ = layer(kind, layout={"cp": 2})
        (ring,) = [item for item in items if isinstance(item, Overlap)]
        assert names([ring]) == [[f"attention {kind}", f"ring {kind}"]]
