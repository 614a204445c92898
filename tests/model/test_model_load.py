"""Where models come from: names, files and directories of every broken kind, a stand-in for the hub."""

import json
import sys
import types
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.model.hub import fetch_config
from meshwright.model.load import LARGEST_FILE_BYTES, load_config, load_model
from meshwright.model.zoo_names import zoo_names

TINY = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 96,
    "intermediate_size": 208,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
}


def refusal(name: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        load_model(name)
    (problem,) = caught.value.problems
    assert problem.suggestion
    return str(problem)


def test_zoo_names_are_sorted_and_load_under_their_name() -> None:
    assert list(zoo_names()) == sorted(zoo_names())
    assert load_model("llama-3.1-8b").name == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("name", "near"),
    [("llama-3.1-8", "llama-3.1-8b"), ("Mixtral-8x7", "mixtral-8x7b"), ("deepseek_v4", "deepseek-v3")],
)
def test_unknown_names_suggest_near_ones(name: str, near: str) -> None:
    assert near in refusal(name)


@pytest.mark.parametrize(
    "name", ["Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "META-LLAMA/llama_3.1 8b-instruct"]
)
def test_a_zoo_model_under_another_spelling_asks_no_hub(name: str) -> None:
    def fetch(repository: str) -> bytes:
        raise AssertionError(f"{repository} was asked for")

    assert load_model(name, fetch=fetch) == load_model("llama-3.1-8b")
    assert load_config(name, fetch=fetch) == load_config("llama-3.1-8b")


def test_a_folder_wins_over_another_spelling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "Llama-3.1-8B").mkdir()
    (tmp_path / "Llama-3.1-8B" / "config.json").write_text(json.dumps(TINY))
    monkeypatch.chdir(tmp_path)
    assert load_model("Llama-3.1-8B").architecture.hidden == TINY["hidden_size"]


def test_nothing_at_all() -> None:
    assert "no zoo model" in refusal("")


def test_file_and_directory(tmp_path: Path) -> None:
    directory = tmp_path / "tiny-llama"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "other.json").write_text(json.dumps(TINY))
    for path in (directory, directory / "config.json", str(directory)):
        graph = load_model(path)
        assert graph.name == "tiny-llama"
        assert graph.source == str(directory / "config.json")
    assert load_model(tmp_path / "other.json").name == "other"


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (bytes(range(256)), "not JSON"),
        (json.dumps(TINY).encode()[:40], "not JSON"),
        (b"[1, 2]", "holds a list"),
        (b"null", "holds a NoneType"),
        (b"[" * 100_000, "not JSON: it is nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "not JSON"),
        (b" " * (LARGEST_FILE_BYTES + 1), "longer than 4 MiB"),
    ],
)
def test_broken_files(tmp_path: Path, data: bytes, rule: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(data)
    assert rule in refusal(file)


def test_absent_files(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path)  # a directory without a config.json
    assert "no such file" in refusal(tmp_path / "absent.json")
    assert "no such file" in refusal("./absent/config.json")
    assert "no such file" in refusal("~nosuchuser/config.json")
    assert "no zoo model" in refusal("nul\0byte")
    assert "no such file" in refusal("./nul\0byte")
    assert "no zoo model" in refusal("x" * 5000)


def test_all_problems_of_a_file_are_told(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**TINY, "hidden_size": -1, "vocab_size": None}))
    with pytest.raises(InputError) as caught:
        load_model(file)
    assert {problem.field for problem in caught.value.problems} == {"hidden_size", "vocab_size"}


def test_hub_id_goes_through_the_given_fetch() -> None:
    asked = []

    def fetch(repository: str) -> bytes:
        asked.append(repository)
        return json.dumps(TINY).encode()

    graph = load_model("some-org/Tiny.Llama_1", fetch=fetch)
    assert (asked, graph.name, graph.source) == (
        ["some-org/Tiny.Llama_1"],
        "Tiny.Llama_1",
        "hub:some-org/Tiny.Llama_1",
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("models/small-lama", "did you mean small-llama?"),
        ("models/deep/nothing", "give the path of a config.json"),
        ("models/small-llam/config", "did you mean small-llama?"),
    ],
)
def test_a_name_below_a_folder_that_is_here_asks_no_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, near: str
) -> None:
    for folder in ("small-llama", "deep"):
        (tmp_path / "models" / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    def fetch(repository: str) -> bytes:
        raise AssertionError(f"{repository} was asked for")

    with pytest.raises(InputError, match="on this machine and holds no such model") as caught:
        load_model(name, fetch=fetch)
    assert near in str(caught.value)


def test_hub_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "meshwright[hub]" in refusal("some-org/some-model")


class StandInError(Exception):
    """Stands for the hub's HTTPError, with a response where the hub answered."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.response = None if status is None else types.SimpleNamespace(status_code=status)


def stand_in(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None = None, cached: str | None = None
) -> list[str]:
    """Put a module with the used names of huggingface_hub in its place; return the list of its requests."""
    asked: list[str] = []
    module = types.ModuleType("huggingface_hub")

    def metadata(url: str) -> None:
        asked.append(url)
        if error is not None:
            raise error

    def download(repository: str, name: str) -> str | None:
        asked.append("download")
        return cached

    names = {
        "errors": types.SimpleNamespace(HTTPError=StandInError),
        "hf_hub_url": lambda repository, name: f"{repository}/{name}",
        "get_hf_file_metadata": metadata,
        "try_to_load_from_cache": lambda repository, name: cached,
        "hf_hub_download": download,
    }
    for name, value in names.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return asked


def test_hub_that_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cached = tmp_path / "config.json"
    cached.write_text("{}")
    asked = stand_in(monkeypatch, cached=str(cached))
    assert fetch_config("org/name") == b"{}"
    assert asked == ["org/name/config.json", "download"]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_hub_that_refuses(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    stand_in(monkeypatch, StandInError("many\n words", status))
    said = refusal("org/name")
    assert f"has no such model, or you have no access to it (HTTP {status})" in said
    assert "download its config.json and give the path" in said


@pytest.mark.parametrize(
    "error",
    [StandInError("no\n such host"), FileNotFoundError("no such host"), StandInError("no such host", 503)],
)
def test_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    asked = stand_in(monkeypatch, error)
    said = refusal("some-org/Llama-3.1-8B-tuned")
    assert "does not answer (no such host)" in said
    assert "or use llama-3.1-8b, which needs no network" in said
    assert asked == ["some-org/Llama-3.1-8B-tuned/config.json"]


def test_hub_that_does_not_answer_while_the_file_is_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cached = tmp_path / "config.json"
    cached.write_text("{}")
    asked = stand_in(monkeypatch, StandInError("no such host"), str(cached))
    assert fetch_config("org/name") == b"{}"
    assert asked == ["org/name/config.json"]
