"""Wrong input: a message with field, value, rule and suggestion, exit code 2, never a traceback."""

import json

import pytest
from command_runs import QUESTION, TINY, plan_text, refused, run, write

QUESTIONS = [
    (("--seq-len", "-1"), "workload.seq_len = -1: must be a whole number from 1"),
    (("--seq-len", "0"), "workload.seq_len = 0: must be a whole number from 1"),
    (("--seq-len", 10**30), f"workload.seq_len = {10**30}: must be a whole number from 1 to"),
    (("--global-batch", "0"), "workload.global_batch = 0: must be a whole number from 1"),
    (("--global-batch", "-7"), "workload.global_batch = -7: must be a whole number from 1"),
    (("--global-batch", 10**30), f"workload.global_batch = {10**30}: must be"),
    (("--top", "0"), "top = 0: must be at least 1"),
    (("--top", "-3"), "top = -3: must be at least 1"),
    (("--on", "h100-sxm-80gb x 0"), "cluster.count = '0': the number of devices must be"),
    (("--on", "h100-sxm-80gb x -8"), "cluster.count = '-8'"),
    (("--on", "h100-sxm-80gb x 1e9"), "cluster.count = '1e9'"),
    (("--on", f"h100-sxm-80gb x {10**20}"), f"cluster.count = '{10**20}'"),
    (("--on", "h100-sxm-80gb"), "is neither `DEVICE x COUNT`"),
    (("--on", ""), "is neither `DEVICE x COUNT`"),
    (("--on", "h100-sxm-8gb x 8"), "did you mean h100-sxm-80gb"),
    (("--on", "none.yaml"), "No such file"),
    (("--stack", "megatroncore"), "did you mean megatron-core"),
    (("--stack", "megatron-core@7"), "no facts about this release"),
    (("--stack", "none.yaml"), "No such file"),
    (("--precision", "bf17"), "workload.precision = 'bf17': unknown. Suggestion: one of"),
    (("--precision", "fp32"), "not supported yet"),
    (("--precision", "fp8", "--on", "a100-sxm-80gb x 8"), "a100-sxm-80gb has no such matrix units"),
    (("--task", "serve"), "workload.task = 'serve': is part of the plan language and not supported yet"),
    (("--task", "train"), "workload.task = 'train': unknown"),
    (("--keep", "tp"), "keep.tp = '': must be a whole number from 1"),
    (("--keep", "tp=0"), "keep.tp = '0'"),
    (("--keep", "tp=2.5"), "keep.tp = '2.5'"),
    (("--keep", f"tp={10**20}"), "keep.tp"),
    (("--keep", "tensor=2"), "keep = 'tensor=2': is no choice of a plan. Suggestion: "),
    (
        ("--keep", "sharding=zero9"),
        "keep.sharding = 'zero9': is no such choice. Suggestion: did you mean zero",
    ),
    (("--keep", "schedule=dualpipes"), "keep.schedule = 'dualpipes': is no such choice"),
    (("--keep", "schedule=zb-v"), "keep.schedule = 'zb-v': megatron-core@0.19 does not run this schedule"),
    (("--schedule", "zb-w"), "schedule = 'zb-w': is no such choice. Suggestion: did you mean zb-v"),
    (("--schedule", ""), "schedule = '': is no such choice"),
    (("--schedule", "1f1b,auto"), "schedule = '1f1b,auto': auto means all schedules and stands alone"),
    (("--schedule", "1f1b,v-half"), "schedule = 'v-half': megatron-core@0.19 does not run this schedule"),
    (("--schedule", "1f1b", "--keep", "schedule=1f1b"), "the schedule is said twice"),
]


@pytest.mark.parametrize(("options", "words"), QUESTIONS, ids=lambda value: str(value)[:40])
def test_wrong_questions(options, words):
    message = refused("plan", "llama-3.1-8b", *QUESTION, *options)
    assert words in message
    assert "Suggestion: " in message


def test_all_problems_of_a_question_come_at_once():
    wrong = {
        "--on": "h10 x 8",
        "--stack": "megatroncore",
        "--seq-len": 0,
        "--global-batch": -3,
        "--precision": "bf17",
        "--keep": "tp=x",
        "--top": 0,
    }
    line = [word for option in wrong.items() for word in option]
    problems = run("plan", "lama-3.1-8b", *line, "--json").data["problems"]
    fields = ["cluster.device", "keep.tp", "model", "stack", "top"]
    workload = ["workload.global_batch", "workload.precision", "workload.seq_len"]
    assert sorted(problem["field"] for problem in problems) == fields + workload


def test_all_wrong_nouns_of_a_question_come_at_once():
    message = refused("plan", "lama-3.1-8b", *QUESTION[2:], "--on", "h10 x 8", "--stack", "megatroncore")
    assert "did you mean llama-3.1-8b" in message
    assert "cluster.device = 'h10'" in message
    assert "did you mean megatron-core" in message


