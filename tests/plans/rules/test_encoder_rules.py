"""Models with an encoder: inputs that are missing or not read, and plans that cannot hold it, are refused by name."""

import pytest
from encoder_cases import INPUTS, encoder_model

from meshwright.cluster.load import load_cluster
from meshwright.errors import UnsupportedError
from meshwright.frameworks.exporting.target_rules import refuse_unsayable, stack_of_target
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.space.searched_schedules import SearchedSchedules
from meshwright.search.space.variants import all_variants
from meshwright.stack.load import load_stack
from meshwright.workload.images import Images

CLUSTER = "h100-sxm-80gb x 16"


def short(workload=(), layout=(), **keys):
    data = {
        "plan": 1,
        "model": "here",
        "cluster": CLUSTER,
        "workload": {"seq_len": 2048, "global_batch": 64, **dict(workload)},
        "layout": {"dp_shard": 16} if not layout else dict(layout),
        "sharding": "zero1",
        **keys,
    }
    return ShortPlan.model_validate(data)


def problems(name, workload=None, layout=(), stack="meshwright", **keys):
    graph = encoder_model(name) if name in INPUTS else load_model(name)
    workload = INPUTS.get(name, {}) if workload is None else workload
    plan = expand(short(workload, layout, **keys), graph.architecture)
    found = check_plan(plan, graph, load_cluster(CLUSTER), load_stack(stack))
    return {one.field: one for one in found if one.severity == "error"}


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("t5", {"dp_shard": 16}),
        ("t5", {"dp_shard": 2, "tp": 8}),
        ("vl", {"dp_shard": 4, "tp": 4}),
        ("vl", {"dp_shard": 4, "pp": 4}),
        ("vl", {"dp_shard": 2, "pp": 2, "tp": 4, "sequence_parallel": False}),
    ],
)
def test_replicas_widths_and_stages_of_images_may_be_cut(name, layout):
    assert problems(name, layout=layout) == {}


def test_an_encoder_without_inputs_is_refused_with_an_example():
    (tokens,) = problems("t5", {}).values()
    assert (tokens.field, tokens.value) == ("workload.encoder_tokens", None)
    assert "--encoder-tokens 512" in tokens.suggestion
    (images,) = problems("vl", {}).values()
    assert (images.field, images.value) == ("workload.images", None)
    assert "images: {per_sequence: 1, tokens: 1024}" in images.suggestion


@pytest.mark.parametrize(
    ("name", "other", "field"), [("t5", "vl", "workload.images"), ("vl", "t5", "workload.encoder_tokens")]
)
def test_inputs_of_another_encoder_are_refused(name, other, field):
    (found,) = problems(name, INPUTS[name] | INPUTS[other]).values()
    assert (found.field, found.suggestion.partition(",")[0]) == (field, "leave it out")


def test_a_model_without_an_encoder_refuses_both_inputs():
    found = problems("llama-3.2-1b", INPUTS["t5"] | INPUTS["vl"])
    assert found.keys() == {"workload.encoder_tokens", "workload.images"}


def test_images_are_whole_merged_rows_and_leave_a_text():
    (rows,) = problems("vl", {"images": {"per_sequence": 1, "tokens": 1022}}).values()
    assert rows.field == "workload.images.tokens"
    assert "1022 % 4 = 2" in rows.rule
    assert "tokens: 1024" in rows.suggestion or "tokens: 1020" in rows.suggestion
    (text,) = problems("vl", {"images": {"per_sequence": 8, "tokens": 1024}}).values()
    assert "8·1024 / 4 = 2048 rows leave no text in seq_len = 2048" in text.rule
    assert "seq_len: 4096" in text.suggestion
    assert problems("vl", {"seq_len": 2049, "images": {"per_sequence": 8, "tokens": 1024}}) == {}


def test_wrong_numbers_are_reported_together():
    wrong = {"encoder_tokens": 0, "images": {"per_sequence": 0, "tokens": -4}}
    assert problems("llama-3.2-1b", wrong).keys() == {
        "workload.encoder_tokens",
        "workload.images.per_sequence",
        "workload.images.tokens",
    }


@pytest.mark.parametrize("name", INPUTS)
def test_what_is_not_done_with_an_encoder_is_refused_together(name):
    wrong = {"documents": 100, "task": "lora", "adapter": {"rank": 4}}
    found = problems(
        name,
        INPUTS[name] | wrong,
        {"cp": 2, "dp_shard": 8},
        offload={"activations": "all"},
    )
    assert {"layout.cp", "workload.documents", "workload.task", "offload.activations"} <= found.keys()
    assert "cp = 2 must be 1" in found["layout.cp"].rule
    assert "cp: 1" in found["layout.cp"].suggestion
    assert "workload.optimizer" in problems(name, INPUTS[name] | {"optimizer": "zo-sgd"}, sharding="none")


def test_stages_and_a_spread_vocabulary_are_refused():
    spread = {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}}
    text, images = (problems(name, layout={"pp": 2, "dp_shard": 8}, pipeline=spread) for name in ("t5", "vl"))
    assert text.keys() == {"layout.pp", "pipeline.schedule.vocabulary"}
    assert "pp = 2 must be 1" in text["layout.pp"].rule
    assert images.keys() == {"pipeline.schedule.vocabulary"}


