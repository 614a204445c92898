"""The frameworks' assertions: read from sources, each with an answer, and each pair of configurations as it says."""

import sys

import pytest
from source_tree import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from assertion_table.answers import (
    ANSWERS,
    RULE,
    TARGETS,
    AnsweredAssertion,
    differences,
    merged,
    read_answers,
)
from assertion_table.extraction import Assertion, read_assertions
from assertion_table.pairs import bases, errors_without_search, pairs

PAIRS = list(pairs())
SOURCE = '''
"""Checks."""

class ParallelDims:
    def _validate(self, args):
        assert args.tp >= 1, "message"
        if self.pp > 1:
            assert args.layers % self.pp == 0
        elif args.cp > 1 and args.sp > 1:
            raise ValueError("both")
        else:
            if not args.dp:
                raise ValueError("none")
        try:
            import kernels
        except ImportError:
            raise ValueError("no kernels")

    def build_mesh(self):
        for size in self.sizes:
            assert size
            assert size

    def other(self):
        assert False
'''


@pytest.fixture
def folder(tmp_path):
    """A folder with all sources of torchtitan, empty but for one."""
    for name in {row.file for row in read_answers("torchtitan")} | {
        "torchtitan/models/deepseek_v3/model.py",
        "torchtitan/models/gpt_oss/model.py",
    }:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE if name.endswith("parallel_dims.py") else "")
    return tmp_path


def test_assertions_are_read_with_the_conditions_around_them(folder):
    found = read_assertions(folder, "torchtitan")
    assert [(one.requires, one.where) for one in found] == [
        ("tp >= 1", ""),
        ("layers % pp == 0", "pp > 1"),
        ("not (cp > 1 and sp > 1)", "pp <= 1"),
        ("dp", "pp <= 1; not (cp > 1 and sp > 1)"),
        ("not caught(ImportError)", ""),
        ("size", ""),
        ("size", ""),
    ]
    assert len({one.key for one in found}) == len(found)
    assert {one.function for one in found} == {"ParallelDims._validate", "ParallelDims.build_mesh"}


def test_an_environment_is_read_like_an_unpacked_wheel(folder, tmp_path_factory):
    environment = tmp_path_factory.mktemp("environment")
    packages = environment / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "torchtitan").rename(packages / "torchtitan")
    assert len(read_assertions(environment, "torchtitan")) == 7


def test_a_source_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no torchtitan/trainer"):
        read_assertions(tmp_path, "torchtitan")


def test_new_and_gone_assertions_are_named():
    kept, new = (Assertion(key, "file.py", "check", f"{key} > 0", "") for key in ("kept", "new"))
    rows = [AnsweredAssertion(key, "file.py", "check", f"{key} > 0", "", RULE) for key in ("kept", "gone")]
    assert [line.partition(" > ")[0] for line in differences([kept, new], rows)] == [
        "no answer: new file.py check: new",
        "no such assertion any more: gone file.py check: gone",
    ]
    assert [(row.key, row.answer) for row in merged([kept, new], rows)] == [("kept", RULE), ("new", "")]


@pytest.mark.parametrize("target", TARGETS)
def test_every_assertion_has_an_answer_with_a_reason(target):
    rows = read_answers(target)
    assert rows
    assert len({row.key for row in rows}) == len(rows)
    assert {row.answer for row in rows} <= set(ANSWERS)
    assert not [row for row in rows if not row.reason]


@pytest.mark.parametrize("target", TARGETS)
def test_every_rule_has_a_pair_and_nothing_else_has(target):
    for row in read_answers(target):
        assert bool(row.base and row.expected) == (row.answer == RULE), row
        assert row.answer != RULE or row.breaks != row.holds, row
    assert {row.base for row in read_answers(target) if row.answer == RULE} <= set(bases()[target])


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.target}-{pair.row.key}")
def test_check_names_what_breaks_an_assertion_and_nothing_else(pair):
    broken, kept = (errors_without_search(pair.request, text) for text in (pair.breaking, pair.holding))
    assert pair.named(broken) is not None, broken
    assert not kept