@pytest.mark.parametrize(
    "name", ["", ".", "llama", "Llama-3.1-9B", "/", "/dev/null", "a" * 5000, "\0", "a\nb"]
)
@pytest.mark.parametrize("verb", [("describe",), ("plan", *QUESTION)], ids=["describe", "plan"])
def test_names_that_mean_no_model(verb, name):
    refused(verb[0], name, *verb[1:])


def test_an_unknown_name_is_answered_with_near_ones_of_all_kinds():
    assert "did you mean torchtitan" in refused("describe", "torchtian")
    assert "gemma-2-9b" in refused("describe", "gemma2-8b")
    assert "did you mean h200-sxm-141gb" in refused("describe", "h200-sxm-141g")
    assert "did you mean megatron?" in refused("export", "x.yaml", "--to", "megatrn")


BAD_CONFIGS = {
    "absent": None,
    "empty": b"",
    "blank": b" \n",
    "binary": bytes(range(256)),
    "half": json.dumps(TINY).encode()[:100],
    "list": b"[1]",
    "null": b"null",
    "deep": b"[" * 100_000,
    "nan": json.dumps(TINY | {"rms_norm_eps": float("nan")}).encode(),
    "negative": json.dumps(TINY | {"num_hidden_layers": -4}).encode(),
    "absurd": json.dumps(TINY | {"hidden_size": 10**30}).encode(),
    "text": json.dumps(TINY | {"num_hidden_layers": "four"}).encode(),
    "no model_type": json.dumps({k: v for k, v in TINY.items() if k != "model_type"}).encode(),
    "other model_type": json.dumps(TINY | {"model_type": "resnet"}).encode(),
    "uneven heads": json.dumps(TINY | {"num_key_value_heads": 3}).encode(),
    "long": b"{" + b" " * (5 * 2**20) + b"}",
}


@pytest.mark.parametrize("kind", BAD_CONFIGS)
@pytest.mark.parametrize("verb", [("describe",), ("plan", *QUESTION)], ids=["describe", "plan"])
def test_bad_model_files(tmp_path, verb, kind):
    file = tmp_path / "config.json"
    if BAD_CONFIGS[kind] is not None:
        file.write_bytes(BAD_CONFIGS[kind])
    refused(verb[0], file, *verb[1:])
    problems = run(verb[0], file, *verb[1:], "--json").data["problems"]
    assert all(problem["suggestion"] for problem in problems)


def test_a_directory_without_a_configuration_is_no_model(tmp_path):
    assert "no such file" in refused("describe", tmp_path)


BAD_PLANS = {
    "absent": None,
    "empty": b"",
    "binary": bytes(range(256)),
    "half": plan_text().encode()[:95],
    "list": b"[1, 2]",
    "deep": b"[" * 5000,
    "anchor": b"a: &a [1]\nb: [*a, *a]\n",
    "long": b"#" * 2**18,
    "nan": plan_text(workload="{seq_len: 4096, global_batch: .nan}").encode(),
    "infinite": plan_text(workload="{seq_len: .inf, global_batch: 8}").encode(),
    "twice": (plan_text() + "plan: 1\n").encode(),
    "no layout": plan_text(layout="").encode(),
}


@pytest.mark.quick_cases(16)
@pytest.mark.parametrize("kind", BAD_PLANS)
@pytest.mark.parametrize("verb", ["predict", "describe", "compare", "export"])
def test_bad_plan_files(tmp_path, verb, kind):
    file = tmp_path / "plan.yaml"
    if BAD_PLANS[kind] is not None:
        file.write_bytes(BAD_PLANS[kind])
    rest = {"compare": [file], "export": ["--to", "megatron"]}.get(verb, [])
    refused(verb, file, *rest)
    assert run(verb, file, *rest, "--json").data["problems"]


@pytest.mark.parametrize("verb", ["predict", "describe", "export"])
def test_a_directory_is_no_plan(tmp_path, verb):
    folder = tmp_path / "plan.yaml"
    folder.mkdir()
    assert "directory" in refused(verb, folder, *(["--to", "megatron"] if verb == "export" else []))


