"""The page about explanations."""

import pytest
import write_docs


@pytest.mark.slow
def test_its_generated_parts_are_fresh():
    (path,) = [path for path in write_docs.pages() if path.name == "explain.md"]
    text = path.read_text(encoding="utf-8")
    assert write_docs.rewritten(text) == text, "run `make docs`"
