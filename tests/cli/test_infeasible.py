"""An answer that is "no": exit code 1, the reason, and a cluster that would do."""

import re
import resource

import pytest
from command_runs import QUESTION, run

LARGE = ("llama-3.1-405b", "--seq-len", "8192", "--global-batch", "64")
CLUSTER = re.compile(r"Suggestion: (\S+ x (\d+)\S*(?: @ \S+)?) would do")


def test_a_model_that_is_too_large_names_the_reason_and_a_cluster_that_does():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    done = run("plan", *LARGE, "--on", "a100-sxm-40gb x 8")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 10
    assert (done.code, done.out) == (1, "")
    assert "No plan of llama-3.1-405b fits on a100-sxm-40gb x 8." in done.err
    assert re.search(r"states alone take at least \S+ (GiB|TiB) per device, usable are \S+ GiB", done.err)
    name, count = CLUSTER.search(done.err).groups()
    assert name == f"a100-sxm-40gb x {count}"
    assert run("plan", *LARGE, "--on", name).code == 0
    assert run("plan", *LARGE, "--on", f"a100-sxm-40gb x {int(count) // 2}").code == 1


def test_the_same_in_json():
    done = run("plan", *LARGE, "--on", "a100-sxm-40gb x 8", "--json")
    assert (done.code, done.err) == (1, "")
    assert done.data["plans"] == []
    assert done.data["reasons"]
    assert "would do" in done.data["suggestion"]


def test_memory_comes_first_and_every_rule_is_counted():
    done = run("plan", *LARGE, "--on", "a100-sxm-40gb x 224", "--json")
    first, second, *rest = done.data["reasons"]
    assert re.fullmatch(r"the leanest plan needs (at least )?\S+ GiB per device, usable are \S+ GiB", first)
    assert re.fullmatch(r"[\d,]+ plans: (states alone|peak memory) exceed.*", second)
    assert any("tp does not divide" in reason for reason in rest)


@pytest.mark.parametrize(
    ("options", "message", "suggestion"),
    [
        (("--keep", "tp=3"), "No plan of llama-3.1-8b is legal on h100-sxm-80gb x 8.", "keep less"),
        (("--keep", "pp=64", "--keep", "tp=64"), "is legal on", "keep less"),
        (("--seq-len", 2**27), "fits on", "x 4096 would do"),
        (("--seq-len", 2**27, "--keep", "cp=1"), "fits on", "another device with more memory"),
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


def test_a_question_with_no_answer_anywhere_takes_seconds():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    done = run(
        "plan", "kimi-k2", *QUESTION[2:], "--on", "a10 x 8", "--global-batch", "4096", "--seq-len", 2**17
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 30
    assert done.code == 1
