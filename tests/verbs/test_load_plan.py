"""Answers with constants that the user gave: every verb, every cluster, the command line and Python alike."""

import json

import pytest
from command_runs import QUESTION, plan_text, refused, run, write
from planning_questions import written

import meshwright as mw
from meshwright import api
from meshwright.errors import InputError

CONSTANTS = {
    "nic_efficiency": 0.5,
    "h100:gemm_efficiency": 0.5,
    "*/elementwise_factor": 1.5,
    "usable_memory": 0.85,
    "a100:gemm_efficiency": 0.4,
}
KEEP = ["cp=1", "recompute=none", "virtual_stages=1", "sharding=zero1"]
ASKED = {"seq_len": 2048, "global_batch": 32, "keep": KEEP, "top": 2}
MODEL, ON = "llama-3.2-1b", "h100-sxm-80gb x 16"


@pytest.fixture
def file(tmp_path):
    return written(tmp_path, json.dumps(CONSTANTS), "mine.json")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """A plan of two devices, the file of constants, and what the verbs say of the plan under them."""
    folder = tmp_path_factory.mktemp("constants")
    file, output = written(folder, json.dumps(CONSTANTS), "mine.json"), folder / "plan.yaml"
    recommended = plan("h100-sxm-80gb x 2", constants=file, output=output)["plans"][0]["predict"]
    found = {
        verb: getattr(mw, verb)(output, constants=file).to_dict() for verb in ("predict", "explain", "check")
    }
    found |= {"plan": recommended, "compare": mw.compare(output, output, constants=str(file)).to_dict()}
    return file, output, found


def plan(on=ON, **more):
    return mw.plan(MODEL, on=on, **ASKED | more).to_dict()


def test_the_recommended_plan_takes_as_long_as_it_is_predicted_with_the_same_file(tmp_path, file):
    output = tmp_path / "plan.yaml"
    first = plan(constants=file, output=output)["plans"][0]["predict"]
    again = mw.predict(output, constants=file).to_dict()
    assert again["step_time_s"] == first["step_time_s"]
    assert again["memory_bytes"] == first["memory_bytes"]
    assert (again["step_time_low_s"], again["step_time_high_s"]) == (
        first["step_time_low_s"],
        first["step_time_high_s"],
    )
    without = mw.predict(output).to_dict()
    assert without["step_time_s"] < 0.9 * first["step_time_s"]
    assert without["memory_bytes"]["usable"] > first["memory_bytes"]["usable"]


def test_the_answer_says_where_constants_come_from(answers):
    file, output, found = answers
    origins = [found[verb]["origin"]["constants"] for verb in found]
    remarks = [one for one in mw.predict(output, constants=file).remarks if one.startswith("constants ")]
    for where in (*origins, *remarks):
        assert f"given in {file}" in where
        assert "nic_efficiency = 0.5" in where
        assert "depends on none: a100:gemm_efficiency" in where
    assert len(remarks) == 1
    assert "but for those given by name" in found["predict"]["origin"]["step_time_s"]
    assert "constants" not in mw.predict(output).to_dict()["origin"]


def test_every_verb_prices_with_them(answers):
    file, output, found = answers
    step_s = found["predict"]["step_time_s"]
    rows = {row["quantity"]: row for row in found["compare"]["rows"]}
    against = mw.explain(output, against="recommended", constants=file).to_dict()
    for timed in (found["plan"], found["check"], found["explain"]["predict"], against["predict"]):
        assert timed["step_time_s"] == step_s
    assert rows["step_time_s"]["a"] == rows["step_time_s"]["b"] == step_s
    assert step_s > 1.1 * mw.predict(output).to_dict()["step_time_s"]


def test_files_of_a_prediction_have_the_times_under_the_given_constants(tmp_path, file):
    path = written(tmp_path)
    times = {}
    for name, constants in (("usual", None), ("given", file)):
        mw.predict(path, constants=constants, trace=tmp_path / name, stage_times=tmp_path / f"{name}.yaml")
        events = json.loads((tmp_path / name).read_text(encoding="utf-8"))["traceEvents"]
        times[name] = max(event["ts"] + event["dur"] for event in events if event.get("ph") == "X")
    assert times["given"] > 1.05 * times["usual"]
    usual, given = ((tmp_path / f"{name}.yaml").read_text(encoding="utf-8") for name in ("usual", "given"))
    assert usual.splitlines()[:1] == given.splitlines()[:1]
    assert usual != given


def test_every_searched_cluster_has_them(tmp_path, file):
    clusters = ["h100-sxm-80gb x 8", "h100-sxm-80gb x <=16", "a100-sxm-80gb x 16"]
    together = plan(clusters, constants=file)
    for row in (row for row in together["clusters"] if row["state"] == "searched"):
        alone = plan(row["cluster"], constants=file)
        assert row["step_time_s"] == pytest.approx(alone["plans"][0]["predict"]["step_time_s"], rel=1e-9)
    usual = {row["cluster"]: row["step_time_s"] for row in plan(clusters)["clusters"]}
    searched = [row for row in together["clusters"] if row["state"] == "searched"]
    assert {row["cluster"].split()[0] for row in searched} == {"h100-sxm-80gb", "a100-sxm-80gb"}
    assert all(row["step_time_s"] > usual[row["cluster"]] for row in searched if usual[row["cluster"]])


