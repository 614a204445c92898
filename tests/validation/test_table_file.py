"""Files that are no tables of runs."""

import csv

import pytest

from meshwright.errors import InputError
from meshwright.validation.table_file import opened_table, read_header


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes("\ufeffa, b\n".encode())
    with opened_table(path) as lines:
        assert read_header(csv.reader(lines), str(path), ("a",), ("a", "b")) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "rule"), [(b" \n", "empty"), (b"a\0b", "binary"), (None, "cannot be read")]
)
def test_other_files_are_refused(tmp_path, content, rule):
    path = tmp_path / "runs.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=rule), opened_table(path):
        pass


@pytest.mark.parametrize(
    ("text", "rule"), [("c,d\n", "has none of the columns a, b"), ("a,b,b\n", "is a column twice")]
)
def test_headers_without_the_columns_are_refused(tmp_path, text, rule):
    with pytest.raises(InputError, match=rule):
        read_header(csv.reader([text]), "runs.csv", ("a", "b"), ("a", "b"))
