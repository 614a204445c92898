from source_tree import ROOT

from folder_seconds import budgets, folder_of

EIGHT_MINUTES, WORKERS = 480, 2
"""Of `make test`, which leaves the house rules to `make check`."""


def test_every_folder_has_a_share_and_all_of_them_fit_into_eight_minutes():
    shares = budgets()
    folders = {
        path.parent.relative_to(ROOT / "tests").parts[:1] for path in (ROOT / "tests").rglob("test_*.py")
    }
    assert {*shares, "house"} == {folder[0] if folder else "tests" for folder in folders}
    assert sum(shares.values()) <= EIGHT_MINUTES * WORKERS


def test_a_test_belongs_to_the_first_folder_of_its_path():
    assert folder_of("tests/cost/memory/test_a.py::test_b[c/d]") == "cost"
    assert folder_of("tests/test_a.py::test_b") == "tests"
