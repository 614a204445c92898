"""A described plan is a plan file again."""

import pytest

from meshwright import api
from meshwright.plans.files.plan_file import parse_plan
from meshwright.present.description import render_description

PLAN = """
plan: 1
model: mixtral-8x7b
cluster: a100-sxm-80gb x 32
workload: {seq_len: 4096, global_batch: 256}
layout: {pp: 4, dp_shard: 8, ep: 4}
sharding: zero1
pipeline: {schedule: interleaved-1f1b, virtual_stages: 2}
"""


@pytest.mark.parametrize("long", [False, True])
def test_what_is_printed_can_be_read_and_predicts_the_same(long, tmp_path, capsys):
    given, printed = tmp_path / "given.yaml", tmp_path / "printed.yaml"
    given.write_text(PLAN, encoding="utf-8")
    render_description(api.describe(str(given), long=long))
    printed.write_text(capsys.readouterr().out, encoding="utf-8")
    assert ("layouts" in parse_plan(printed.read_text(encoding="utf-8")).to_data()) is long
    assert api.predict(printed).to_json() == api.predict(given).to_json()
