"""Serving plans to export, and the commands that an export's scripts start, run with programs that print them."""

import argparse
import json
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import strategies as st
from serving_cases import serving

from meshwright.errors import InputError
from meshwright.plans.serving.resolve_serving import ResolvedServing, resolve_serving

PROGRAMS = ("vllm", "python3", "trtllm-serve", "vllm-router", "srun")
SAYING = """#!/bin/bash
printf '%s\\0' "${{0##*/}}" "$@"
printf 'CUDA_VISIBLE_DEVICES=%s\\0' "${{CUDA_VISIBLE_DEVICES:-all}}"
"""
EXPERTS, DENSE = "qwen3-30b-a3b", "llama-3.1-8b"
LATENT = "deepseek-v3"
LENGTHS = "workload: {task: serve, input_tokens: 2000, output_tokens: 500, concurrency: 64}"


@cache
def programs() -> str:
    """Return a folder of programs that print how they were started."""
    folder = Path(tempfile.mkdtemp(prefix="started"))
    for name in PROGRAMS:
        path = folder / name
        path.write_text(SAYING.format(), encoding="utf-8")
        path.chmod(0o755)
    return str(folder)


def started(files, name, **environment):
    """Return the words of the command that a script of an export starts, and its visible devices."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            Path(folder, Path(path).name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["/bin/bash", str(Path(folder, name))],
            capture_output=True,
            text=True,
            cwd=folder,
            env={"PATH": f"{programs()}:{os.environ['PATH']}", **environment},
        )
        assert done.returncode == 0, done.stderr
        written = {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}
    *words, devices, _ = done.stdout.split("\0")
    return words, devices.removeprefix("CUDA_VISIBLE_DEVICES="), written


def parsed(words, *flags):
    """Return the options of a command by name; ``flags`` take no value."""
    if "trtllm-llmapi-launch" in words:
        words = words[words.index("trtllm-llmapi-launch") :]
    first = next(place for place, word in enumerate(words) if word.startswith("--"))
    names = dict.fromkeys(word.partition("=")[0] for word in words[first:] if word.startswith("--"))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in names:
        if name in flags:
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(name)
    return vars(parser.parse_args(words[first:]))


def plan_text(model, pools, *, cluster="h200-sxm-141gb x 32", stack="vllm", edges=()):
    """Return the text of a plan with pools as data."""
    data = {
        "plan": 1,
        "model": model,
        "cluster": cluster,
        "stack": stack,
        "pools": pools,
        "edges": list(edges),
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in data.items()]
    return "\n".join([*lines, LENGTHS, ""])


def resolved(text) -> ResolvedServing:
    """Return the plan of a text."""
    return resolve_serving(serving(text))


_DEGREE = st.sampled_from((1, 2, 4, 8))
_BATCHING = st.fixed_dictionaries(
    {
        "chunk_tokens": st.sampled_from((2048, 8192, 8200)),
        "block_tokens": st.sampled_from((16, 32, 48, 64)),
        "kv_fraction": st.sampled_from((0.5, 0.9, 1.0)),
        "prefix_cache": st.booleans(),
    },
    optional={"max_sequences": st.integers(8, 3000)},
)
_QUANTISE = st.fixed_dictionaries(
    {},
    optional={
        "weights": st.sampled_from(("bf16", "fp8", "fp8-block", "fp4", "int8", "int4")),
        "kv": st.sampled_from(("bf16", "fp8", "int8", "fp4")),
    },
)


@st.composite
def _pools(draw, does):
    experts = draw(st.booleans()) if does is None else does[0]
    layout = {"tp": draw(st.sampled_from((1, 2, 4))), "pp": draw(st.sampled_from((1, 2)))}
    if experts:
        layout |= {"attention_dp": draw(_DEGREE), "ep": draw(_DEGREE)}
    return {
        "layout": layout,
        "replicas": draw(st.integers(1, 3)),
        "batching": draw(_BATCHING),
        "quantise": draw(_QUANTISE),
        "overlap": draw(st.sampled_from(("none", "none", "two-batch"))),
    }


@st.composite
def legal_plans(draw):
    """Draw a legal plan of one pool that serves, or of two that hand over caches; None for an illegal draw."""
    model = draw(st.sampled_from((EXPERTS, DENSE, LATENT)))
    kind = (model != DENSE,)
    if draw(st.booleans()):
        pools, edges = {"all": {"does": "serve", **draw(_pools(kind))}}, []
    else:
        pools = {name: {"does": name, **draw(_pools(kind))} for name in ("prefill", "decode")}
        edges = [{"from": "prefill", "to": "decode"}]
    try:
        return resolved(plan_text(model, pools, edges=edges))
    except InputError:
        return None


_EXPORTABLE_BATCHING = st.fixed_dictionaries(
    {
        "chunk_tokens": st.sampled_from((2048, 8192, 16384)),
        "block_tokens": st.sampled_from((16, 32, 64)),
        "kv_fraction": st.sampled_from((0.5, 0.8, 0.9)),
        "prefix_cache": st.booleans(),
    },
    optional={"max_sequences": st.integers(32, 2000)},
)


@st.composite
def _exportable_pools(draw, model, does):
    if model == DENSE:
        layout = {"tp": draw(st.sampled_from((1, 2, 4)))}
    else:
        tp, ranks = draw(st.sampled_from(((8, 1), (1, 8), (1, 16))))
        layout = {"tp": tp, "attention_dp": ranks, "ep": draw(st.sampled_from((1, tp * ranks)))}
        if model == LATENT or layout["ep"] > 1:
            layout["ep"] = tp * ranks
    formats = draw(st.fixed_dictionaries({}, optional={"kv": st.sampled_from(("bf16", "fp8"))}))
    return {
        "does": does,
        "layout": {**layout, "pp": draw(st.sampled_from((1, 2) if does == "serve" else (1,)))},
        "replicas": draw(st.integers(1, 2)),
        "batching": draw(_EXPORTABLE_BATCHING),
        "quantise": formats,
    }


@st.composite
def exportable_plans(draw):
    """Draw a plan that every engine runs."""
    model = draw(st.sampled_from((EXPERTS, DENSE, LATENT)))
    names = draw(st.sampled_from((("serve",), ("prefill", "decode"))))
    pools = {name: draw(_exportable_pools(model, name)) for name in names}
    edges = [{"from": "prefill", "to": "decode"}] if len(names) > 1 else []
    return resolved(plan_text(model, pools, cluster="h200-sxm-141gb x 128", edges=edges))
