"""``plan --routing`` and ``workload.routing``: a word, an exponent, a file of counts; and what is wrong with them."""

import pytest
from command_runs import run

QUESTION = ("plan", "mixtral-8x7b", "--on", "h100-sxm-80gb x 32", "--seq-len", "4096", "--global-batch", "64")
KEPT = ("--keep", "ep=8", "--keep", "etp=1", "--keep", "micro_batch=1", "--top", "1", "--json")


def best(*options):
    done = run(*QUESTION, *KEPT, *options)
    assert done.code == 0, done.err
    return done.data["plans"][0]


def test_what_is_said_of_routing_is_in_the_plan_and_slows_it():
    even, skewed = best("--routing", "balanced"), best("--routing", "0.3")
    assert even["plan"]["workload"]["routing"] == "balanced"
    assert skewed["plan"]["workload"]["routing"] == 0.3
    assert even["predict"]["step_time_s"] < skewed["predict"]["step_time_s"]


def test_a_file_of_counts_is_written_out_in_the_plan_and_predicts_the_same(tmp_path):
    counts, plan = tmp_path / "counts.csv", tmp_path / "plan.yaml"
    counts.write_text("5,1,1,1,1,1,1,1\n" * 32)
    found = best("--routing", str(counts), "-o", str(plan))
    assert found["plan"]["workload"]["routing"] == [[5, 1, 1, 1, 1, 1, 1, 1]] * 32
    again = run("predict", str(plan), "--json")
    assert again.data["step_time_s"] == found["predict"]["step_time_s"]
    one_row = run("predict", str(plan), "--set", "workload.routing=[[5,1,1,1,1,1,1,1]]", "--json")
    assert one_row.data["step_time_s"] == pytest.approx(again.data["step_time_s"], rel=1e-12)


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("9", "Zipf's exponent must be from 0"),
        ("1e3", "can not be read"),
        ("nothing.csv", "can not be read"),
        ("", "can not be read"),
        ("nan", "can not be read"),
    ],
)
def test_what_says_nothing_of_routing_is_refused(said, rule):
    done = run(*QUESTION, "--routing", said)
    assert done.code == 2
    assert "workload.routing" in done.err
    assert rule in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("1,2\n", "has counts of 2 experts, the model has 8"),
        ("1,1,1,1,1,1,1,1\n" * 3, "has 3 rows, the model has 32 routed layers"),
        ("1,x\n", "could not convert string to float"),
        ("\n", "has no line"),
        ("1,1\n1\n", "rows must be equally long"),
        ("0,0,0,0,0,0,0,0\n", "must be counts, some above 0"),
        ("-1,1,1,1,1,1,1,1\n", "must be counts, some above 0"),
        ("nan,1,1,1,1,1,1,1\n", "counts that are no finite numbers"),
        ("inf,1,1,1,1,1,1,1\n", "counts that are no finite numbers"),
    ],
)
def test_counts_that_do_not_fit_are_refused(tmp_path, text, rule):
    (tmp_path / "counts.csv").write_text(text)
    done = run(*QUESTION, "--routing", str(tmp_path / "counts.csv"))
    assert done.code == 2
    assert rule in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_a_model_without_experts_chooses_none():
    done = run("plan", "llama-3.1-8b", *QUESTION[2:], "--routing", "balanced")
    assert done.code == 2
    assert "the model has no experts" in done.err
