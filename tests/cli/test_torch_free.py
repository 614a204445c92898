"""Every verb runs without torch and other heavy modules, installed or not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import command_line
import pytest
from doc_pages import blocks
from source_tree import ROOT

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "jax", "tensorflow", "transformers", "huggingface_hub")
EXECUTING = {"verify", "run", "convert"}
"""Verbs that execute a plan, or read what that has written, on torch."""
SERVING = {"web"}
"""It runs until it is ended; tests/web holds its imports to the same."""
SEARCHING = {"plan", "explain", "check", "probe", "calibrate"}
"""Verbs that take seconds; ``--json`` of the others stands for theirs."""
GUARD = f"""
import sys
from importlib.abc import MetaPathFinder

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise AssertionError(f"{{name}} is imported")

sys.meta_path.insert(0, Refuse())
"""
EVERY_VERB = """
import contextlib, io, json
from meshwright.cli.main import main

for arguments in json.loads(sys.argv[1]):
    sys.argv, code = ["meshwright", *arguments], 0
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out):
            main()
    except SystemExit as stop:
        code = stop.code or 0
    out.flush()
    print(json.dumps([arguments, code, len(out.buffer.getvalue().strip())]))
"""
"""All verbs in one process: it starts once, and whatever they load must be free of heavy modules."""


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "plan.yaml"
    text = blocks("plans.md", "yaml")[0].replace("recompute: selective", "recompute: full")
    text = text.replace("dp_shard: 8", "dp_shard: 4").replace("tp: 2", "tp: 4")
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """A plan beside which there are few others."""
    path = tmp_path_factory.mktemp("small") / "plan.yaml"
    path.write_text(
        "plan: 1\nmodel: llama-3.2-1b\ncluster: h100-sxm-80gb x 2\nlayout: {dp_shard: 2}\nsharding: zero1\n"
        "stack: deepspeed\nworkload: {seq_len: 2048, global_batch: 2}\n",
        encoding="utf-8",
    )
    return str(path)


@pytest.fixture(scope="module")
def runs_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    columns = "run_id,model,device,devices,seq_len,global_batch,sharding,step_time_s"
    path.write_text(f"{columns}\na,llama-3.2-1b,H100,8,2048,16,fsdp,0.25\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def own_file(tmp_path_factory):
    """Runs that all take 1.4 times what is predicted: a calibration must help."""
    path = tmp_path_factory.mktemp("own") / "own.csv"
    columns = "run_id,source,model,device,devices,seq_len,global_batch,micro_batch,sharding,stack,step_time_s"
    rows = [f"{m},own,llama-3.1-8b,H100,8,2048,64,{m},fsdp,torchtitan,4.5" for m in (1, 2, 4)]
    path.write_text("\n".join([columns, *rows]) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def foreign_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    script = folder / "train.sh"
    script.write_text("pretrain_gpt.py --micro-batch-size 1 --global-batch-size 8 --seq-length 2048 --bf16\n")
    samples = ROOT / "tests" / "ingestion"
    return {
        "FOREIGN": str(script),
        "LOG": str(samples / "logs" / "samples" / "meshwright.jsonl"),
        "TESTS": str(sorted((samples / "nccl_tests" / "samples").glob("*.txt"))[0]),
    }


VERBS = {
    "plan": ["llama-3.2-1b", "--on", "h100-sxm-80gb x 2", "--seq-len", "2048", "--global-batch", "4"],
    "describe": ["mixtral-8x7b"],
    "models": ["qwen3"],
    "devices": [],
    "stacks": [],
    "predict": ["PLAN"],
    "compare": ["PLAN", "PLAN"],
    "explain": ["SMALL"],
    "report": ["SMALL", "--no-search"],
    "export": ["PLAN", "--to", "megatron"],
    "import": ["FOREIGN", "--model", "llama-3.2-1b", "--on", "h100-sxm-80gb x 8"],
    "check": ["FOREIGN", "--model", "llama-3.2-1b", "--on", "h100-sxm-80gb x 2"],
    "launch": ["OURS", "--on", "kubernetes", "--storage", "/shared", "--dry-run"],
    "measure": ["--collective-tests", "TESTS", "--on", "h100-sxm-80gb x 16"],
    "probe": ["SMALL"],
    "ingest": ["LOG"],
    "validate": ["RUNS"],
    "calibrate": ["OWN"],
    "schedule": ["zb-v", "--stages", "4", "--micro-batches", "8"],
}


def _run(code, *arguments):
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_verbs_load_nothing_heavy(plan_file, small_file, runs_file, own_file, foreign_files):
    ours = Path(small_file).with_name("ours.yaml")
    text = Path(small_file).read_text(encoding="utf-8")
    ours.write_text(text.replace("stack: deepspeed", "stack: meshwright"), encoding="utf-8")
    files = {"PLAN": plan_file, "SMALL": small_file, "RUNS": runs_file, "OWN": own_file, **foreign_files}
    files["OURS"] = str(ours)
    commands = [
        [verb, *(files.get(argument, argument) for argument in arguments), *form]
        for verb, arguments in VERBS.items()
        for form in ([], ["--json"])[: 1 if verb in SEARCHING else 2]
    ]
    done = _run(GUARD + EVERY_VERB, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [arguments for arguments, *_ in found] == commands
    assert not [row for row in found if row[1] != 0 or row[2] == 0], done.stderr


def test_every_verb_that_does_not_execute_a_plan_is_run():
    assert [*VERBS] == [verb.name for verb in command_line.verbs() if verb.name not in EXECUTING | SERVING]


def test_the_guard_would_notice():
    assert "torch is imported" in _run(GUARD + "import torch").stderr