def test_several_models_have_them(file):
    found = mw.plan(["qwen3-8b", MODEL], on="h100-sxm-80gb x 8", **ASKED, constants=file).to_dict()
    alone = mw.plan("qwen3-8b", on="h100-sxm-80gb x 8", **ASKED, constants=file).to_dict()
    assert found["plans"][0]["predict"]["step_time_s"] == alone["plans"][0]["predict"]["step_time_s"]


def test_element_types_are_searched_under_them(file):
    found = plan("h100-sxm-80gb x 8", constants=file, allow=["dtypes"])["plans"]
    assert len(found) == ASKED["top"]
    assert all("given in" in one["predict"]["origin"]["constants"] for one in found)


def test_usual_values_change_no_answer():
    usual = plan()
    given = plan(constants={"nic_efficiency": 0.658, "a100:gemm_efficiency": 0.4})
    assert given["plans"][0]["plan"] == usual["plans"][0]["plan"]
    assert given["plans"][0]["predict"]["step_time_s"] == usual["plans"][0]["predict"]["step_time_s"]


def test_a_calibrated_cluster_keeps_its_other_constants(tmp_path):
    text = "pools: [{device: h100-sxm-80gb, count: 16}]\ncalibration: {gemm_efficiency: 0.6, nic_efficiency: 0.5}\n"
    cluster = written(
        tmp_path, text + "calibrated: {stack: megatron-core, runs: 4, sigma: 0.04}\n", "own.yaml"
    )
    output = tmp_path / "plan.yaml"
    own = plan(str(cluster), output=output)["plans"][0]["predict"]
    changed = mw.predict(output, constants={"h100:gemm_efficiency": 0.5}).to_dict()
    assert changed["step_time_s"] > own["step_time_s"]
    assert changed["interval"]["parts"] == pytest.approx(own["interval"]["parts"], rel=0.2)
    assert "4 runs of megatron-core on this cluster" in changed["origin"]["step_time_low_s"]
    assert (
        mw.predict(output, constants={"h100:gemm_efficiency": 0.6}).to_dict()["step_time_s"]
        == own["step_time_s"]
    )


@pytest.mark.parametrize("verb", ["predict", "compare", "explain", "check"])
def test_the_command_line_answers_as_python_does(answers, verb):
    file, output, found = answers
    paths = [output, output] if verb == "compare" else [output]
    assert run(verb, *paths, "--constants", file, "--json").data == json.loads(json.dumps(found[verb]))


def test_the_command_line_remarks_what_was_given(answers):
    file, output, _ = answers
    assert f"Remark: constants given in {file}" in run("predict", output, "--constants", file).err
    keep = [word for one in KEEP for word in ("--keep", one)]
    assert (
        f"Remark: constants given in {file}" in run("plan", MODEL, *QUESTION, *keep, "--constants", file).err
    )
    assert f"Constants given in {file}" in run("compare", output, output, "--constants", file).out.replace(
        "\n", ""
    )


WRONG = "nic_eficiency: 0.7\nh100:gemm_efficiency: 71\nnem/elementwise_factor: 1\n"


@pytest.mark.parametrize("verb", ["plan", "predict", "compare", "explain", "check"])
def test_wrong_constants_are_refused_all_at_once(tmp_path, verb):
    file, path = written(tmp_path, WRONG, "mine.yaml"), write(tmp_path / "plan.yaml", plan_text())
    words = {"plan": ["llama-3.1-8b", *QUESTION], "compare": [path, path]}.get(verb, [path])
    message = refused(verb, *words, "--constants", file)
    for line in (
        "nic_eficiency = 0.7: is no",
        "h100:gemm_efficiency = 71: must be",
        "nem/elementwise_factor = 1: no",
    ):
        assert f"constants.{line}" in message
    assert message.count("Suggestion: ") == 3
    problems = run(verb, *words, "--constants", file, "--json").data["problems"]
    assert {tuple(sorted(one)) for one in problems} == {("field", "rule", "severity", "suggestion", "value")}
    assert len(problems) == 3


@pytest.mark.parametrize("verb", ["plan", "predict"])
def test_wrong_constants_come_with_other_problems(tmp_path, verb):
    file, path = written(tmp_path, WRONG, "mine.yaml"), tmp_path / "none.yaml"
    words = ["llama-3.1-8b", *QUESTION, "--price", "cheap", "--top", "0"] if verb == "plan" else [path]
    message = refused(verb, *words, "--constants", file)
    assert "constants.nic_eficiency" in message
    assert "top = 0" in message or "No such file" in message


def test_a_missing_file_of_constants_is_a_problem(tmp_path):
    path = write(tmp_path / "plan.yaml", plan_text())
    assert "No such file" in refused("predict", path, "--constants", tmp_path / "none.yaml")
    with pytest.raises(InputError):
        api.predict(path, constants={"nic_efficiency": "fast"})
