"""What is wrong with a checkpoint is refused by name, on all ranks."""

import json
import random
import shutil
from hashlib import sha256

import pytest

pytest.importorskip("torch")

from checkpoint_runs import FACTS, SMALLEST, held, on_ranks, saved
from local_plans import small
from tiny_models import tiny

from meshwright.errors import InputError
from meshwright.runtime.checkpoint import restore_checkpoint
from meshwright.runtime.checkpoint.chunked_file import file_problems
from meshwright.runtime.checkpoint.manifest import (
    DIGEST,
    MANIFEST,
    digest_line,
    facts_of,
    read_manifest,
)

TWO = small(SMALLEST, dp_shard=2, sharding="zero1")
RANK_FILE = "rank-00001.safetensors"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("run"), TWO)


@pytest.fixture
def copy(checkpoint, tmp_path):
    return shutil.copytree(checkpoint, tmp_path / checkpoint.name)


def flipped(path, place, mask):
    data = bytearray(path.read_bytes())
    data[place] ^= mask
    path.write_bytes(data)


def refusals(paths, case=TWO, precision="fp64"):
    """What each rank is told of each checkpoint; unless values themselves are wrong, nothing is loaded."""

    def work(rank, steps):
        steps([5])
        told = []
        for path in paths:
            before = held(rank)
            with pytest.raises(InputError) as error:
                restore_checkpoint(path, rank)
            told.append(str(error.value))
            assert "do not have the SHA-256" in told[-1] or held(rank) == before
        return told

    everyone = on_ranks(case, work, precision)
    assert all(told == everyone[0] for told in everyone)
    return everyone[0]


def changed(path, **changes):
    """A manifest that says something else, with its right digest."""
    text = json.dumps({**json.loads((path / MANIFEST).read_bytes()), **changes}).encode()
    (path / MANIFEST).write_bytes(text)
    (path / DIGEST).write_bytes(digest_line(text))


