"""Runs of the command line: in this process for speed, in another one where streams and start-up matter."""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from meshwright.cli.main import app

TINY = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
}
QUESTION = ("--on", "h100-sxm-80gb x 8", "--seq-len", "4096", "--global-batch", "64")


@dataclass(frozen=True)
class Run:
    """What came back. ``out`` and ``err`` are the two streams."""

    code: int
    out: str
    err: str

    @property
    def data(self):
        """The JSON document on standard output; refuses what JSON has no word for."""
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def run(*arguments: object) -> Run:
    """Run a command here. An exception that is no exit is a failure."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2)
    assert "Traceback" not in result.stdout + result.stderr
    return Run(result.exit_code, result.stdout, result.stderr)


def refused(*arguments: object) -> str:
    """Standard error of a command that must be refused with exit code 2 and say nothing on standard output."""
    done = run(*arguments)
    assert (done.code, done.out) == (2, ""), done
    assert done.err.startswith("Error: the input is wrong.\n"), done.err
    return done.err


def command(*arguments: object, **options) -> subprocess.CompletedProcess:
    """Run the command in a process of its own, with bytes as they came."""
    start = "from meshwright.cli.main import main; main()"
    line = [sys.executable, "-c", start, *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"} | options.pop("env", {})
    return subprocess.run(
        line, capture_output="stdout" not in options, check=False, env=environment, **options
    )


def plan_text(**changes: str) -> str:
    """A small plan file; ``changes`` replace whole lines by key."""
    lines = {
        "plan": "1",
        "model": "llama-3.1-8b",
        "cluster": "h100-sxm-80gb x 8",
        "workload": "{seq_len: 4096, global_batch: 64}",
        "stack": "megatron-core",
        "layout": "{pp: 1, dp_shard: 4, tp: 2}",
        "sharding": "zero1",
        "pipeline": "{schedule: 1f1b, micro_batch: 2}",
        "recompute": "none",
    }
    return "".join(f"{key}: {value}\n" for key, value in (lines | changes).items() if value)


def write(path: Path, text: str | bytes) -> Path:
    """The path, with this in it."""
    if isinstance(text, bytes):
        path.write_bytes(text)
    else:
        path.write_text(text, encoding="utf-8")
    return path


def is_finite(value) -> bool:
    """Whether all numbers inside are finite."""
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    if isinstance(value, list):
        return all(map(is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
