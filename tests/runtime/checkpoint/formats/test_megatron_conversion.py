"""Checkpoints go to Megatron's torch_dist and back; keys, shapes and rows are those of megatron-core 0.19."""

import io
import json
import re
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from megatron_jobs import config_of, saved_run
from raw_states import whole_states
from tiny_models import tiny
from training_runs import small_run

from meshwright import api
from meshwright.errors import InputError, UnsupportedError
from meshwright.runtime.checkpoint.formats.dcp_folder import DcpFolder
from meshwright.runtime.checkpoint.formats.megatron_state import COMMON, read_common
from meshwright.runtime.checkpoint.manifest import read_manifest
from meshwright.verbs.convert import ConvertRequest

STATES = ("parameter", "first_moment", "second_moment", "buffer")
STACKED = {
    "decoder.final_layernorm.weight": [48],
    "decoder.layers.mlp.linear_fc1.layer_norm_weight": [3, 48],
    "decoder.layers.mlp.linear_fc1.weight": [3, 160, 48],
    "decoder.layers.mlp.linear_fc2.weight": [3, 48, 80],
    "decoder.layers.self_attention.k_layernorm.weight": [3, 16],
    "decoder.layers.self_attention.linear_proj.weight": [3, 48, 64],
    "decoder.layers.self_attention.linear_qkv.layer_norm_weight": [3, 48],
    "decoder.layers.self_attention.linear_qkv.weight": [3, 128, 48],
    "decoder.layers.self_attention.q_layernorm.weight": [3, 16],
    "embedding.word_embeddings.weight": [128, 48],
}
"""``sharded_state_dict`` of a GPTModel of these sizes."""


def wholes(path):
    return whole_states(path, read_manifest(path), STATES)


def to_megatron(source, folder, family, **further):
    model = config_of(folder / "model", family)
    api.convert(source, ConvertRequest(to="megatron", output=folder / "megatron", model=model, **further))
    return folder / "megatron", model


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A checkpoint of a tiny Llama on one device."""
    return saved_run(tmp_path_factory.mktemp("source"), "llama", tp=1)


@pytest.fixture(scope="module")
def written(source, tmp_path_factory):
    """It in Megatron's format, and its model."""
    return to_megatron(source, tmp_path_factory.mktemp("written"), "llama")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "qwen2_moe"])
def test_the_way_there_and_back_keeps_every_bit(tmp_path, family):
    source = saved_run(tmp_path / "source", family)
    there, model = to_megatron(source, tmp_path, family)
    answer = api.convert(there, ConvertRequest(to="meshwright", output=tmp_path / "ours", model=model))
    found, expected = wholes(tmp_path / "ours"), wholes(source)
    assert (answer.step, answer.left_out) == (2, ())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_corrections_of_a_router_are_carried(tmp_path):
    source = saved_run(tmp_path / "source", "glm4_moe plain", tp=1)
    there, model = to_megatron(source, tmp_path, "glm4_moe plain")
    folder = DcpFolder(there / "iter_0000002")
    assert "decoder.layers.1.mlp.router.expert_bias" in folder.tensors
    api.convert(there, ConvertRequest(to="meshwright", output=tmp_path / "ours", model=model))
    found, expected = wholes(tmp_path / "ours"), wholes(source)
    assert any(state == "buffer" for state, _ in found)
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_keys_shapes_and_rows_are_those_of_megatron(tmp_path):
    source = saved_run(tmp_path / "source", "qwen3")
    there, _ = to_megatron(source, tmp_path, "qwen3")
    folder, ours = DcpFolder(there / "iter_0000002"), wholes(source)
    assert (there / "latest_checkpointed_iteration.txt").read_text() == "2"
    plain = {key: list(of.shape) for key, of in folder.tensors.items() if not key.startswith("optimizer.")}
    assert plain == STACKED
    expected = {
        f"optimizer.state.{kind}.{key}" for kind in ("exp_avg", "exp_avg_sq", "param") for key in STACKED
    }
    assert {key for key in folder.tensors if key.startswith("optimizer.")} == expected

    qkv = folder.tensor("decoder.layers.self_attention.linear_qkv.weight")[1]
    q, k, v = (ours["parameter", f"layers.1.self_attn.{name}_proj.weight"] for name in "qkv")
    groups = [
        torch.cat([q[32 * g : 32 * g + 32], k[16 * g : 16 * g + 16], v[16 * g : 16 * g + 16]]) for g in (0, 1)
    ]
    assert torch.equal(qkv, torch.cat(groups))
    gate, up = (ours["parameter", f"layers.2.mlp.{name}_proj.weight"] for name in ("gate", "up"))
    assert torch.equal(folder.tensor("decoder.layers.mlp.linear_fc1.weight")[2], torch.cat([gate, up]))