PLANS = [
    ({"colour": "red"}, "colour = 'red': unknown key. Suggestion: "),
    (
        {"layout": "{pp: 1, dp_shard: 4, tp: 2, tpp: 2}"},
        "layout.tpp = 2: unknown key. Suggestion: did you mean",
    ),
    ({"plan": "2"}, "plan = 2: must be at most 1"),
    ({"model": "llama-3.1-80b"}, "did you mean llama-3.1-8b"),
    ({"cluster": "h101-sxm-80gb x 8"}, "did you mean h100-sxm-80gb"),
    ({"stack": "megatron"}, "did you mean megatron-core"),
    ({"layout": "{pp: 1, dp_shard: 4, tp: 3}"}, "1·1·4·1·3 = 12 ≠ 8 devices"),
    ({"layout": "{dp_shard: 3, tp: 3}", "cluster": "h100-sxm-80gb x 9"}, "heads % tp = 32 % 3 = 2 ≠ 0"),
    (
        {"layout": "{tp: 64}", "cluster": "h100-sxm-80gb x 64"},
        "heads % tp = 32 % 64 = 32 ≠ 0. Suggestion: tp: 8",
    ),
    ({"layout": "{pp: 40}", "cluster": "h100-sxm-80gb x 40"}, "pp·virtual_stages = 40 stages > 32 layers"),
    ({"layout": "{dp_shard: 8}", "workload": "{seq_len: 4096, global_batch: 4}"}, "4 % (1·8·2) = 4 ≠ 0"),
    ({"layout": "{dp_shard: 4, cp: 2}", "workload": "{seq_len: 4098, global_batch: 64}"}, "4098 % 4 = 2 ≠ 0"),
    ({"layout": "{dp_shard: 8, ep: 2}"}, "the model has no experts"),
    ({"pipeline": "{schedule: dualpipe}"}, "pipeline.schedule = 'dualpipe': "),
    (
        {"pipeline": "{schedule: 1f2b}"},
        "pipeline.schedule = '1f2b': unknown schedule. Suggestion: did you mean 1f1b",
    ),
    ({"pipeline": "{micro_batch: 0}"}, "pipeline.micro_batch = 0: must be at least 1"),
    ({"pipeline": "{micro_batch: -2}"}, "pipeline.micro_batch = -2: must be at least 1"),
    ({"pipeline": f"{{micro_batch: {10**30}}}"}, "must be at most"),
    ({"pipeline": "{micro_batch: two}"}, "pipeline.micro_batch = 'two': must be a whole number"),
    ({"recompute": "[moe]"}, "llama-3.1-8b has no operator of this kind. Suggestion: recompute: [core_attn]"),
]


@pytest.mark.parametrize(("changes", "words"), PLANS, ids=lambda value: str(value)[:60])
def test_wrong_plans(tmp_path, changes, words):
    message = refused("predict", write(tmp_path / "plan.yaml", plan_text(**changes)))
    assert words in message
    assert "Suggestion: " in message


def test_what_the_stack_cannot_do_is_a_remark_of_predict_and_an_error_of_export(tmp_path):
    path = write(tmp_path / "plan.yaml", plan_text(sharding="zero2", layout="{pp: 2, dp_shard: 4}"))
    assert "does not run zero2 with pp = 2 > 1" in refused("export", path, "--to", "megatron")
    predicted = run("predict", path)
    assert predicted.code == 0
    assert "does not run zero2 with pp = 2 > 1" in predicted.out + predicted.err


SETTINGS = [
    ("tp=3", "8 / (1·1·1·3) = 2.66667 is not whole. Suggestion: tp one of 1, 2, 4, 8"),
    ("tp=0", "layout.tp = 0: must be at least 1"),
    ("tp", "set = 'tp': must read name=value"),
    ("tensors=4", "set = 'tensors': unknown key. Suggestion: "),
    ("tensor=4", "workload.optimizer.tensor = 4: "),
    ("global_batch=7", "7 % (1·4·2) = 7 ≠ 0: less than one micro-batch for each of 4 replicas"),
    ("global_batch=.nan", "must be finite"),
    ("cluster=nope x 8", "cluster.device = 'nope'"),
    ("model=nope", "no zoo model"),
    ("rank_order=[tp]", "must name each of tp, cp, dp_shard, dp_replicate, pp once"),
    ("recompute=[a, b]", "recompute"),
    ("micro_batch=" + "9" * 50, "digits"),
]


@pytest.mark.parametrize(("setting", "words"), SETTINGS)
def test_wrong_settings(tmp_path, setting, words):
    file = write(tmp_path / "plan.yaml", plan_text())
    assert words in refused("predict", file, "--set", setting)
    assert run("predict", file, "--set", setting, "--json").data["problems"]


@pytest.mark.parametrize("value", [-1, 0, 10**30, 10**330])
def test_describe_wants_a_sensible_length(value):
    assert "must be a whole number from 1 to" in refused("describe", "llama-3.1-8b", "--seq-len", value)


@pytest.mark.parametrize("verb", ["validate", "calibrate"])
def test_tables_of_runs_that_are_none(tmp_path, verb):
    for content in (None, b"", bytes(range(256)), b"a,b\n1,2\n"):
        file = tmp_path / f"{verb}.csv"
        if content is not None:
            file.write_bytes(content)
        assert run(verb, file).code == 2
