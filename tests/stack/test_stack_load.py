from dataclasses import asdict
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.schedules.generators import SCHEDULES
from meshwright.stack.device_recipe import NO_RECIPE
from meshwright.stack.load import DEFAULT_STACK, load_stack, load_stack_until, parse_stack, stack_names
from meshwright.stack.stack import Stack, file_fields
from meshwright.verbs.describe import describe_stack

EXPECTED = {
    "accelerate",
    "meshwright",
    "megatron-core",
    "torchtitan",
    "deepspeed",
    "megatron-lm-2021",
    "megatron-lm-2022",
    "megatron-deepspeed-2022",
    "megatron-zero-bubble",
    "megatron-bridge",
    "llm-foundry",
    "internevo",
    "nemo",
    "maxtext",
    "generic",
}
PACKAGED = sorted(
    entry.name
    for entry in files("meshwright.stack").joinpath("files").iterdir()
    if entry.name.endswith(".yaml")
)


def text_of(name):
    return files("meshwright.stack").joinpath("files", name).read_text(encoding="utf-8")


def test_all_stacks_that_data_files_speak_of_are_here():
    assert set(stack_names()) == EXPECTED


@pytest.mark.parametrize("name", PACKAGED)
def test_a_file_is_named_after_its_stack_and_says_where_its_facts_are_from(name):
    stack = parse_stack(text_of(name), name)
    assert name == f"{stack.name}-{stack.release}.yaml"
    assert len(stack.source) > 20
    assert load_stack(stack.id) == stack


def test_a_file_says_only_what_differs_from_another_release():
    old, new = load_stack("megatron-bridge@26.02"), load_stack("megatron-bridge@26.06")
    changed = {field.name for field in file_fields() if getattr(old, field.name) != getattr(new, field.name)}
    assert changed == {"release", "source", "device_recipes"}
    assert new.device_recipe("gb300", "mxfp8").captures == "step"
    assert new.device_recipe("gb300", "bf16").captures == "attention"
    assert not new.device_recipe("gb300", "bf16").fuses_experts
    assert old.device_recipe("gb300", "mxfp8").captures == "attention"
    assert new.device_recipe("h100", "fp8") == old.device_recipe("h100", "bf16") == NO_RECIPE
    own = parse_stack(
        "like: torchtitan\nname: ours\nrelease: '1'\nsource: our cluster\nhost_s_per_layer: 0.001\n"
    )
    assert (own.id, own.host_s_per_layer) == ("ours@1", 0.001)
    assert own.schedules == load_stack("torchtitan").schedules
    newest = parse_stack("like: megatron-bridge\nname: ours\nrelease: '1'\nsource: our cluster\n")
    assert (newest.device_recipes, newest.schedules) == (new.device_recipes, old.schedules)
    with pytest.raises(InputError, match="must name a stack"):
        parse_stack("like: [5]\nname: ours\nrelease: '1'\nsource: our cluster\n")
    with pytest.raises(InputError, match="no stack of this name"):
        parse_stack("like: nothing\nname: ours\nrelease: '1'\nsource: our cluster\n")


@pytest.mark.parametrize(
    ("release", "expected"),
    [("25.11", "26.02"), ("26.02.01", "26.02"), ("26.04", "26.02"), ("26.06", "26.06"), ("27.01", "26.06")],
)
def test_a_run_of_another_release_has_the_facts_of_the_one_before(release, expected):
    assert load_stack_until("megatron-bridge", release).release == expected


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_facts_of_a_stack_agree_with_each_other(name):
    stack = load_stack(name)
    assert set(stack.schedules) <= set(SCHEDULES)
    assert set(stack.pipeline_shardings) <= set(stack.shardings)
    assert bool(stack.pipeline_shardings) == stack.pp
    assert bool(stack.selective_recompute) == ("selective" in stack.recomputes)
    assert {"none", "full"} <= set(stack.recomputes)
    assert stack.parameter_bytes + stack.optimizer_bytes in (12, 14), "AdamW: fp32 master and two moments"
    assert stack.ep or not stack.etp
    assert set(stack.reduces_each_micro_batch) <= set(stack.shardings)


def test_default_is_megatron_core_0_19():
    assert load_stack() == load_stack(DEFAULT_STACK) == load_stack("megatron-core@0.19")
    assert load_stack().id == "megatron-core@0.19"


def test_facts_that_decide_predictions():
    old, new = load_stack("megatron-lm-2021"), load_stack("megatron-core")
    assert (old.attention, new.attention) == ("fused-softmax", "flash3")
    assert (old.overlap_gradient_reduction, new.overlap_gradient_reduction) == (False, True)
    assert "zero1" not in old.shardings
    assert "gpipe" not in new.schedules
    titan = load_stack("torchtitan")
    assert "zero1" not in titan.shardings
    assert (titan.parameter_bytes, titan.gradient_bytes, titan.optimizer_bytes) == (4, 4, 8)
    assert not titan.etp
    assert load_stack("deepspeed").pipeline_shardings == ("none", "zero1")
    assert load_stack("megatron-deepspeed-2022").host_s_per_layer > 3 * new.host_s_per_layer  # fitted
    assert not load_stack("llm-foundry").tp