def test_weights_in_use_have_the_type_of_the_run_and_the_master_copy_its_own(tmp_path):
    source = saved_run(tmp_path / "source", "llama", "bf16", tp=1)
    there, _ = to_megatron(source, tmp_path, "llama")
    folder = DcpFolder(there / "iter_0000002")
    key, ours = "decoder.final_layernorm.weight", wholes(source)["parameter", "head.norm.weight"]
    assert torch.equal(folder.tensor(key), ours.bfloat16())
    assert torch.equal(folder.tensor(f"optimizer.state.param.{key}"), ours)


@pytest.mark.parametrize(("plan", "numbers"), [({"tp": 1}, None), ({"dp_shard": 2, "ep": 2}, [0, 1])])
def test_the_common_state_names_the_form_and_the_groups(tmp_path, plan, numbers):
    source = saved_run(tmp_path / "source", "mixtral", **plan)
    there, _ = to_megatron(source, tmp_path, "mixtral")
    common = torch.load(io.BytesIO(value_bytes(DcpFolder(there / "iter_0000002"))), weights_only=False)[0]
    assert common["content_metadata"]["distrib_optim_sharding_type"] == "fully_reshardable"
    assert (common["iteration"], common["args"].num_experts, common["args"].padded_vocab_size) == (2, 6, 128)
    optimizers = [common["optimizer"]] if numbers is None else [common["optimizer"][of] for of in numbers]
    groups = [group for of in optimizers for group in of["optimizer"]["param_groups"]]
    assert {(group["max_lr"], group["min_lr"], group["step"]) for group in groups} == {(1e-3, 1e-4, 2)}
    assert {group["is_expert_parallel"] for group in groups} == (
        {False} if numbers is None else {False, True}
    )


def value_bytes(folder):
    chunk = folder.values[COMMON]
    with (folder.path / chunk.file).open("rb") as file:
        file.seek(chunk.start)
        return file.read(chunk.length)


def test_a_run_goes_on_from_megatron_and_tells_its_model(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"tp": 2})
    first = run.train("run", 2)
    checkpoint = first.outcome.checkpoint
    api.convert(
        checkpoint, ConvertRequest(to="megatron", output=tmp_path / "megatron")
    )  # plan.yaml has the model
    request = ConvertRequest(to="meshwright", output=tmp_path / "ours", model=str(tmp_path))
    api.convert(tmp_path / "megatron", request)
    again = run.train("again", 4, resume=str(tmp_path / "ours"))
    expected = run.train("expected", 4, resume=str(checkpoint))
    assert again.outcome.losses == pytest.approx(expected.outcome.losses, rel=1e-6)


def written_before(folder, source, **further):
    """A checkpoint with each tensor in one piece, and the common state in a file, as releases before 0.19 wrote it."""
    read = DcpFolder(source)
    state = {key: read.tensor(key) for key in read.tensors} | further
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    torch.save({"iteration": 5}, folder / "common.pt")
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}), encoding="utf-8")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_older_files_with_other_chunks_are_read(tmp_path):
    source = saved_run(tmp_path / "source", "qwen3_moe")
    there, model = to_megatron(source, tmp_path, "qwen3_moe")
    written_before(tmp_path / "older", there / "iter_0000002")
    request = ConvertRequest(to="meshwright", output=tmp_path / "ours", model=model)
    assert api.convert(tmp_path / "older", request).step == 5
    found, expected = wholes(tmp_path / "ours"), wholes(source)
    assert all(torch.equal(found[key], expected[key]) for key in expected)


