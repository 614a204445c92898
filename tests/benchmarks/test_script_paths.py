"""Scripts that extend the path of modules find all that they import, and so do the modules that they import."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if "sys.path" in path.read_text(encoding="utf-8"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_finds_what_it_imports(name):
    subprocess.run([sys.executable, "-c", f"import {name}"], cwd=FOLDER, check=True)


def test_there_are_such_scripts():
    assert "verify" in SCRIPTS
