"""Spellings of zoo models."""

import re

import pytest

from meshwright.model.load import load_config
from meshwright.model.zoo_names import letters, zoo_name, zoo_names, zoo_repositories


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("Llama 3.1 8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("llama-2-7b-hf", "llama-2-7b"),
        ("deepseek-ai/deepseek-v3-base", "deepseek-v3"),
        ("Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("other-org/Llama-3.1-8B", None),  # a fine-tuned model may have another vocabulary
        ("Meta-Llama-3-8B", "llama-3-8b"),
        ("Qwen2.5-7B-Instruct", None),  # 32768 positions
        ("gpt-14.56b", None),
        ("", None),
    ],
)
def test_spellings(name: str, expected: str | None) -> None:
    assert zoo_name(name) == expected


def test_every_spelling_means_one_model() -> None:
    models = {name: {name} for name in zoo_names()}
    for model, repository in zoo_repositories():
        assert model in models
        models[model] |= {repository, repository.partition("/")[2]}
    known = {letters(spelling): model for model, spellings in models.items() for spelling in spellings}
    for model, spellings in models.items():
        assert {known[letters(spelling)] for spelling in spellings} == {model}
        assert {zoo_name(spelling) for spelling in spellings} == {model}


def test_every_source_names_a_version_a_commit_or_a_paper() -> None:
    sources = {name: str(load_config(name)["_source"]) for name in zoo_names()}
    dated = re.compile(r" \d+\.\d+\b|\b(?:at|commit) [0-9a-f]{7,8}\b|arXiv \d{4}\.\d{4,5}|model_shapes\.csv")
    assert not {name: source for name, source in sources.items() if not dated.search(source)}
