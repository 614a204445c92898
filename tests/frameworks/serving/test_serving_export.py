"""Exports of serving plans: known options, and commands that say what the plan says."""

import re

import pytest
import yaml
from hypothesis import given, settings
from started_servers import (
    EXPERTS,
    LATENT,
    exportable_plans,
    legal_plans,
    parsed,
    plan_text,
    resolved,
    started,
)

from meshwright.cost.serving.hardware_times import serving_constants
from meshwright.cost.serving.memory import iteration_activation_bytes, kv_room_bytes
from meshwright.errors import UnsupportedError
from meshwright.frameworks.option_names import option_names
from meshwright.frameworks.serving.export_limits import serving_export_problems
from meshwright.frameworks.serving.serving_targets import SERVING_TARGETS
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.program.serving.weight_bytes import rank_weight_bytes
from meshwright.stack.serving.serving_stack import load_serving_stack

SAID = re.compile(r"(?<![\w-])--[A-Za-z][\w.-]*")
FLAGS = (
    *("--enable-expert-parallel", "--enable-prefix-caching", "--no-enable-prefix-caching", "--enable-dbo"),
    *("--headless", "--enable-dp-attention", "--disable-radix-cache", "--enable-two-batch-overlap"),
)
OTHERS = {
    "vllm": option_names("vllm-router", "0.1.17"),
    "sglang": option_names("sglang-router", "0.3.2"),
    "tensorrt-llm": frozenset({"--mpi", "--nodes", "--ntasks", "--ntasks-per-node"}),
}
"""Options of the routers and of srun, which are no options of the engine."""
NODE = {"NODE_RANK": "0", "HEAD_ADDR": "head"}


def _scripts(export):
    return {path.rpartition("/")[2]: text for path, text in export.files.items()}


@pytest.mark.parametrize("target", SERVING_TARGETS)
@given(this=legal_plans())
@settings(max_examples=40, deadline=None)
def test_every_option_of_a_legal_plan_is_known_to_the_engine(target, this):
    if this is None:
        return
    problems = serving_export_problems(target, this)
    if problems:
        with pytest.raises(UnsupportedError) as caught:
            SERVING_TARGETS[target](this)
        assert list(caught.value.problems) == problems
        assert all(problem.rule and problem.suggestion for problem in problems)
        return
    export = SERVING_TARGETS[target](this)
    known = option_names(target, export.release)
    for path, text in export.files.items():
        others = OTHERS[target] if path.endswith("router.sh") or target == "tensorrt-llm" else frozenset()
        code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        if path.endswith(".yaml"):
            assert _dotted(yaml.safe_load(text)) <= known
        elif path.endswith(".sh"):
            assert set(SAID.findall(code)) <= known | others


def _dotted(values, path=""):
    found = set()
    for key, value in values.items():
        found |= _dotted(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}"}
    return found


@pytest.mark.parametrize("target", SERVING_TARGETS)
@given(this=exportable_plans())
@settings(max_examples=25, deadline=None)
def test_the_started_command_has_the_degrees_and_limits_of_the_plan(target, this):
    assert not serving_export_problems(target, this)
    export = SERVING_TARGETS[target](this)
    for name, pool in this.plan.pools.items():
        words, _, files = started(_scripts(export), f"pool-{name}.sh", MODEL="a/model", **NODE)
        found = parsed(words, *FLAGS)
        layout = next(iter(pool.layouts.values()))
        said = READ[target](found, yaml.safe_load(files.get(f"pool-{name}.yaml", "{}")))
        assert said["devices"] == layout.devices
        assert (said["attention_dp"], said["tp"], said["pp"]) == (layout.attention_dp, layout.tp, layout.pp)
        assert said["block_tokens"] == pool.batching.block_tokens
        assert said["prefix_cache"] == pool.batching.prefix_cache
        assert said["chunk_tokens"] == pool.batching.chunk_tokens
        if this.model.architecture.moe is not None:
            assert said["ep"] == layout.ep
        most = pool.batching.max_sequences
        if most is not None:
            assert most - layout.attention_dp * layout.pp < said["sequences"] <= most
        _has_the_memory(said, this, pool)


