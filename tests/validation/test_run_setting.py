"""Settings of runs: what the columns replace in node and stack."""

import pytest
from example_run_tables import row, run_of, write

from meshwright.cluster.catalog import usual_node
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError
from meshwright.stack.load import load_stack
from meshwright.validation.read_run_table import read_runs
from meshwright.validation.run_setting import setting_of


def of(table, **changes):
    return setting_of(run_of(table, **changes).given)


def test_the_usual_node_unless_told(table):
    assert of(table).cluster.pool.node == usual_node("a100-sxm-80gb")
    assert of(table, device="GB200").cluster.pool.node == usual_node("gb200")


def test_columns_replace_the_node(table):
    node = of(table, devices_per_node=4, scaleup_domain=2, node_nic_gbit_per_s=80).cluster.pool.node
    assert (node.devices, node.scaleup_domain, node.nic_bytes_per_s) == (4, 2, 10e9)


def test_fewer_devices_in_a_node_keep_their_share_of_the_nics(table):
    node, usual = of(table, devices_per_node=4).cluster.pool.node, usual_node("a100-sxm-80gb")
    assert node.nic_bytes_per_s_per_device == usual.nic_bytes_per_s_per_device
    assert node.scaleup_domain == 4
    assert of(table, device="GB200", devices_per_node=2).cluster.pool.node.scaleup_domain == 72


def test_an_unknown_stack_is_generic(table):
    assert of(table, stack="something else").stack == load_stack("generic")
    assert of(table, stack="").stack == load_stack("generic")
    assert of(table, stack="Megatron-Core").stack == load_stack("megatron-core")
    assert of(table, stack="/etc/passwd.yaml").stack == load_stack("generic")


def test_columns_replace_the_facts_of_the_stack(table):
    stack = of(
        table,
        stack="x",
        attention="eager",
        fused_norm="false",
        loss_logits="gathered-fp32",
        comm_overlap="none",
    ).stack
    assert (stack.attention, stack.fused_softmax, stack.fused_norm) == ("eager", False, False)
    assert (stack.loss_vocab_parallel, stack.logit_bytes) == (False, 16)
    assert not stack.overlap_gradient_reduction
    assert not stack.overlap_parameter_gather
    assert not stack.deduplicates_exchange
    assert not stack.overlap_expert_exchange
    newest = of(table, stack="megatron-bridge", expert_overlap="false").stack
    assert not any(recipe.overlaps_exchange for recipe in newest.device_recipes)
    stack = of(table, stack="x", expert_dispatch="once", expert_overlap="true").stack
    assert stack.deduplicates_exchange
    assert stack.overlap_expert_exchange


@pytest.mark.parametrize(
    ("columns", "release"),
    [
        ({"stack": "megatron-bridge"}, "26.06"),
        ({"stack": "megatron-bridge", "release": "26.04.01"}, "26.02"),
        ({"stack": "Megatron-Bridge 26.02"}, "26.02"),
        ({"stack": "x", "release": "26.04"}, "1"),
    ],
)
def test_the_release_of_a_run_tells_that_of_the_stack(table, columns, release):
    assert of(table, **columns).stack.release == release


@pytest.mark.parametrize(
    ("stack", "column", "kernel"),
    [
        ("megatron-core", "flash", "flash3"),
        ("megatron-core", "flash2", "flash"),
        ("torchtitan", "flash", "flash"),
        ("torchtitan", "flash3", "flash3"),
        ("megatron-zero-bubble", "fused-softmax", "fused-softmax"),
        ("megatron-lm-2022", "", "fused-softmax"),
    ],
)
def test_kernels_of_attention(table, stack, column, kernel):
    assert of(table, stack=stack, attention=column).stack.attention == kernel


def test_fine_tuning_is_priced_as_pre_training(table):
    assert of(table, task="SFT").model == of(table, task="").model


def test_adapters_leave_most_of_a_model_frozen(table):
    plain, adapted = of(table).model, of(table, task="LoRA").model
    assert plain.parameters < adapted.parameters < 1.2 * plain.parameters
    assert adapted.tied_gradients is False


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task": "serve"}, "serve is not priced yet"),
        ({"task": "dreaming"}, "dreaming is not priced yet"),
        ({"precision": "fp32"}, "fp32 is not priced yet"),
        ({"precision": "nvfp4"}, "no such matrix units"),
    ],
)
def test_what_is_not_priced_is_refused(table, changes, reason):
    with pytest.raises(InputError, match=reason):
        of(table, **changes)


def test_a_cluster_that_is_known_better_stands_for_its_device_alone(table):
    slow = "pools: [{count: 16, device: {like: a100-sxm-80gb, id: our-a100, memory_gbyte_per_s: 1000}}]"
    known = load_cluster(f"name: ours\ncalibration: {{gemm_efficiency: 0.4}}\n{slow}\n")
    write(table, [row(device="our-a100", devices_per_node=4)])
    (ours,) = read_runs(table, ["our-a100"])
    cluster = setting_of(ours.given, known).cluster
    assert (cluster.name, cluster.devices, cluster.calibration) == ("ours", 8, known.calibration)
    assert (cluster.pool.device, cluster.pool.node) == (known.pool.device, known.pool.node)
    other = run_of(table, device="A100-80GB").given
    assert setting_of(other, known).cluster == setting_of(other).cluster
