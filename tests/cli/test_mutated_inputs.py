"""Whatever stands in a file, a verb answers with 0, 1 or 2 and a message, never with a traceback.

Numbers are drawn up to sizes that no machine has; the number of micro-batches is kept below what takes seconds.
"""

import json
from copy import deepcopy

import pytest
from command_runs import QUESTION, TINY, plan_text, run, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan

MOE = {
    "model": "mixtral-8x7b",
    "cluster": "h100-sxm-80gb x 32",
    "layout": "{pp: 4, dp_shard: 4, tp: 2, ep: 4, etp: 1}",
    "pipeline": "{schedule: interleaved-1f1b, micro_batch: 1, virtual_stages: 2}",
    "recompute": "[core_attn, moe_act]",
}
SHORTS = [plan_text(), plan_text(layout="{pp: 8}"), plan_text(**MOE)]
LONGS = [
    dump_plan(expand(parse_plan(text), load_model(parse_plan(text).model).architecture)) for text in SHORTS
]
CONFIGS = [
    TINY,
    TINY
    | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    TINY
    | {"model_type": "deepseek_v3", "n_routed_experts": 8, "moe_intermediate_size": 64, "q_lora_rank": 64},
    {"model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 8, "vocab_size": 1000, "n_positions": 4096},
    {"text_config": TINY, "model_type": "llava"},
]
NUMBERS = [None, True, False, -1, 0, 1, 2, 3, 5, 8, 64, 4097, 2**20, 2**40, 10**30, -(2**63), 0.5, 1e300]
WORDS = ["", "x", "embed", "0..31", "zero3", "gpipe", "interleaved-1f1b", "full", "pp", "*", "é[bold]"]
NAMES = ["megatron-core", "generic", "mixtral-8x7b", "h100-sxm-80gb x 16", "per-layer"]
ODD = st.sampled_from([*NUMBERS, *WORDS, *NAMES, [], {}, [1], ["tp"], {"a": 1}]).map(deepcopy)
QUICK = settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _paths(value, path=()):
    """Every place in nested data."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from _paths(item, (*path, key))


@st.composite
def mutated(draw, bases):
    """One of the bases with one to three places changed, removed or renamed."""
    data = json.loads(json.dumps(draw(st.sampled_from(bases))))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_paths(data))
        if not places:
            break
        *parents, last = draw(st.sampled_from(places))
        inner = data
        for key in parents:
            inner = inner[key]
        match draw(st.sampled_from(("set", "set", "set", "remove", "rename"))):
            case "set":
                inner[last] = draw(ODD)
            case "remove":
                del inner[last]
            case "rename" if isinstance(inner, dict):
                inner[draw(st.sampled_from(("x", "tp", "layouts", "Plan", "")))] = inner.pop(last)
    return data


@st.composite
def scratched(draw, bases):
    """The text of one of the bases with a few characters removed, doubled or replaced."""
    text = draw(st.sampled_from(bases))
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 30))
        new = draw(
            st.sampled_from(("", "\0", "\n", "  ", ": ", "[", "}", "&a ", "!!int ", "0x", "-", "é", "9" * 45))
        )
        text = text[:at] + new + text[at + length :]
    return text


def answers(verb, file, *rest):
    """Run a verb on a file with and without --json; ``run`` fails on any exception."""
    done = run(verb, file, *rest)
    again = run(verb, file, *rest, "--json")
    assert done.code == again.code
    assert again.data is not None
    if done.code == 2:
        assert done.out == ""
        assert done.err.startswith("Error: the input is wrong.\n  ")
        assert all(problem["rule"] for problem in again.data["problems"])
    return done.code


def plain(text):
    plan = parse_plan(text)
    return json.loads(json.dumps(plan.to_data()))


@pytest.mark.parametrize("bases", [SHORTS, LONGS], ids=["short", "long"])
def test_the_unchanged_plans_are_good(bases, tmp_path):
    for text in bases:
        assert answers("predict", write(tmp_path / "plan.yaml", text)) == 0
        assert answers("describe", tmp_path / "plan.yaml") == 0
    assert isinstance(parse_plan(LONGS[0]), LongPlan)


@given(data=mutated([plain(text) for text in SHORTS]))
@QUICK
def test_changed_short_plans(data, tmp_path):
    file = write(tmp_path / "plan.yaml", json.dumps(data))
    answers("predict", file)
    answers("describe", file, "--long")


@given(data=mutated([plain(text) for text in LONGS]))
@QUICK
def test_changed_long_plans(data, tmp_path):
    file = write(tmp_path / "plan.yaml", json.dumps(data))
    answers("predict", file)
    answers("export", file, "--to", "megatron")


@given(text=scratched(SHORTS + LONGS))
@QUICK
def test_scratched_plans(text, tmp_path):
    file = write(tmp_path / "plan.yaml", text)
    answers("predict", file)
    answers("compare", file, file)


@given(
    name=st.sampled_from(("tp", "pp", "sharding", "recompute", "schedule", "gather", "seq_len", "cp")),
    value=ODD,
)
@QUICK
def test_changed_settings(name, value, tmp_path):
    file = write(tmp_path / "plan.yaml", SHORTS[0])
    answers("predict", file, "--set", f"{name}={json.dumps(value)}")
    answers("predict", file, "--set", f"{name}={value}")


@given(data=mutated(CONFIGS))
@QUICK
def test_changed_configurations(data, tmp_path):
    file = write(tmp_path / "config.json", json.dumps(data))
    if answers("describe", file) == 0:
        answers("plan", file, *QUESTION, "--keep", "micro_batch=1", "--keep", "recompute=full")


@given(text=scratched([json.dumps(config) for config in CONFIGS]))
@QUICK
def test_scratched_configurations(text, tmp_path):
    answers("describe", write(tmp_path / "config.json", text))
