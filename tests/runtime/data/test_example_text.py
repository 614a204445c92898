"""The text that the examples train on is plain, whole, and says where it comes from."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(scope="module")
def text():
    return (EXAMPLES / "persuasion-volume-one.txt").read_bytes().decode("ascii")


def test_it_is_plain_prose_of_a_size_that_trains_in_minutes(text):
    assert 150_000 <= len(text) <= 400_000
    assert not re.search(r"[^\n -~]", text)
    assert max(len(line) for line in text.splitlines()) < 80


def test_it_is_one_volume_from_its_first_line_to_its_last(text):
    assert text.startswith("Persuasion\n")
    assert text.endswith("(End of volume one.)\n")
    assert re.findall(r"^Chapter (\d+)$", text, re.MULTILINE) == [str(n) for n in range(1, 13)]


def test_it_carries_no_marks_of_a_publisher(text):
    assert not re.search(r"gutenberg|ebook|e-text|licen[cs]e|copyright|https?:|www\.", text, re.IGNORECASE)


def test_its_origin_is_said():
    page = (EXAMPLES / "persuasion-volume-one.md").read_text(encoding="utf-8")
    for row in ("Title", "Author", "First published", "Rights", "Obtained from"):
        assert f"| {row} |" in page
