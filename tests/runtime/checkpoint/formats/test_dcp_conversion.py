"""Checkpoints go to DCP and back: torch's own reader gives equal tensors, and runs go on under another plan."""

import json
import pickle
import shutil
from dataclasses import replace

import pytest
import torch
import torch.distributed.checkpoint as dcp
from checkpoint_runs import saved
from local_plans import small
from raw_states import whole_states
from reshard_plans import PLANS
from safetensors.torch import load_file
from tiny_models import tiny, tiny_config
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from training_runs import small_run

from meshwright import api
from meshwright.errors import InputError
from meshwright.model.named_tensors import stored_shapes
from meshwright.runtime.checkpoint.formats.dcp_folder import DcpFolder
from meshwright.runtime.checkpoint.formats.dcp_names import MOMENTS, states_of_dcp
from meshwright.runtime.checkpoint.manifest import read_manifest
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.runtime.weights.save import save
from meshwright.verbs.convert import ConvertRequest
from meshwright.verbs.describe_checkpoint import describe_checkpoint

STATES = ("parameter", "first_moment", "second_moment", "buffer")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A checkpoint of experts that four ranks have written."""
    return saved(tmp_path_factory.mktemp("source"), PLANS["zero3 and tp"])


@pytest.fixture(scope="module")
def converted(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("target") / "dcp"
    answer = api.convert(source, ConvertRequest(to="dcp", output=folder)).to_json()
    assert (answer["source"], answer["target"], answer["step"]) == ("meshwright", "dcp", 1)
    return folder


def wholes(path):
    return whole_states(path, read_manifest(path), STATES)


def test_torch_reads_equal_tensors(source, converted, tmp_path):
    dcp_to_torch_save(converted, tmp_path / "whole.pt")
    found, expected = torch.load(tmp_path / "whole.pt", weights_only=True), wholes(source)
    names = {name for state, name in expected if state == "parameter"}
    assert found["model"].keys() == found["optim"]["state"].keys() == names
    assert int(found["step"]) == 1
    assert json.loads(found["meshwright"])["precision"] == "fp64"
    for name in names:
        assert torch.equal(found["model"][name], expected["parameter", name])
        moments = found["optim"]["state"][name]
        assert float(moments["step"]) == 1
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(moments[key], expected[MOMENTS[key], name])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_loads_a_part_in_place(source, converted):
    name = "layers.0.mlp.experts.up_proj.weight"
    expected = wholes(source)["parameter", name]
    wanted = {"model": {name: torch.zeros_like(expected)}}
    dcp.load(wanted, checkpoint_id=converted, no_dist=True)
    assert torch.equal(wanted["model"][name], expected)


def test_the_way_back_keeps_every_bit_and_fact(source, converted, tmp_path):
    api.convert(converted, ConvertRequest(to="meshwright", output=tmp_path / "ours"))
    before, after = read_manifest(source), read_manifest(tmp_path / "ours")
    for field in ("step", "precision", "plan", "model", "facts"):
        assert getattr(before, field) == getattr(after, field)
    found, expected = wholes(tmp_path / "ours"), wholes(source)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert describe_checkpoint(tmp_path / "ours", check=True)["problems"] == []


def test_a_run_goes_on_from_a_converted_checkpoint_as_from_its_own(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"tp": 2})
    first = run.train("run", 2)
    api.convert(first.outcome.checkpoint, ConvertRequest(to="dcp", output=tmp_path / "dcp"))
    api.convert(tmp_path / "dcp", ConvertRequest(to="meshwright", output=tmp_path / "ours"))
    other = small_run(tmp_path, "other", ranks=2, layout={"dp_shard": 2}, sharding="zero1")
    again = other.train("again", 4, resume=str(tmp_path / "ours"))
    expected = other.train("expected", 4, resume=str(first.outcome.checkpoint))
    assert again.outcome.losses == expected.outcome.losses


def hugging_face_dcp(folder, model, moments):
    """A DCP checkpoint as FSDP2 saves a model of transformers; the tensors by our names."""
    ours = random_tensors(model, 3)
    save(folder.with_name("weights"), model, ours, prefix="model.")
    stored = load_file(folder.with_name("weights") / "model.safetensors")
    state = {"model": stored}
    if moments:
        state["optim"] = {
            "state": {
                name: {"exp_avg": tensor * 2, "exp_avg_sq": tensor * 3, "step": torch.tensor(7.0)}
                for name, tensor in stored.items()
            }
        }
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    return ours


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "phi3"])
@pytest.mark.parametrize("moments", [True, False])
def test_hugging_face_names_are_read(tmp_path, family, moments):
    model = tiny(family)
    ours = hugging_face_dcp(tmp_path / "dcp", model, moments)
    (tmp_path / "config.json").write_text(json.dumps(tiny_config(family)), encoding="utf-8")
    answer = api.convert(
        tmp_path / "dcp",
        ConvertRequest(to="meshwright", output=tmp_path / "ours", model=str(tmp_path), precision="fp32"),
    )
    found = wholes(tmp_path / "ours")
    assert (answer.step, read_manifest(tmp_path / "ours").precision) == (7 if moments else 0, "fp32")
    for name in stored_shapes(model):
        assert torch.equal(found["parameter", name], ours[name])
        assert torch.equal(found["first_moment", name], ours[name] * (2 if moments else 0))
        assert torch.equal(found["second_moment", name], ours[name] * (3 if moments else 0))


def changed_metadata(folder, change):
    """A copy of the metadata that ``change`` has altered, written as torch writes it."""
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))


def moved_out(metadata):
    at = next(iter(metadata.storage_data))
    metadata.storage_data[at] = replace(metadata.storage_data[at], relative_path="../outside")


def lacking(metadata):
    next(of for of in metadata.state_dict_metadata.values() if hasattr(of, "chunks")).chunks.clear()


def cut(folder):
    path = max(folder.glob("*.distcp"), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-9])


def overwritten(folder):
    path = max(folder.glob("*.distcp"), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[:4] = bytes(4)
    path.write_bytes(content)


DAMAGES = {
    "outside": (lambda folder: changed_metadata(folder, moved_out), "is no file of this folder"),
    "lacking": (lambda folder: changed_metadata(folder, lacking), "0 of the"),
    "other": (lambda folder: (folder / ".metadata").write_bytes(pickle.dumps([1])), "lacks what DCP writes"),
    "empty": (lambda folder: (folder / ".metadata").write_bytes(b""), "cannot be read"),
    "cut": (cut, r"__0_\d+.distcp.*is truncated"),
    "overwritten": (overwritten, r"__0_\d+.distcp.*cannot be read"),
    "missing": (lambda folder: (folder / "__0_0.distcp").unlink(), "__0_0.distcp.*cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_and_leaves_no_target(converted, tmp_path, name):
    damage, says = DAMAGES[name]
    shutil.copytree(converted, tmp_path / "source")
    damage(tmp_path / "source")
    with pytest.raises(InputError, match=says):
        api.convert(tmp_path / "source", ConvertRequest(to="meshwright", output=tmp_path / "ours"))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_damage_of_our_checkpoint_is_named(source, tmp_path):
    shutil.copytree(source, tmp_path / "source")
    path = tmp_path / "source" / "rank-00001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"rank-00001.safetensors.*is damaged"):
        api.convert(tmp_path / "source", ConvertRequest(to="dcp", output=tmp_path / "dcp"))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_wrong_requests_are_named(source, converted, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    cases = [
        ({"to": "dpc", "output": tmp_path / "x"}, "is no format that we write.*dcp"),
        ({"to": "dcp"}, "--output FOLDER"),
        ({"to": "dcp", "merge": True, "output": tmp_path / "x"}, "either --merge or --to"),
        ({"output": tmp_path / "x"}, "--merge, or --to FORMAT"),
        ({"to": "dcp", "output": tmp_path / "full"}, "holds something already"),
        ({"to": "meshwright", "output": tmp_path / "x", "precision": "fp7"}, "is no precision"),
        ({"merge": True, "output": tmp_path / "x", "model": "llama-3.1-8b"}, "--to FORMAT"),
        ({"to": "dcp", "output": tmp_path / "x", "model": "llama-3.1-8b"}, "model.hidden"),
    ]
    for request, says in cases:
        with pytest.raises(InputError, match=says):
            api.convert(source, ConvertRequest(**request))
    for folder in (tmp_path / "full", tmp_path / "none"):
        with pytest.raises(InputError, match=r"manifest\.json.*metadata.*torch_dist"):
            api.convert(folder, ConvertRequest(to="dcp", output=tmp_path / "x"))
    assert not (tmp_path / "x").exists()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_foreign_checkpoint_needs_its_model(tmp_path):
    dcp.save({"model": {"a": torch.ones(2)}}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    with pytest.raises(InputError, match="--model MODEL"):
        api.convert(tmp_path / "dcp", ConvertRequest(to="meshwright", output=tmp_path / "ours"))
    with pytest.raises(InputError, match="'a': is no tensor of the model"):
        api.convert(
            tmp_path / "dcp", ConvertRequest(to="meshwright", output=tmp_path / "ours", model="llama-3.1-8b")
        )
    dcp.save({"weights": {"a": torch.ones(2)}}, checkpoint_id=tmp_path / "other", no_dist=True)
    with pytest.raises(InputError, match=r"holds no key model\.NAME: its first keys are weights\.a"):
        api.convert(tmp_path / "other", ConvertRequest(to="meshwright", output=tmp_path / "ours"))


def test_one_tensor_is_read_at_a_time(converted):
    folder = DcpFolder(converted)
    states, read = states_of_dcp(folder), []
    folder.part = lambda key, cut, part=folder.part: read.append(key) or part(key, cut)
    states.tensors["parameter", "head.norm.weight"].read()
    assert read == ["model.head.norm.weight"]


def test_moments_of_one_kind_are_a_momentum_buffer(tmp_path):
    case = small(tiny("llama", num_hidden_layers=1), optimizer={"name": "sgd", "momentum": 0.9})
    source = saved(tmp_path / "source", case)
    api.convert(source, ConvertRequest(to="dcp", output=tmp_path / "dcp"))
    keys = {key.rpartition(".")[2] for key in DcpFolder(tmp_path / "dcp").tensors if key.startswith("optim.")}
    assert keys == {"momentum_buffer", "step"}