class Harm:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return shutil.copyfile, (__file__, str(self.path))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_harmful_common_states_create_no_file(written, tmp_path):
    there, model = written
    written_before(tmp_path / "older", there / "iter_0000002")
    torch.save({"iteration": 5, "args": Harm(tmp_path / "made")}, tmp_path / "older" / "common.pt")
    request = ConvertRequest(to="meshwright", output=tmp_path / "ours", model=model)
    with pytest.raises(InputError, match=r"older/common.pt.*asks for shutil.copyfile.*--trust"):
        api.convert(tmp_path / "older", request)
    assert not (tmp_path / "made").exists()
    api.convert(tmp_path / "older", ConvertRequest(**{**vars_of(request), "trust": True}))
    assert (tmp_path / "made").exists()


def vars_of(request):
    return {name: getattr(request, name) for name in request.__slots__}


@pytest.mark.parametrize(
    ("family", "says"),
    [
        ("gemma2", r"gemma2.*norms per layer 4"),
        ("granite", r"granite.*multipliers"),
        ("bloom", r"bloom.*a norm after the embedding"),
        ("deepseek_v3", r"kv_a_layernorm.*has no place"),
        ("gpt_oss unbiased", r"gpt_oss.*biases"),
    ],
)
def test_families_without_a_form_are_refused_by_name(source, tmp_path, family, says):
    with pytest.raises(UnsupportedError, match=re.compile(says, re.DOTALL)):
        to_megatron(source, tmp_path, family)
    assert not (tmp_path / "megatron").exists()


def test_one_moment_is_refused(tmp_path):
    source = saved_run(tmp_path / "source", "llama", tp=1, optimizer={"name": "sgd", "momentum": 0.9})
    with pytest.raises(UnsupportedError, match="has one moment"):
        to_megatron(source, tmp_path, "llama")


def other_backend(folder):
    (folder / "iter_0000002" / "metadata.json").write_text('{"sharded_backend": "zarr"}', encoding="utf-8")


DAMAGES = {
    "backend": (other_backend, "zarr.*torch_dist"),
    "json": (lambda folder: (folder / "iter_0000002" / "metadata.json").write_text("{"), "names no backend"),
    "newest": (
        lambda folder: (folder / "latest_checkpointed_iteration.txt").write_text("x"),
        "names no step",
    ),
    "missing": (lambda folder: shutil.rmtree(folder / "iter_0000002"), "is no checkpoint"),
    "values": (lambda folder: (folder / "iter_0000002" / "__values_0.distcp").unlink(), "__values_0.distcp"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(written, tmp_path, name):
    damage, says = DAMAGES[name]
    there, model = written
    shutil.copytree(there, tmp_path / "source")
    damage(tmp_path / "source")
    with pytest.raises(InputError, match=says):
        api.convert(
            tmp_path / "source", ConvertRequest(to="meshwright", output=tmp_path / "ours", model=model)
        )
    assert not (tmp_path / "ours").exists()


def test_another_model_and_no_model_are_named(source, written, tmp_path):
    there, _ = written
    with pytest.raises(InputError, match="--model MODEL"):
        api.convert(there, ConvertRequest(to="meshwright", output=tmp_path / "ours"))
    other = config_of(tmp_path / "other", "qwen3")
    with pytest.raises(InputError, match="with the shape that the model gives it"):
        api.convert(there, ConvertRequest(to="meshwright", output=tmp_path / "ours", model=other))
    request = ConvertRequest(to="megatron", output=tmp_path / "x")
    with pytest.raises(InputError, match="--model MODEL"):
        api.convert(source, request)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_buckets_of_a_distributed_optimizer_are_refused(written, tmp_path):
    there, model = written
    key = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_bf16.bucket_idx_0.exp_avg"
    written_before(tmp_path / "older", there / "iter_0000002", **{key: torch.zeros(4)})
    with pytest.raises(InputError, match="--dist-ckpt-optim-fully-reshardable"):
        api.convert(tmp_path / "older", ConvertRequest(to="dcp", output=tmp_path / "x", model=model))


def test_the_common_state_is_read_without_megatron(written):
    common = read_common(DcpFolder(written[0] / "iter_0000002"))
    assert (common["iteration"], common["args"].num_layers) == (2, tiny("llama").architecture.layers)
