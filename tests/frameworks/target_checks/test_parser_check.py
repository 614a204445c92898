"""The targets' own parsers accept what is exported. Needs their environments: ``bash scripts/parsers.sh``."""

import sys
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.frameworks.target_checks.parser_check import check_with_parser
from meshwright.frameworks.target_checks.target_python import TARGET_CHECKS as CAN_BE_ASKED

ROOT = Path(__file__).resolve().parents[3]
TARGETS = [target for target, asked in CAN_BE_ASKED.items() if asked.parser]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_random_plans_are_accepted_with_the_values_that_were_meant(target, monkeypatch):
    python = ROOT / "parsers" / target / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there: bash scripts/parsers.sh {target}")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from accepted import ASKED, asked

    found = [(verdict.accepted, verdict.message, wrong) for _, verdict, wrong in asked(target, str(python))]
    assert found == [(True, "", [])] * ASKED


def test_a_python_without_the_target_is_named():
    with pytest.raises(InputError, match="has no megatron"):
        check_with_parser("megatron", {"megatron/launch.sh": "exit 0"}, sys.executable)


def test_what_has_no_parser_and_what_is_no_python_are_named():
    with pytest.raises(InputError, match="CUDA libraries"):
        check_with_parser("bridge", {}, sys.executable)
    with pytest.raises(InputError, match="cannot be run"):
        check_with_parser("megatron", {}, "/no/such/python")
