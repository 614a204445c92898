"""The document of a report: its figures are those of predict and explain, and what is missing has its reason."""

import json

import pytest
from encoder_cases import CONFIGS, INPUTS
from explained_cases import QUESTION, in_full, plan, resolved

from meshwright import api
from meshwright.errors import InputError
from meshwright.explanation.report.report_document import SEARCH_KEYS, ReportRequest, report_document
from meshwright.explanation.report.report_requests import answer_report, file_report
from meshwright.plans.files.plan_file import dump_plan
from meshwright.verbs.predict.predict_plan import predicted


def silent(what, part):
    """Hear nothing of the progress."""


def unsearched(subject):
    """Return the request for a plan at hand."""
    return ReportRequest("plan", subject, predicted(subject), search=False)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    changes = {
        "own": {},
        "other": {"recompute": "full"},
        "large": {"layout": {"dp_shard": 8}, "pipeline": {"micro_batch": 4}},
    }
    for name, changed in changes.items():
        (folder / f"{name}.yaml").write_text(dump_plan(plan(**changed), {}))
    return {name: folder / f"{name}.yaml" for name in changes}


@pytest.fixture(scope="module")
def document(files):
    request = file_report(files["own"], [files["other"], "recommended"], tokens="1T")
    return json.loads(json.dumps(report_document(request, silent), allow_nan=False))


def test_figures_are_those_of_predict_and_explain(document, files):
    assert document["predict"] == json.loads(json.dumps(api.predict(files["own"], tokens="1T").to_json()))
    explained = json.loads(json.dumps(api.explain(files["own"]).to_json()))
    assert document["explain"] == {key: explained[key] for key in document["explain"]}
    assert document["pareto_memory"] == explained["pareto_memory"]
    assert document["not_simulated"] is None
    step = document["timeline"]["step_time_s"]
    assert step == pytest.approx(document["predict"]["step_time_s"], rel=0.01)


def test_compared_plans_have_their_predictions(document, files):
    own, other, recommended = document["against"]
    for row, file in ((own, files["own"]), (other, files["other"])):
        report = api.predict(file, tokens="1T").to_json()
        assert row["step_time_s"] == report["step_time_s"]
        assert row["days"] == report["training"]["days"]
        assert row["usd"] == report["training"]["usd"]
        assert row["risk_of_not_fitting"] == 1 - report["fits_probability"]
    assert own["why"] is None
    assert other["changes"] == {"recompute": ["none", "full"]}
    assert other["why"] == " ".join(api.explain(files["own"], against=files["other"]).to_json()["summary"])
    assert recommended["name"] == "recommended"
    assert recommended["step_time_s"] <= own["step_time_s"]


def test_the_search_is_that_of_plan(document):
    answer = api.plan(
        QUESTION["model"], on=QUESTION["cluster"], seq_len=4096, global_batch=32, top=1
    ).to_json()
    search = document["search"]
    assert {key: search[key] for key in SEARCH_KEYS} == json.loads(
        json.dumps({key: answer[key] for key in SEARCH_KEYS})
    )
    assert search["recommended"]["plan"] == json.loads(json.dumps(answer["plans"][0]["plan"]))


def test_without_a_search_its_keys_are_null_and_say_so(files):
    found = report_document(file_report(files["own"], search=False), silent)
    explained = found["explain"]
    assert found["search"] is found["pareto_memory"] is None
    assert not found["searched"]
    for key in ("choices", "rivals", "turns", "schedule"):
        assert explained[key] is None
        assert "--no-search" in explained["origin"][key]
    assert explained["sensitivity"]
    assert explained["time"]["parts"]
    assert explained["devices"]


def test_a_plan_that_does_not_fit_has_its_report(files):
    found = report_document(file_report(files["large"], search=False), silent)
    assert not found["predict"]["fits"]
    assert "does not fit" in found["sentence"]
    assert found["timeline"]


def test_a_plan_in_long_form_has_its_report():
    found = report_document(unsearched(in_full()), silent)
    assert "with pp2 tp2 dp_shard2, 1f1b" in found["sentence"]
    assert found["layout"]["devices"] == 8


def test_problems_of_a_compared_plan_name_it(files, tmp_path):
    with pytest.raises(InputError) as error:
        file_report(files["own"], [files["other"], tmp_path / "missing.yaml"])
    assert error.value.problems[0].field.startswith("against.1")
    longer = plan(workload={"seq_len": 8192, "global_batch": 32})
    (tmp_path / "longer.yaml").write_text(dump_plan(longer, {}))
    with pytest.raises(InputError) as error:
        report_document(file_report(files["own"], [tmp_path / "longer.yaml"], search=False), silent)
    assert {problem.field for problem in error.value.problems} == {"against.0"}


@pytest.mark.slow
def test_the_answer_of_a_search_is_reported_with_its_search():
    found = api.plan(
        QUESTION["model"],
        on=QUESTION["cluster"],
        seq_len=4096,
        global_batch=32,
        keep=["pp=2"],
        tokens="1T",
        top=1,
    )
    data = found.to_json()
    document = report_document(answer_report(found, data), silent)
    assert document["predict"] == data["plans"][0]["predict"]
    assert document["search"] == {key: data[key] for key in SEARCH_KEYS}
    assert document["pareto"] is None


def test_other_numbers_of_devices_keep_the_batch():
    subject = resolved()
    found = report_document(unsearched(subject), silent)
    by_factor = {one["factor"]: one for one in found["explain"]["devices"]}
    assert set(by_factor) == {0.5, 2.0, 4.0}
    assert by_factor[2.0]["value"] == 16
    times = [by_factor[factor]["step_time_s"] for factor in sorted(by_factor)]
    assert times == sorted(times, reverse=True)
    twice = resolved(cluster="h100-sxm-80gb x 16", layout={"pp": 2, "dp_shard": 4, "tp": 2})
    assert by_factor[2.0]["step_time_s"] == pytest.approx(unsearched(twice).report.step_time_s)


@pytest.mark.parametrize(
    ("name", "words"),
    [("t5", "2,048 tokens and 512 for the encoder on"), ("vl", "each with 2 images of 1,024 patches, on")],
)
def test_the_answer_says_what_an_encoder_reads(name, words, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS[name]), encoding="utf-8")
    plan = {
        "plan": 1,
        "model": str(file),
        "cluster": "h100-sxm-80gb x 8",
        "stack": "generic",
        "workload": {"seq_len": 2048, "global_batch": 64, **INPUTS[name]},
        "layout": {"dp_shard": 8},
        "sharding": "zero1",
    }
    assert words in report_document(file_report(plan, search=False), silent)["sentence"]
