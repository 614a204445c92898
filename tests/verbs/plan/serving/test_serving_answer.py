"""``plan`` of requests: what the answer has, how it is written, and questions without an answer."""

import json
from math import isclose

import pytest
from command_runs import run

import meshwright as mw
from meshwright.errors import InfeasibleError, InputError
from meshwright.frameworks.serving.export_limits import serving_export_problems
from meshwright.plans.files.plan_file import parse_any_plan
from meshwright.plans.serving.resolve_serving import resolve_serving

ON = ("--on", "h100-sxm-80gb x 8")
LENGTHS = ("--input-tokens", 4000, "--output-tokens", 500)
QUESTION = ("plan", "llama-3.1-8b", *ON, *LENGTHS, "--max-ttft-ms", 1000, "--max-tpot-ms", 20)
ONE_ENGINE = (*QUESTION, "--stack", "vllm", "--json")


def answer(*words):
    done = run(*words)
    assert done.code == 0, done.err
    return done.data


def test_plans_are_predicted_as_predict_does(tmp_path):
    file = tmp_path / "plan.yaml"
    data = answer(*ONE_ENGINE, "-o", file)
    first = data["plans"][0]
    predicted = run("predict", file, "--json").data
    assert predicted["serving"] == first["predict"]["serving"]
    assert parse_any_plan(json.dumps(first["plan"])) == parse_any_plan(file.read_text(encoding="utf-8"))
    assert run("check", file).code == 0


def test_limits_hold_and_the_best_comes_first():
    data = answer(*ONE_ENGINE)
    servings = [one["predict"]["serving"] for one in data["plans"]]
    assert all(one["ttft_s"] <= 1.0 and one["tpot_s"] <= 0.02 for one in servings)
    rates = [one["output_tokens_per_s"] for one in servings]
    assert rates == sorted(rates, reverse=True)
    assert data["plans"][0]["plan"]["workload"]["concurrency"] >= 1
    assert data["candidates_considered"] >= data["candidates_legal"] > 0
    assert data["candidates_feasible"] >= len(data["plans"])
    assert data["optimal"] is True


def test_figures_of_the_search_are_those_of_the_prediction():
    data = answer(*ONE_ENGINE)
    (row,), serving = data["engines"], data["plans"][0]["predict"]["serving"]
    assert isclose(row["output_tokens_per_s"], serving["output_tokens_per_s"], rel_tol=1e-9)
    assert isclose(row["ttft_s"], serving["ttft_s"], rel_tol=1e-9)


def test_engines_are_compared_and_the_best_is_named():
    data = answer(*QUESTION, "--json")
    rates = {row["stack"]: row["output_tokens_per_s"] for row in data["engines"]}
    assert rates.keys() == {"vllm", "sglang", "tensorrt-llm"}
    assert data["plans"][0]["plan"]["stack"] == max(rates, key=rates.get)
    assert {reason["field"] for reason in data["plans"][0]["reasons"]} == {"stack", "pools", "replica"}


