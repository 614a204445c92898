"""Text of predictions of plans that synchronise."""

import pytest
from source_tree import ROOT

from meshwright import python_api

EXAMPLES = ROOT / "examples" / "synchronise"


@pytest.fixture
def shown(capsys):
    def show(path, **options):
        answer = python_api.predict(path, **options)
        answer.render(answer.data)
        return answer.data, " ".join(capsys.readouterr().out.split())

    return show


def test_exchanges_have_a_row_each_and_steps_are_means(shown):
    data, text = shown(EXAMPLES / "des-loc.yaml")
    assert "per step, in the mean of 1,536" in text
    assert "Exchanges between replicas" in text
    for row in data["synchronise"]:
        assert f"{row['state']} dp_replicate {row['every']:,} " in text
    assert "synchronise" in text


def test_a_rule_is_named_and_a_step_without_entries_has_no_table(shown, tmp_path):
    data, text = shown(EXAMPLES / "qsr.yaml")
    assert data["steps_per_round"] is None
    assert "per step, in the mean (" in text
    assert "parameter dp_replicate rule " in text
    plain = (EXAMPLES / "qsr.yaml").read_text(encoding="utf-8").partition("synchronise:")[0]
    (tmp_path / "plain.yaml").write_text(plain, encoding="utf-8")
    _, text = shown(tmp_path / "plain.yaml")
    assert "Exchanges between replicas" not in text
    assert "per step (" in text
