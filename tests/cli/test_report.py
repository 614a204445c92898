"""``meshwright report`` and ``plan --report`` from the command line: files, exit codes, wrong input."""

import pytest
from command_runs import plan_text, refused, run, write

import meshwright as mw


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    changes = {"model": "llama-3.2-1b", "cluster": "h100-sxm-80gb x 2", "layout": "{dp_shard: 2}"}
    return write(tmp_path_factory.mktemp("report") / "small.yaml", plan_text(**changes))


def test_the_page_is_beside_the_plan_and_json_says_where(small):
    done = run("report", small, "--no-search", "--json")
    page = small.with_suffix(".html")
    assert done.code == 0
    assert done.data["path"] == str(page)
    assert done.data["bytes"] == len(page.read_bytes())
    assert done.data["predict"] == run("predict", small, "--json").data
    text = run("report", small, "--no-search", "-o", small.with_name("other.html"))
    assert done.data["sentence"].split()[0] in text.out
    assert "other.html" in text.out
    assert small.with_name("other.html").read_bytes() == page.read_bytes()


def test_a_plan_that_does_not_fit_has_a_page_and_exits_with_1(tmp_path):
    large = {"model": "llama-3.1-70b", "cluster": "h100-sxm-80gb x 8", "layout": "{dp_shard: 8}"}
    file = write(tmp_path / "large.yaml", plan_text(**large))
    done = run("report", file, "--no-search")
    assert done.code == 1
    assert "does not fit" in done.out
    assert "does not fit" in file.with_suffix(".html").read_text(encoding="utf-8")


def test_wrong_input_writes_nothing(small, tmp_path):
    page = tmp_path / "page.html"
    assert "missing.yaml" in refused("report", tmp_path / "missing.yaml", "-o", page)
    assert "would be lost" in refused("report", small, "-o", small)
    assert "output" in refused("report", small, "-o", tmp_path / "none" / "page.html")
    assert "against.0" in refused("report", small, "--against", tmp_path / "none.yaml", "-o", page)
    assert "tokens" in refused("report", small, "--tokens", "many", "-o", page)
    assert not page.exists()


def test_plan_writes_the_report_of_its_recommendation(tmp_path):
    page = tmp_path / "page.html"
    question = ("plan", "llama-3.2-1b", "--on", "h100-sxm-80gb x 2", "--seq-len", 2048, "--global-batch", 4)
    done = run(*question, "--report", page)
    assert done.code == 0
    assert str(page) in done.out
    assert "Bounds prove" in page.read_text(encoding="utf-8")


def test_a_question_without_an_answer_has_a_page_with_its_reasons(tmp_path):
    page = tmp_path / "page.html"
    question = ("plan", "llama-3.1-405b", "--on", "h100-sxm-80gb x 8", "--seq-len", 2048, "--global-batch", 8)
    done = run(*question, "--report", page, "--json")
    assert done.code == 1
    text = page.read_text(encoding="utf-8")
    assert done.data["error"] in text
    assert "x 40" in text


def test_an_answer_of_plan_has_its_page_for_notebooks(tmp_path):
    answer = mw.plan("llama-3.2-1b", on="h100-sxm-80gb x 2", seq_len=2048, global_batch=4, top=1)
    page = answer.report(tmp_path / "page.html", no_search=True)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    frame = page._repr_html_()
    assert frame.startswith("<iframe")
    assert "<script" not in frame
    with pytest.raises(mw.InputError, match="holds no plan"):
        mw.devices("h100").report()
