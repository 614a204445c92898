from meshwright.frameworks.option_names import bash_array, option_names, unknown_options


def test_lists_hold_the_options_of_the_release() -> None:
    megatron, torchtitan = option_names("megatron-core", "0.19.2"), option_names("torchtitan", "0.3.0")
    assert len(megatron) > 800
    assert len(torchtitan) > 150
    assert {"--tensor-model-parallel-size", "--pipeline-model-parallel-layout", "--mock-data"} <= megatron
    assert {"--parallelism.tensor_parallel_degree", "activation-checkpoint:memory-budget"} <= torchtitan
    assert all(name.startswith("--") for name in megatron)


def test_options_that_a_release_dropped_are_not_in_its_list() -> None:
    assert "--parallelism.expert_tensor_parallel_degree" not in option_names("torchtitan", "0.3.0")
    assert "--activation_checkpoint.mode" not in option_names("torchtitan", "0.3.0")


def test_unknown_options_are_named() -> None:
    options = [("--seq-length", "8"), ("--sequence-lenght", "8"), ("--bf17",)]
    assert unknown_options(options, "megatron-core", "0.19.2") == ["--bf17", "--sequence-lenght"]


def test_values_are_quoted() -> None:
    assert bash_array("A", [("--x", "a b"), ("--y", "$(rm)")]) == "A=(\n  --x 'a b'\n  --y '$(rm)'\n)"
