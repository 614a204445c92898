"""Run the wrong questions of ``benchmarks/capacity/bad-inputs.yaml`` and keep the messages of the command line."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FILE = Path(__file__).parents[1] / "capacity" / "bad-inputs.yaml"


def bad_input_rows() -> list[dict[str, Any]]:
    """Return a row for each command of the file, with its exit code and message."""
    return [_row(asked) for asked in YAML(typ="safe").load(FILE)]


def _row(asked: dict[str, str]) -> dict[str, Any]:
    program, *words = shlex.split(asked["command"])
    assert program == "meshwright", program
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", *words], capture_output=True, text=True, check=False
    )
    return {**asked, "exit_code": done.returncode, "message": " ".join(done.stderr.split())}