@pytest.mark.parametrize("stack", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_every_plan_exports(model, stack):
    data = answer("plan", model, *ON, *LENGTHS, "--stack", stack, "--json")
    for one in data["plans"]:
        resolved = resolve_serving(parse_any_plan(json.dumps(one["plan"])))
        assert serving_export_problems(stack, resolved) == []


def test_a_rate_is_carried_by_the_fewest_devices():
    words = (
        "plan",
        "llama-3.1-8b",
        "--on",
        "h100-sxm-80gb x <=16",
        *LENGTHS,
        "--rate",
        6,
        "--max-tpot-ms",
        20,
    )
    data = answer(*words, "--stack", "vllm", "--json")
    first = data["plans"][0]
    serving = first["predict"]["serving"]
    assert data["objective"] == "cost"
    assert isclose(serving["requests_per_s"], 6, rel_tol=1e-6)
    used = sum(pool["devices"] for pool in serving["pools"].values())
    assert used == min(
        sum(pool["devices"] for pool in one["predict"]["serving"]["pools"].values()) for one in data["plans"]
    )
    size = int(first["plan"]["cluster"].split(" x ")[1])
    assert used <= size
    smaller = max(count for count in (1, 2, 4, 8, 16) if count < size)
    assert smaller < used


def test_formats_are_searched_where_they_are_allowed():
    plain = answer(*ONE_ENGINE)["plans"][0]
    quantised = answer(*ONE_ENGINE, "--allow-quantise", "fp8")["plans"][0]
    assert (
        plain["plan"]["pools"]["serve" if "serve" in plain["plan"]["pools"] else "decode"]["quantise"] == {}
    )
    formats = next(iter(quantised["plan"]["pools"].values()))["quantise"]
    assert formats["weights"] == "fp8"
    rates = [one["predict"]["serving"]["output_tokens_per_s"] for one in (quantised, plain)]
    assert rates[0] > rates[1]


def test_without_a_plan_the_nearest_one_says_what_it_misses():
    done = run(*QUESTION[:8], "--max-ttft-ms", 5, "--max-tpot-ms", 1, "--stack", "vllm", "--json")
    assert (done.code, done.data["plans"]) == (1, [])
    nearest = done.data["nearest"]
    serving = nearest["predict"]["serving"]
    assert nearest["misses"].keys() == {"ttft_ms", "tpot_ms"}
    assert isclose(nearest["misses"]["ttft_ms"], 1e3 * serving["ttft_s"] - 5)
    assert isclose(nearest["misses"]["tpot_ms"], 1e3 * serving["tpot_s"] - 1)
    assert sum(done.data["rejected"].values()) > 0
    loose = ("--max-ttft-ms", 1e3 * serving["ttft_s"] + 1, "--max-tpot-ms", 1e3 * serving["tpot_s"] + 1)
    assert answer(*QUESTION[:8], *loose, "--stack", "vllm", "--json")["plans"]


def test_a_rate_that_nothing_carries_has_no_first_token():
    done = run("plan", "llama-3.1-8b", *ON, *LENGTHS, "--rate", 1e5, "--stack", "vllm", "--json")
    assert done.code == 1
    assert done.data["nearest"]["predict"]["serving"]["limited_by"] == "capacity"
    assert done.data["nearest"]["misses"] == {"ttft_ms": None, "tpot_ms": None}


def test_a_model_that_does_not_fit_has_no_nearest_plan():
    done = run("plan", "llama-3.1-405b", *ON, *LENGTHS, "--stack", "vllm", "--json")
    assert (done.code, done.data["nearest"]) == (1, None)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (("--concurrency", 4, "--rate", 2), {"rate"}),
        (("--concurrency", 0), {"concurrency"}),
        (("--max-ttft-ms", -1, "--max-tpot-ms", 0), {"max_ttft_ms", "max_tpot_ms"}),
        (
            ("--allow-quantise", "fp9,fp8", "--objective", "time", "--stack", "vlm"),
            {"allow_quantise", "objective", "stack"},
        ),
        (
            ("--seq-len", 4096, "--keep", "tp=8", "--solve", 3, "--budget", 5),
            {"seq_len", "keep", "solve", "budget"},
        ),
        (("--top", 0), {"top"}),
    ],
)
def test_wrong_options_come_all_at_once(options, fields):
    done = run("plan", "llama-3.1-8b", *ON, *LENGTHS, *options, "--json")
    assert done.code == 2
    assert {problem["field"] for problem in done.data["problems"]} == fields
    assert all(problem["rule"] and problem["suggestion"] for problem in done.data["problems"])


@pytest.mark.parametrize("tokens", [0, -3, 2**30])
def test_lengths_out_of_range_are_refused(tokens):
    done = run("plan", "llama-3.1-8b", *ON, "--input-tokens", tokens, "--output-tokens", tokens, "--json")
    assert done.code == 2
    assert {problem["field"] for problem in done.data["problems"]} == {"input_tokens", "output_tokens"}


def test_a_missing_length_is_named():
    done = run("plan", "llama-3.1-8b", *ON, "--input-tokens", 100, "--json")
    assert (done.code, [problem["field"] for problem in done.data["problems"]]) == (2, ["output_tokens"])


def test_a_training_refuses_options_of_requests():
    done = run("plan", "llama-3.1-8b", *ON, "--seq-len", 4096, "--global-batch", 8, "--rate", 3, "--json")
    assert (done.code, [problem["field"] for problem in done.data["problems"]]) == (2, ["rate"])


def test_the_python_function_answers_alike():
    found = mw.plan("llama-3.1-8b", on=ON[1], input_tokens=4000, output_tokens=1, stack="sglang", top=1)
    assert found.data["plans"][0]["predict"]["serving"]["tpot_s"] is None
    with pytest.raises(InputError):
        mw.plan("llama-3.1-8b", on=ON[1], input_tokens=4000, output_tokens=10, seq_len=5)
    with pytest.raises(InfeasibleError):
        mw.plan("llama-3.1-8b", on=ON[1], input_tokens=4000, output_tokens=10, max_ttft_ms=0.1)


def test_the_text_has_plans_reasons_and_refusals():
    done = run(*QUESTION, "--why")
    assert done.code == 0
    for part in ("output tokens/s", "Why plan 1", "Engines", "Not taken:", "attention_dp of a dense model"):
        assert part in done.out
