"""What no file of the repository says, and names that no file has."""

import re

import pytest
from source_tree import ROOT

PLACES = ("src", "tests", "docs", "scripts", "benchmarks", ".ci")
LONERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
TEXT = {".py", ".md", ".yaml", ".yml", ".json", ".csv", ".txt", ".toml", ".sh", ""}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
LOCAL_PATHS = re.compile(r"(?<![\w.$}])/(work|home|root|Users|opt|mnt)/")


def _files():
    found = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.is_file()]
    found += [ROOT / name for name in LONERS if (ROOT / name).is_file()]
    return sorted(path for path in found if path.suffix in TEXT and "__pycache__" not in path.parts)


@pytest.fixture(scope="module")
def texts():
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in _files()}


def _hits(texts, pattern):
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_nothing_is_left_for_later(texts):
    assert not _hits(texts, UNFINISHED)


def test_no_path_of_one_machine(texts):
    assert not _hits(texts, LOCAL_PATHS)


def test_no_vague_file_names():
    assert not [path for path in _files() if path.stem.lower() in VAGUE_NAMES]


def test_text_ends_with_one_newline(texts):
    wrong = [name for name, text in texts.items() if text and not re.search(r"[^\n]\n\Z", text)]
    assert not [name for name in wrong if "/golden/" not in name and not name.startswith("benchmarks/")]
