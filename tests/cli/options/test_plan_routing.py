"""``plan --routing`` and ``workload.routing``: a word, an exponent, a file of counts; and what is wrong with them."""

import pytest
from command_runs import run
from mixtral_plans import QUESTION, best


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


CLUSTERS = ((0, 3, 5, 6), (1, 2, 4, 7))
FEW = ("ep=4", "etp=1", "tp=1", "cp=1", "pp=2", "sharding=zero1", "schedule=1f1b", "recompute=full")


def pairs_of_clusters(path):
    """Tokens choose two experts of one cluster; the later ones of it more often."""
    weight = {expert: 1 + place for cluster in CLUSTERS for place, expert in enumerate(cluster)}
    together = {frozenset((a, b)): weight[a] * weight[b] for of in CLUSTERS for a in of for b in of if a != b}
    rows = [[together.get(frozenset((one, other)), 0) for other in range(8)] for one in range(8)]
    for expert, row in enumerate(rows):
        row[expert] = sum(row)
    path.write_text("pairs\n" + "".join(",".join(map(str, row)) + "\n" for row in rows) * 32)
    return path


def placed(tmp_path, *options):
    kept = [word for choice in FEW for word in ("--keep", choice)]
    question = (
        "--on",
        "h100-sxm-80gb x 32",
        "--seq-len",
        "4096",
        "--global-batch",
        "64",
        "--top",
        "1",
        "--json",
    )
    output = tmp_path / "plans" / "plan.yaml"
    output.parent.mkdir(exist_ok=True)
    done = run("plan", "mixtral-8x7b", *question, *kept, *options, "-o", str(output))
    assert done.code == 0, done.err
    return done.data["plans"][0], output


@pytest.mark.parametrize("stack", ["generic", "meshwright"])
def test_pairs_place_experts(tmp_path, stack):
    file = pairs_of_clusters(tmp_path / "pairs.csv")
    found, output = placed(tmp_path, "--routing", str(file), "--stack", stack)
    rows = found["plan"]["layout"]["expert_order"]
    assert {tuple(sorted(row)) for row in rows} == {tuple(range(8))}
    experts = found["experts"]
    assert experts["exact"]
    assert experts["busiest_rank"][1] < experts["busiest_rank"][0]
    assert experts["step_time_s"] == sorted(experts["step_time_s"], reverse=True)
    assert experts["step_time_s"][1] == found["predict"]["step_time_s"]
    assert any("(predicted)" in str(one) for one in found["reasons"] if one["field"] == "expert_order")
    assert "../pairs.csv" in output.read_text()
    again = run("predict", str(output), "--json")
    assert again.data["step_time_s"] == found["predict"]["step_time_s"]
    plain = run("predict", str(output), "--set", "expert_order=null", "--json")
    assert plain.data["step_time_s"] == pytest.approx(experts["step_time_s"][0])


def test_a_stack_that_has_experts_as_the_model_does_keeps_them(tmp_path):
    found, _ = placed(tmp_path, "--routing", str(pairs_of_clusters(tmp_path / "pairs.csv")))
    assert found["experts"] is None
    assert "expert_order" not in found["plan"]["layout"]


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