def _has_the_memory(said, this, pool):
    """Hold the engine's share of memory against the plan's law, whose parts are computed here again."""
    layout = next(iter(pool.layouts.values()))
    degrees = ReplicaDegrees(
        attention_dp=layout.attention_dp,
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        ep=layout.ep,
        etp=layout.etp,
    )
    formats = StorageFormats.of_pool(pool.formats, this.model.architecture)
    memory, chunk = this.cluster.pool.device.memory_bytes, pool.batching.chunk_tokens
    weights = float(rank_weight_bytes(this.model, degrees, formats))
    activations = float(iteration_activation_bytes(this.model, chunk, degrees))
    rest = activations + serving_constants()["buffer_bytes"]
    cache = {
        "free": lambda share: share * (memory - weights - rest),
        "used": lambda share: share * memory - weights - rest,
        "static": lambda share: share * memory - weights,
    }[said["share_of"]](said["share"])
    kept_free = load_serving_stack("vllm").kept_free_bytes if said["share_of"] == "used" else 0.0
    room = float(kv_room_bytes(memory, weights, activations, pool.batching.kv_fraction, kept_free))
    assert said["share_of"] != "used" or (1 - said["share"]) * memory >= kept_free > 0
    assert -1e-4 * memory <= cache - room <= 1e-9 * memory


def _vllm(found, _):
    tp, pp, ranks = (int(found[f"{axis}_parallel_size"]) for axis in ("tensor", "pipeline", "data"))
    return {
        "devices": tp * pp * ranks,
        "attention_dp": ranks,
        "tp": tp,
        "pp": pp,
        "ep": tp * ranks if found.get("enable_expert_parallel") else 1,
        "sequences": int(found["max_num_seqs"]) * ranks,
        "chunk_tokens": int(found["max_num_batched_tokens"]),
        "block_tokens": int(found["block_size"]),
        "prefix_cache": bool(found.get("enable_prefix_caching"))
        and not found.get("no_enable_prefix_caching"),
        "share": float(found["gpu_memory_utilization"]),
        "share_of": "used",
    }


def _sglang(found, _):
    size, pp, ranks = int(found["tp_size"]), int(found["pp_size"]), int(found.get("dp_size", 1))
    assert (ranks > 1) == bool(found.get("enable_dp_attention"))
    return {
        "devices": size * pp,
        "attention_dp": ranks,
        "tp": size // ranks,
        "pp": pp,
        "ep": int(found.get("ep_size", 1)),
        "sequences": int(found["max_running_requests"]),
        "chunk_tokens": int(found["chunked_prefill_size"]) // ranks,
        "block_tokens": int(found["page_size"]),
        "prefix_cache": not found.get("disable_radix_cache"),
        "share": float(found["mem_fraction_static"]),
        "share_of": "static",
    }


def _tensorrt_llm(found, values):
    size, pp = int(found["tp_size"]), int(found["pp_size"])
    ranks = size if values["enable_attention_dp"] else 1
    cache = values["kv_cache_config"]
    assert int(found.get("ep_size", 1)) * values.get("moe_tensor_parallel_size", size) == size
    return {
        "devices": size * pp,
        "attention_dp": ranks,
        "tp": size // ranks,
        "pp": pp,
        "ep": int(found.get("ep_size", 1)),
        "sequences": int(found["max_batch_size"]) * pp * ranks,
        "chunk_tokens": int(found["max_num_tokens"]),
        "block_tokens": cache["tokens_per_block"],
        "prefix_cache": cache["enable_block_reuse"],
        "share": cache["free_gpu_memory_fraction"],
        "share_of": "free",
    }