def test_a_path_reads_like_a_name(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nrelease: '2'\nsource: here\ntp: false\n", encoding="utf-8")
    expected = Stack(name="mine", release="2", source="here", tp=False)
    assert load_stack(path) == load_stack(str(path)) == expected


def test_describe_shows_every_field():
    stack = load_stack("torchtitan")
    shown = describe_stack(stack)
    axes = shown["axes"]
    assert shown["id"] == "torchtitan@0.3"
    for field in file_fields():
        value = asdict(stack)[field.name]
        if field.name in ("models", "state_offloads"):
            value = [model.said() for model in value]
        known = axes[field.name] if field.name in axes else shown[field.name]
        assert known == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("release: '1'\nsource: x\n", "name", "required"),
        ("name: a\nrelease: 1\nsource: x\n", "release", "quote"),
        ("name: a\nrelease: '1'\nsource: x\nfused: true\n", "fused", "fused_norm"),
        ("name: a\nrelease: '1'\nsource: x\ntp: yes\n", "tp", "true"),
        ("name: a\nrelease: '1'\nsource: x\nlogit_bytes: 2.5\n", "logit_bytes", "whole number"),
        ("name: a\nrelease: '1'\nsource: x\ngradient_bytes: 0\n", "gradient_bytes", "at least 1"),
        ("name: a\nrelease: '1'\nsource: x\nattention: flsh\n", "attention", "flash"),
        ("name: a\nrelease: '1'\nsource: x\nschedules: [zbv]\n", "schedules.0", "zb-v"),
        ("name: a\nrelease: '1'\nsource: x\nshardings: fsdp\n", "shardings", "list"),
        (
            "name: a\nrelease: '1'\nsource: x\nreduces_each_micro_batch: [zero1]\n",
            "reduces_each_micro_batch.0",
            "zero2",
        ),
        ("name: a\nrelease: '1'\nsource: x\nrecomputes: [ful]\n", "recomputes.0", "full"),
        ("name: a\nrelease: '1'\nsource: x\nhost_s_per_layer: -1\n", "host_s_per_layer", "at least 0"),
        (
            "name: a\nrelease: '1'\nsource: x\nelementwise_factor: .nan\n",
            "stack: elementwise_factor",
            "finite",
        ),
        ("", "stack", "empty"),
        ("[1, 2]\n", "stack", "mapping"),
    ],
)
def test_what_is_wrong_is_said(text, field, says):
    with pytest.raises(InputError) as caught:
        parse_stack(text)
    problem = next(problem for problem in caught.value.problems if problem.field == field)
    assert says in str(problem)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("megatron", "megatron-core"),
        ("megatron-core@0.18", "0.19"),
        ("@", "generic"),
        ("", "generic"),
        ("no/such/file", "cannot be read"),
        ("absent.yaml", "cannot be read"),
        ("/", "cannot be read"),
    ],
)
def test_unknown_stacks_are_refused_with_advice(name, says):
    with pytest.raises(InputError, match=says):
        load_stack(name)


@settings(deadline=None, max_examples=100)
@given(name=st.sampled_from(PACKAGED), data=st.data())
def test_a_damaged_file_is_a_stack_or_a_refusal(name, data):
    text = text_of(name)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(st.text("0-9.e:{}[],&*! \n'\"~abn", max_size=6)) + text[end:]
    stack, refusal = parsed_or_refused(text)
    assert isinstance(stack, Stack) or refusal.problems


@settings(deadline=None, max_examples=100)
@given(
    key=st.sampled_from([field.name for field in file_fields()]),
    junk=st.sampled_from(
        ["-1", "1.5", "10e40", "true", "~", "[]", "[[]]", "{}", "{a: 1}", "text", "''", "9" * 30]
    ),
)
def test_a_wrong_value_in_any_field_is_a_stack_or_a_refusal(key, junk):
    lines = {"name": "a", "release": "'1'", "source": "x", key: junk}
    stack, refusal = parsed_or_refused("".join(f"{name}: {value}\n" for name, value in lines.items()))
    if refusal is not None:
        assert all(problem.field.startswith((key, f"stack: {key}")) for problem in refusal.problems)
    else:
        assert isinstance(hash(stack), int), "a stack is a frozen value through and through"


def parsed_or_refused(text):
    try:
        return parse_stack(text), None
    except InputError as refusal:
        return None, refusal


def test_two_stacks_vary_layouts_and_recomputation_from_range_to_range():
    varies = {name: load_stack(name).varies_by_layer for name in stack_names()}
    assert {name for name, what in varies.items() if "layout" in what} == {"generic", "meshwright"}
    assert varies["generic"] == varies["meshwright"] == ("layout", "recompute")


def test_megatron_varies_recomputation_by_the_first_layers_of_stages():
    others = {
        name
        for name in stack_names()
        if load_stack(name).varies_by_layer and not load_stack(name).recomputes_any_layers
    }
    assert others == {"megatron-bridge", "megatron-core"}
    for name in others:
        stack = load_stack(name)
        assert (stack.varies_by_layer, stack.recomputed_layers) == (("recompute",), "first")
        assert stack.free_by_layer == ()
    assert load_stack("generic").free_by_layer == ("layout", "recompute")


def test_a_range_of_layers_varies_only_what_plans_can_say():
    with pytest.raises(InputError) as caught:
        parse_stack(
            text_of("generic-1.yaml").replace("varies_by_layer: [layout,", "varies_by_layer: [width,")
        )
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("varies_by_layer.0", "width")
    assert "layout" in problem.rule + problem.suggestion