def test_tp_divides_the_vision_encoder_and_its_rows():
    found = problems("vl", {"images": {"per_sequence": 1, "tokens": 1028}}, {"tp": 8, "dp_shard": 2})
    assert "vision ffn % tp = 3420 % 8 = 4 ≠ 0" in found["layout.tp"].rule
    assert "tp: 4" in found["layout.tp"].suggestion
    assert "per_sequence·tokens % (tp·merge²) = 1028 % 32 = 4" in found["workload.images"].rule
    whole = {"tp": 2, "dp_shard": 8, "sequence_parallel": False}
    assert problems("vl", {"images": {"per_sequence": 1, "tokens": 1028}}, whole) == {}


def test_tp_divides_the_encoder_s_tokens_with_sequence_parallelism_only():
    (found,) = problems("t5", {"encoder_tokens": 511}, {"tp": 2, "dp_shard": 8}).values()
    assert "encoder_tokens % tp = 511 % 2 = 1" in found.rule
    assert "encoder_tokens: 512" in found.suggestion
    assert problems("t5", {"encoder_tokens": 511}, {"tp": 2, "dp_shard": 8, "sequence_parallel": False}) == {}


def test_positions_by_relative_place_have_no_end():
    assert problems("t5", {"seq_len": 2**16, "encoder_tokens": 2**16}) == {}


def two_layouts(name):
    graph = encoder_model(name)
    plan = expand(short(INPUTS[name]), graph.architecture)
    ((first, layout),) = plan.layouts.items()
    layers = graph.architecture.layers
    rule = next(iter(plan.layers.values()))
    rules = {
        "embed": rule,
        f"0..{layers - 2}": rule,
        str(layers - 1): rule.model_copy(update={"layout": "other"}),
        "head": rule.model_copy(update={"layout": "other"}),
    }
    several = {"layouts": {first: layout, "other": layout}, "layers": rules}
    found = check_plan(
        plan.model_copy(update=several), graph, load_cluster(CLUSTER), load_stack("meshwright")
    )
    return [one.rule for one in found if one.severity == "error"]


def test_several_layouts_are_refused_with_a_text_encoder():
    assert any("a text encoder" in rule for rule in two_layouts("t5"))
    assert not any("encoder" in rule for rule in two_layouts("vl"))


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize(
    "stack", ["megatron-core", "torchtitan", "deepspeed", "accelerate", "megatron-bridge", "nemo"]
)
def test_other_stacks_and_exports_are_refused_by_name(name, stack):
    graph, cluster = encoder_model(name), load_cluster(CLUSTER)
    found = problems(name, layout={"dp_shard": 16}, stack=stack, sharding="zero3")
    assert "no model with an encoder" in found["stack"].rule
    assert "generic or meshwright" in found["stack"].suggestion
    plan = expand(short(INPUTS[name], sharding="zero3", stack="generic"), graph.architecture)
    target = stack_of_target(stack, load_stack("generic"))
    with pytest.raises(UnsupportedError, match="no model with an encoder"):
        refuse_unsayable(plan, graph, cluster, target)


def test_both_stacks_that_have_encoders_take_them():
    for stack in ("meshwright", "generic"):
        assert "stack" not in problems("t5", stack=stack)


def setting(name, stack="generic", **workload):
    asked = short(INPUTS[name] | workload)
    return Setting(encoder_model(name), load_cluster(CLUSTER), workload_of(asked), load_stack(stack))


def test_a_search_counts_what_a_text_encoder_forbids():
    space = enumerate_space(setting("t5", seq_len=2048))
    assert set(space.base.cp) == set(space.base.pp) == {1}
    assert any("read" in reason and "encoder" in reason for reason in space.rejected)
    assert any("cut over cp" in reason for reason in space.rejected)


def test_a_search_counts_what_a_vision_encoder_forbids():
    space = enumerate_space(setting("vl", images={"per_sequence": 1, "tokens": 1032}))
    assert set(space.base.cp) == {1}
    assert set(space.base.pp) == {1, 2, 4, 8}
    assert set(space.plans.tp) == {1, 2}  # 1032 % (4·4) = 8
    assert space.rejected["tp does not divide vision ffn = 3420"]
    assert any("workload.images" in reason for reason in space.rejected)


@pytest.mark.parametrize("name", INPUTS)
def test_a_search_with_all_variants_keeps_no_activations_on_hosts_and_spreads_no_vocabulary(name):
    asked = setting(name)
    spread = SearchedSchedules((ScheduleChoice("1f1b"), ScheduleChoice("1f1b", vocabulary="vocab-1")))
    space = enumerate_space(asked, schedules=spread, variants=all_variants(asked, {}))
    assert any("activations on hosts" in reason for reason in space.rejected)
    if name == "vl":
        assert any("vocabulary over all pipeline ranks" in reason for reason in space.rejected)
    assert not any(space.plans.schedules[code].vocabulary for code in set(space.plans.schedule.tolist()))


@pytest.mark.parametrize("name", INPUTS)
def test_both_forms_of_a_plan_and_files_keep_the_inputs(name):
    plan = short(INPUTS[name])
    long = expand(plan, encoder_model(name).architecture)
    assert shorten(long).workload == plan.workload
    for one in (plan, long):
        assert parse_plan(dump_plan(one)) == one
    workload = workload_of(plan)
    images = INPUTS[name].get("images")
    assert workload.images == (None if images is None else Images(**images))
    assert workload.encoder_tokens == INPUTS[name].get("encoder_tokens")
