"""An answer that is "no": exit code 1, the reason, and a cluster that would do."""

import re

import pytest
from command_runs import QUESTION, run

from meshwright.cli.terminal.output import MORE_REASONS

ON_DEVICES = ("--keep", "offload.optimizer=none")
"""With states on the hosts some of these models fit."""
LARGE = ("llama-3.1-70b", "--seq-len", "4096", "--global-batch", "16", *ON_DEVICES)
HUGE = ("llama-3.1-405b", "--seq-len", "8192", "--global-batch", "64", *ON_DEVICES)
CLUSTER = re.compile(r"Suggestion: (\S+ x (\d+)\S*(?: @ \S+)?) would do")


@pytest.mark.slow
def test_a_model_that_is_too_large_names_the_reason_and_a_cluster_that_does():
    done = run("plan", *LARGE, "--on", "a100-sxm-40gb x 8")
    assert (done.code, done.out) == (1, "")
    assert "No plan of llama-3.1-70b fits on a100-sxm-40gb x 8." in done.err
    assert re.search(r"holds \S+ (GiB|TiB) on its fullest device, usable are \S+ GiB", done.err)
    name, count = CLUSTER.search(done.err).groups()
    assert name == f"a100-sxm-40gb x {count}"
    assert run("plan", *LARGE, "--on", name).code == 0
    assert run("plan", *LARGE, "--on", f"a100-sxm-40gb x {int(count) // 2}").code == 1


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("model", "on", "options"),
    [
        ("llama-3.1-70b", ("h100-sxm-80gb x 4",), ("--stack", "deepspeed")),
        ("llama-3.1-70b", ("h100-sxm-80gb x 2",), ("--stack", "meshwright", "--schedule", "zb-v")),
        pytest.param("llama-3.1-405b", ("a10 x 8", "l4 x 8"), (), marks=pytest.mark.slow),
        ("llama-3.1-405b", ("a100-sxm-40gb x 8",), ()),
    ],
)
def test_a_refusal_for_memory_begins_with_what_the_leanest_plan_holds(model, on, options):
    words = [word for one in on for word in ("--on", one)]
    done = run("plan", model, *words, "--seq-len", "4096", "--global-batch", "64", *ON_DEVICES, *options)
    title, *lines = done.err.splitlines()
    assert title.startswith(f"No plan of {model} fits on ")
    text = " ".join(line.strip(" -") for line in lines)
    total, usable = map(
        float, re.search(r"holds ([\d.]+) GiB on \S+ fullest .* are ([\d.]+) GiB", text).groups()
    )
    kinds = dict(re.findall(r"(\w+) ([\d,.]+\d)", re.search(r"it holds in GiB: (.*) it is ", text)[1]))
    assert {"parameters", "gradients", "optimizer", "activations", "workspace"} <= kinds.keys()
    assert sum(map(float, kinds.values())) == pytest.approx(total, abs=0.05)
    capacity = float(re.search(r"a device has ([\d.]+) GiB: allocators reserve and fragment \d+%", text)[1])
    assert usable < capacity < total
    assert all(len(line) <= 100 for line in lines)
    assert "plans: " not in text
    assert lines[-1] == MORE_REASONS


@pytest.mark.slow
def test_counts_come_with_why_and_are_those_of_the_json():
    question = ("plan", *LARGE, "--on", "a100-sxm-40gb x 8")
    done = run(*question, "--json")
    assert (done.code, done.err, done.data["plans"]) == (1, "", [])
    assert "would do" in done.data["suggestion"]
    reasons = done.data["reasons"]
    done = run(*question, "--why")
    text = re.sub(r"\n    ", " ", done.err)
    assert all(f"  - {reason}\n" in text for reason in reasons)
    assert "the leanest plan holds" in text
    assert MORE_REASONS not in text


def test_rules_come_once_and_without_counts():
    question = ("plan", "llama-3.1-8b", "--on", "37xH100", "--seq-len", "4096", "--global-batch", "1")
    short, full = run(*question).err, run(*question, "--why").err
    assert "  - dp·micro_batch does not divide global_batch = 1\n" in short
    assert "equal to a plan" not in short
    assert full.count("does not divide global_batch = 1") == 1
    assert re.search(r"  - [\d,]+ plans: dp·micro_batch does not divide global_batch = 1\n", full)


def test_memory_comes_first_and_every_rule_is_counted():
    done = run("plan", *HUGE, "--on", "a100-sxm-40gb x 224", "--json")
    first, second, *rest = done.data["reasons"]
    assert re.fullmatch(r"the leanest plan needs (at least )?\S+ GiB per device, usable are \S+ GiB", first)
    assert re.fullmatch(r"[\d,]+ plans: (states alone|peak memory) exceed.*", second)
    assert any("tp does not divide" in reason for reason in rest)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("options", "message", "suggestion"),
    [
        (("--keep", "tp=3"), "No plan of llama-3.1-8b is legal on h100-sxm-80gb x 8.", "keep less"),
        (("--keep", "pp=64", "--keep", "tp=64"), "is legal on", "keep less"),
        pytest.param(("--seq-len", 2**27), "fits on", "x 4096 would do", marks=pytest.mark.slow),
        pytest.param(
            *(("--seq-len", 2**27, "--keep", "cp=1"), "fits on", "another device with more memory"),
            marks=pytest.mark.slow,
        ),
        (("--on", "h100-sxm-80gb x 37", "--global-batch", "1"), "is legal on", "x 40 would do"),
    ],
)
def test_other_answers_that_are_no(options, message, suggestion):
    question = QUESTION[2:] if "--on" in options else QUESTION
    done = run("plan", "llama-3.1-8b", *question, *options)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert suggestion in done.err


def test_a_named_node_stays_in_the_suggestion():
    done = run("plan", "llama-3.1-70b", *QUESTION[2:], "--on", "h100-sxm-80gb x 4 @ aws-p5.48xlarge")
    assert done.code == 1
    name, _ = CLUSTER.search(done.err).groups()
    assert name.endswith(" @ aws-p5.48xlarge")
    assert run("plan", "llama-3.1-70b", *QUESTION[2:], "--on", name).code == 0


@pytest.mark.slow
def test_a_large_question_with_no_answer_anywhere():
    done = run(
        "plan", "kimi-k2", *QUESTION[2:], "--on", "a10 x 8", "--global-batch", "4096", "--seq-len", 2**17
    )
    assert done.code == 1