READ = {"vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt_llm}
HAND_OVER = plan_text(
    LATENT,
    {
        "fill": {"does": "prefill", "replicas": 2, "layout": {"tp": 8, "ep": 8}},
        "write": {
            "does": "decode",
            "layout": {"attention_dp": 16, "ep": 16},
            "batching": {"max_sequences": 100},
            "quantise": {"kv": "fp8"},
        },
    },
    edges=[{"from": "fill", "to": "write"}],
)


@pytest.mark.parametrize(
    ("target", "option"), [("vllm", "kv_transfer_config"), ("sglang", "disaggregation_mode")]
)
def test_servers_of_a_hand_over_have_roles(target, option):
    files = _scripts(SERVING_TARGETS[target](resolved(HAND_OVER)))
    fill, write = (parsed(started(files, f"pool-{name}.sh", **NODE)[0], *FLAGS) for name in ("fill", "write"))
    roles = ("kv_producer", "kv_consumer") if target == "vllm" else ("prefill", "decode")
    assert (roles[0] in fill[option], roles[1] in write[option]) == (True, True)
    assert fill[option] != write[option]


def test_the_second_node_of_vllm_has_the_ranks_behind_those_of_the_first():
    files = _scripts(SERVING_TARGETS["vllm"](resolved(HAND_OVER)))
    words, *_ = started(files, "pool-write.sh", NODE_RANK="1", HEAD_ADDR="head")
    found = parsed(words, *FLAGS)
    assert (found["headless"], found["data_parallel_size_local"], found["data_parallel_start_rank"]) == (
        True,
        "8",
        "8",
    )
    assert found["data_parallel_address"] == "head"


def test_one_rank_of_vllm_may_span_nodes():
    text = plan_text("llama-3.1-405b", {"all": {"does": "serve", "layout": {"tp": 8, "pp": 2}}})
    files = _scripts(SERVING_TARGETS["vllm"](resolved(text)))
    first, second = (
        parsed(started(files, "pool-all.sh", NODE_RANK=rank, HEAD_ADDR="head")[0], *FLAGS) for rank in "01"
    )
    assert (first["nnodes"], first["node_rank"], second["node_rank"]) == ("2", "0", "1")
    assert "headless" not in first
    assert second["headless"]


@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_the_router_knows_every_server(target):
    files = _scripts(SERVING_TARGETS[target](resolved(HAND_OVER)))
    words, *_ = started(files, "router.sh", HOSTS="n0 n1 n2 n3")
    assert [word for word in words if word.startswith("http://")] == [
        "http://n2:8000",
        "http://n3:8001",
        "http://n0:8100",
    ]
    assert (words.count("--prefill"), words.count("--decode")) == (2, 1)
    for node, command in re.findall(r"^\| (\d) \| `(.+?)` \|", files["README.md"], re.MULTILINE):
        assert node in ("0", "1") if "write" in command else node in ("2", "3")


def test_the_server_that_hands_over_knows_every_server_of_tensorrt_llm():
    export = SERVING_TARGETS["tensorrt-llm"](resolved(HAND_OVER))
    words, _, files = started(_scripts(export), "router.sh", HOSTS="n0 n1 n2 n3")
    assert words == ["trtllm-serve", "disaggregated", "--config_file", "disaggregated.yaml"]
    config = yaml.safe_load(files["disaggregated.yaml"])
    assert config["context_servers"] == {"num_instances": 2, "urls": ["n2:8000", "n3:8001"]}
    assert config["generation_servers"] == {"num_instances": 1, "urls": ["n0:8100"]}
    fill = yaml.safe_load(files["pool-fill.yaml"])
    assert (fill["cache_transceiver_config"], fill["disable_overlap_scheduler"]) == (
        {"backend": "DEFAULT"},
        True,
    )


def test_tensorrt_llm_has_a_process_for_each_device_of_several_nodes():
    files = _scripts(SERVING_TARGETS["tensorrt-llm"](resolved(HAND_OVER)))
    words, *_ = started(files, "pool-write.sh")
    assert words[:5] == ["srun", "--mpi=pmix", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8"]
    assert parsed(words)["gpus_per_node"] == "8"
    assert files["README.md"].count("pool-write.sh") == 1


@pytest.mark.parametrize("target", SERVING_TARGETS)
def test_replicas_of_a_node_have_devices_and_ports_of_their_own(target):
    text = plan_text("llama-3.1-8b", {"all": {"does": "serve", "replicas": 3, "layout": {"tp": 2}}})
    files = _scripts(SERVING_TARGETS[target](resolved(text)))
    found = [started(files, "pool-all.sh", REPLICA=str(replica)) for replica in range(3)]
    assert [devices for _, devices, _ in found] == ["0,1", "2,3", "4,5"]
    assert [parsed(words, *FLAGS)["port"] for words, *_ in found] == ["8000", "8001", "8002"]


def test_remarks_say_what_was_rounded_converted_or_left_open():
    export = SERVING_TARGETS["vllm"](resolved(HAND_OVER.replace('"vllm"', '"sglang"')))
    remarks = {remark.key: (remark.value, remark.why) for remark in export.refused}
    assert remarks["stack"][0] == "sglang"
    assert remarks["pools.write.batching.max_sequences"] == (
        "100",
        "written as 6 for each of 16 attention_dp ranks",
    )
    assert remarks["pools.fill.batching.max_sequences"][0] == "absent"
    assert "--gpu-memory-utilization" in remarks["pools.fill.batching.kv_fraction"][1]


def test_sglang_names_what_it_does_in_another_way():
    text = HAND_OVER.replace("concurrency: 64", "concurrency: 64, prefix_tokens: 100")
    keys = [remark.key for remark in SERVING_TARGETS["sglang"](resolved(text)).refused]
    assert "pools.write.batching.prefix_cache" in keys
    assert "pools.fill.batching.prefix_cache" not in keys
    layout = {"attention_dp": 2, "tp": 2, "ep": 4}
    text = plan_text(EXPERTS, {"all": {"does": "serve", "layout": layout}})
    keys = [remark.key for remark in SERVING_TARGETS["sglang"](resolved(text)).refused]
    assert {"pools.all.layout.tp", "pools.all.batching.chunk_tokens"} <= {*keys}


def test_tensorrt_llm_names_that_it_has_no_router_of_whole_requests():
    text = plan_text("llama-3.1-8b", {"all": {"does": "serve", "replicas": 2}})
    export = SERVING_TARGETS["tensorrt-llm"](resolved(text))
    assert [remark.key for remark in export.refused if remark.key == "pools"] == ["pools"]
    assert "tensorrt_llm/router.sh" not in export.files


@pytest.mark.parametrize(
    ("stack", "foreign"), [("vllm", 0), ("vllm@0.24", 0), ("vllm@0.20", 1), ("sglang", 1)]
)
def test_a_plan_for_another_engine_or_release_is_remarked(stack, foreign):
    text = plan_text("llama-3.1-8b", {"all": {"does": "serve"}}, stack=stack)
    keys = [remark.key for remark in SERVING_TARGETS["vllm"](resolved(text)).refused]
    assert keys.count("stack") == foreign


WEIGHTS = {
    "vllm": {"fp8": ("--quantization", "fp8_per_tensor"), "bf16": None, "fp4": None},
    "sglang": {"fp8": ("--quantization", "fp8"), "fp16": ("--dtype", "float16"), "int8": None},
}


@pytest.mark.parametrize(
    ("target", "form", "option"),
    [(t, form, option) for t, row in WEIGHTS.items() for form, option in row.items()],
)
def test_weights_are_an_option_or_a_checkpoint(target, form, option):
    text = plan_text(EXPERTS, {"all": {"does": "serve", "quantise": {"weights": form}}})
    export = SERVING_TARGETS[target](resolved(text))
    words, *_ = started(_scripts(export), "pool-all.sh", MODEL="a/model")
    found = parsed(words, *FLAGS)
    remarks = [remark.value for remark in export.refused if remark.key.endswith("quantise.weights")]
    if option is None:
        assert not {"quantization", "dtype"} & found.keys()
        assert remarks == ([] if form == "bf16" else [form])
    else:
        assert found[option[0].removeprefix("--")] == option[1]
        assert not remarks


def test_released_weights_need_no_option():
    text = plan_text(LATENT, {"all": {"does": "serve", "layout": {"tp": 8}, "quantise": {"weights": "fp8"}}})
    export = SERVING_TARGETS["vllm"](resolved(text))
    assert "--quantization" not in export.files["vllm/pool-all.sh"]
    assert "deepseek-ai/DeepSeek-V3" in export.files["vllm/pool-all.sh"]