def test_any_byte_of_the_manifest_and_its_digest_counts(copy):
    draw = random.Random(3)
    for name in (MANIFEST, DIGEST):
        size = (copy / name).stat().st_size
        for place in sorted({0, size - 1, *(draw.randrange(size) for _ in range(150))}):
            mask = 1 << draw.randrange(8)
            flipped(copy / name, place, mask)
            with pytest.raises(InputError, match=r"manifest\.json"):
                read_manifest(copy)
            flipped(copy / name, place, mask)
        (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
        with pytest.raises(InputError, match=r"manifest\.json"):
            read_manifest(copy)
        (copy / name).write_bytes((copy / name).read_bytes()[:-1])
    assert facts_of(read_manifest(copy))["step"] == 1


def test_any_byte_of_a_shard_counts(copy):
    manifest, draw = read_manifest(copy), random.Random(5)
    file = copy / RANK_FILE
    size = file.stat().st_size
    for place in [*range(16), size - 1, *(draw.randrange(size) for _ in range(80))]:
        mask = 1 << draw.randrange(8)
        flipped(file, place, mask)
        (problem,) = file_problems(copy, manifest.files)
        assert RANK_FILE in str(problem)
        assert "SHA-256" in str(problem)
        flipped(file, place, mask)
    assert not list(file_problems(copy, manifest.files))


def test_damaged_missing_and_foreign_files_are_named_and_nothing_is_loaded(checkpoint, tmp_path):
    def broken(name, act):
        path = shutil.copytree(checkpoint, tmp_path / name / checkpoint.name)
        act(path)
        return path

    def truncate(path):
        (path / RANK_FILE).write_bytes((path / RANK_FILE).read_bytes()[:-1])

    cases = {
        "rank-00001.safetensors': is truncated": truncate,
        "rank-00001.safetensors': is damaged": lambda path: flipped(path / RANK_FILE, 5000, 4),
        "rank-00000.safetensors': is damaged": lambda path: flipped(path / "rank-00000.safetensors", 8, 1),
        "rank-00001.safetensors': cannot be read: No such file": lambda path: (path / RANK_FILE).unlink(),
        "rank-00007.safetensors': is foreign": lambda path: (path / "rank-00007.safetensors").touch(),
        "manifest.json': is missing": lambda path: (path / MANIFEST).unlink(),
        "manifest.json.sha256': is missing": lambda path: (path / DIGEST).unlink(),
        "manifest.json': does not fit": lambda path: flipped(path / MANIFEST, 40, 1),
        "no such checkpoint": shutil.rmtree,
        "has format 3": lambda path: changed(path, format=3),
        "no legal step, files": lambda path: changed(path, step="3", files=[]),
        "nothing legal of the file '../x'": lambda path: changed(path, files={"../x": {}}),
        "manifest.json': is none of ours": lambda path: changed(path, signature=None),
    }
    paths = [broken(str(number), act) for number, act in enumerate(cases.values())]
    told = refusals(paths)
    for path, words, said in zip(paths, cases, told, strict=True):
        assert words in said
        assert path.name in said


OTHERS = {"the same plan": TWO, "another plan": small(SMALLEST, tp=2), "fewer ranks": small(SMALLEST)}


@pytest.mark.parametrize("name", OTHERS)
def test_damage_is_named_under_any_plan(name, checkpoint, tmp_path):
    size, paths = (checkpoint / RANK_FILE).stat().st_size, []
    for number, place in enumerate([0, 20, size // 2, size - 1]):
        paths.append(shutil.copytree(checkpoint, tmp_path / str(number) / checkpoint.name))
        flipped(paths[-1] / RANK_FILE, place, 4)
    told = refusals(paths, OTHERS[name])
    assert all(f"{RANK_FILE}': is damaged" in said for said in told)


@pytest.mark.parametrize("name", OTHERS)
def test_checkpoints_of_the_first_format_are_read(name, checkpoint, copy):
    """They have one digest of each file."""
    manifest = json.loads((copy / MANIFEST).read_bytes())
    files = {
        name: {"size_bytes": of["size_bytes"], "sha256": sha256((copy / name).read_bytes()).hexdigest()}
        for name, of in manifest["files"].items()
    }
    changed(copy, format=1, files=files)

    def work(rank, steps):
        restore_checkpoint(copy, rank)
        first = held(rank)
        restore_checkpoint(checkpoint, rank)
        return first == held(rank)

    assert all(on_ranks(OTHERS[name], work))
    flipped(copy / RANK_FILE, 5000, 1)
    (said,) = refusals([copy], OTHERS[name])
    assert f"{RANK_FILE}': is damaged" in said


def test_all_damages_are_told_at_once_with_the_checkpoint_before(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "step-00000000")
    path = shutil.copytree(checkpoint, tmp_path / checkpoint.name)
    for name in ("rank-00000.safetensors", RANK_FILE):
        flipped(path / name, 2000, 1)
    (path / "notes.txt").touch()
    (said,) = refusals([path])
    for name in ("rank-00000.safetensors", RANK_FILE, "notes.txt"):
        assert name in said
    assert "begin from an earlier one: step-00000000" in said


@pytest.mark.parametrize(
    ("case", "precision", "words"),
    [
        (
            small(SMALLEST, sharding="zero1", dp_shard=2, global_batch=4),
            "fp64",
            ["workload.global_batch = 8: in the checkpoint; this run has 4"],
        ),
        (
            small(SMALLEST, sharding="zero1", dp_shard=4, optimizer="lion"),
            "fp64",
            ["workload.optimizer = 'adamw"],
        ),
        (
            TWO,
            "fp32",
            ["run.precision = 'fp64': in the checkpoint; this run has 'fp32'. Suggestion: --precision fp64"],
        ),
        (
            small(tiny("llama", num_hidden_layers=1, rms_norm_eps=1e-3), sharding="zero1", dp_shard=2),
            "fp64",
            ["model.norm_epsilon = 1e-06: in the checkpoint; this run has 0.001"],
        ),
    ],
    ids=["batch", "optimizer", "precision", "model"],
)
def test_another_workload_model_or_precision_is_refused_with_what_differs(case, precision, words, checkpoint):
    (said,) = refusals([checkpoint], case, precision)
    assert not [part for part in words if part not in said], said


def test_a_shard_that_the_files_do_not_hold_is_named(copy):
    shutil.copyfile(copy / "rank-00000.safetensors", copy / RANK_FILE)
    files = json.loads((copy / MANIFEST).read_bytes())["files"]
    changed(copy, files=dict.fromkeys(files, files["rank-00000.safetensors"]))
    (said,) = refusals([copy])
    assert f"{RANK_FILE}': does not hold parameter/" in said


def test_facts_are_read_back_as_they_were(checkpoint):
    facts = facts_of(read_manifest(checkpoint))
    assert FACTS.items() <= facts.items()
    assert (facts["step"], facts["ranks"], facts["precision"]) == (1, 2, "fp64")
    assert facts["signature"] == TWO.program.signature()
    assert facts["plan"]["dp_shard"] == 2
