"""``export --check`` asks the target's own parser, ``--check=dry`` the target itself; both in a Python that has it."""

import sys

import pytest
from command_runs import refused, run

from meshwright.present.exported_files import render_export

PLAN = """
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 8
workload: {seq_len: 4096, global_batch: 64}
stack: torchtitan
layout: {dp_shard: 8}
sharding: zero3
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN, encoding="utf-8")
    return path


@pytest.mark.parametrize("words", [["--check"], ["--check=parser"], ["--check=dry"]])
def test_a_python_without_the_target_is_named(plan, words):
    bare = plan.with_name("python")
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    said = refused("export", *words, plan, "--to", "accelerate", "--python", bare)
    assert "has no accelerate" in said


def test_another_way_to_ask_is_refused_with_the_ways_that_there_are(plan):
    said = refused("export", plan, "--to", "accelerate", "--check=wet")
    assert "parser" in said
    assert "dry" in said


def test_what_a_dry_run_showed_is_printed_with_both_figures_and_reasons(capsys):
    row = {"name": "loss", "plan": "1 of 8 bytes", "target": "2 of 4 bytes"}
    one = {
        "rank": 4,
        "pipeline_rank": 1,
        "seconds": 3.5,
        "counts": [{"quantity": "parameters", "plan": 10, "target": 11, "unit": "elements per rank"}],
        "collectives": [
            {"collective": "all-gather over tp", "size": 2}
            | {"plan_count": 3, "plan_bytes": 24, "target_count": 4, "target_bytes": 32}
        ],
        "explained": [row | {"why": "in halves"}],
        "disagreements": [row],
    }
    check = {
        "by": "dry",
        "accepted": False,
        "message": "something else: 1",
        "micro_batches": {"run": 2, "of": 8},
    }
    render_export({"files": {}, "refused": [], "check": check | {"classes": [one]}}, None)
    said = capsys.readouterr().err
    assert "2 of 8 micro-batches" in said
    assert "pipeline rank 1, as rank 4" in said
    assert "plan 3 collectives of 24 bytes, target 4 collectives of 32 bytes" in said
    assert "explained: loss: plan 1 of 8 bytes; target 2 of 4 bytes (in halves)" in said
    assert "DISAGREES: loss" in said


def test_without_check_nothing_is_asked(plan):
    assert "check" not in run("export", plan, "--to", "accelerate", "--json").data
