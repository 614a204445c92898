"""A path for the table of a test."""

import pytest


@pytest.fixture
def table(tmp_path):
    return tmp_path / "runs.csv"
