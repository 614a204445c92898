import pytest

from meshwright.ingestion.kineto.collective_axes import OTHER, GroupCategories, plan_axes
from meshwright.ingestion.kineto.kernel_names import (
    ATTENTION,
    COMMUNICATION,
    COPY,
    ELEMENTWISE,
    GEMM,
    KERNELS,
    OPERATORS,
    OTHER_KIND,
    collective_kind,
    kind_of,
)
from meshwright.ingestion.kineto.rank_trace import Collective
from meshwright.program.layouts.rank_mesh import RankGrid

ATTENTION_ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
EXPERT_ORDER = ("etp", "ep", "edp_shard", "edp_replicate", "pp")
SIZES = {"tp": 4, "cp": 1, "dp_shard": 4, "dp_replicate": 2, "pp": 2}
DENSE = plan_axes([RankGrid(SIZES, ATTENTION_ORDER)])
EXPERT_SIZES = {"etp": 1, "ep": 8, "edp_shard": 2, "edp_replicate": 2, "pp": 2}
SPARSE = plan_axes([RankGrid(SIZES, ATTENTION_ORDER), RankGrid(EXPERT_SIZES, EXPERT_ORDER)])


def category(axes, kind, size=0, ranks=(), description=""):
    return GroupCategories(axes).category(kind, Collective(kind, size, description, tuple(ranks)))


def test_axes_of_a_plan_partition_its_ranks():
    assert set(DENSE) == {"tp", "dp_shard", "dp_replicate", "pp", "dp_shard+dp_replicate", "world"}
    for groups in DENSE.values():
        assert sorted(rank for group in groups for rank in group) == list(range(64))


def test_ranks_tell_axes_of_one_size_apart():
    assert category(DENSE, "all-reduce", 4, (0, 1, 2, 3)) == "tp"
    assert category(DENSE, "all-reduce", 4, (0, 4, 8, 12)) == "dp"
    assert category(DENSE, "all-reduce", 4) == OTHER
    assert category(DENSE, "all-reduce", 4, description="TENSOR_MODEL_PARALLEL_GROUP") == "tp"


def test_the_first_ranks_of_a_long_group_are_enough():
    axes = {"dp_shard": [list(range(64))], "tp": [list(range(64, 128))]}
    assert category(axes, "all-gather", 64, range(30)) == "dp"
    assert category(axes, "all-gather", 64, range(64, 94)) == "tp"


def test_a_size_that_one_axis_has_is_enough():
    assert category(DENSE, "all-gather", 8) == "dp"  # dp_shard and dp_replicate together
    assert category(DENSE, "send-receive", 2) == "pp"
    assert category(DENSE, "all-reduce", 64) == "dp"


def test_what_is_done_decides_between_axes_over_the_same_ranks():
    ranks = (0, 1, 2, 3, 4, 5, 6, 7)
    assert category(SPARSE, "all-to-all", 8, ranks) == "ep"
    assert category(SPARSE, "all-to-all") == "ep"
    same = {"ep": [[0, 1]], "dp_shard": [[0, 1]]}
    assert category(same, "all-to-all", 2, (0, 1)) == "ep"
    assert category(same, "all-gather", 2, (0, 1)) == OTHER
    assert category(same, "all-gather", 2, (0, 1), "mesh_fsdp") == "dp"


def test_messages_may_be_sent_in_a_group_of_everybody():
    assert category(DENSE, "send-receive", 64, range(30), "default_pg") == "pp"
    assert category(DENSE, "exchange", 64) == "pp"
    assert category({"tp": [[0, 1]]}, "send-receive", 2) == OTHER


def test_a_group_that_is_not_of_the_plan_is_not_guessed():
    assert category({"tp": [[0, 1]]}, "all-reduce", 8) == OTHER
    assert category({"tp": [[0, 1]]}, "all-reduce") == "tp"
    assert category({"tp": [[0, 1]]}, "all-reduce", 8, description="mesh_tp") == "tp"


def test_ranks_are_believed_before_names():
    assert category(DENSE, "all-reduce", 4, (0, 1, 2, 3), "DATA_PARALLEL_GROUP") == "tp"


@pytest.mark.parametrize(
    ("description", "expected"),
    {
        "TENSOR_MODEL_PARALLEL_GROUP": "tp",
        "DATA_PARALLEL_GROUP_WITH_CP": "dp",
        "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "dp",
        "EXPERT_DATA_PARALLEL_GROUP": "dp",
        "CONTEXT_PARALLEL_GROUP": "cp",
        "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
        "EMBEDDING_GROUP": "dp",
        "MODEL_PARALLEL_GROUP": "dp",
        "EXPERT_MODEL_PARALLEL_GROUP": "ep",
        "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "ep",
        "mesh_tp": "tp",
        "mesh_fsdp": "dp",
        "mesh_efsdp": "dp",
        "mesh_dp_replicate": "dp",
        "mesh_dp_shard_cp": "dp",
        "mesh_ep": "ep",
        "mesh_cp": "cp",
        "mesh_pp": "pp",
        "mesh_dim_0": OTHER,
        "default_pg": OTHER,
        "undefined": OTHER,
        "": OTHER,
    }.items(),
)
def test_names_of_groups_tell_without_a_plan(description, expected):
    assert category(None, "all-gather", 8, description=description) == expected


@pytest.mark.parametrize(
    ("said", "kernel", "expected"),
    [
        ("allreduce", "", "all-reduce"),
        ("_allgather_base", "", "all-gather"),
        ("allgather_into_tensor_coalesced", "", "all-gather"),
        ("_reduce_scatter_base", "", "reduce-scatter"),
        ("reduce_scatter_tensor_coalesced", "", "reduce-scatter"),
        ("all_to_allv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all-to-all"),
        ("nccl:all_to_all", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "all-to-all"),
        ("send", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send-receive"),
        ("", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "exchange"),
        ("", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)", "reduce-scatter"),
        ("", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "all-reduce"),
        ("coalesced", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage)", "all-gather"),
        ("", "void deep_ep::intranode::dispatch<8, 768>(int4*)", "all-to-all"),
        ("", "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", ""),
    ],
)
def test_collectives_by_what_is_said_of_them_or_by_kernel(said, kernel, expected):
    assert collective_kind(said, kernel) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT", GEMM),
        ("ampere_sgemm_32x32_sliced1x4_tn", GEMM),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>(Params)", GEMM),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN", GEMM),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", GEMM),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)", ATTENTION),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90>>", ATTENTION),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)", ATTENTION),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob", ATTENTION),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
            ELEMENTWISE,
        ),
        ("triton_poi_fused_add_cos_sin_0", ELEMENTWISE),
        ("triton_red_fused_native_layer_norm_3", OTHER_KIND),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", OTHER_KIND),
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int, int const*)", OTHER_KIND),
        ("Memcpy DtoH (Device -> Pageable)", COPY),
        ("Memset (Device)", COPY),
        ("ncclSymDevKernel_AllReduce_AGxLL_R(ncclSymDevArgs)", COMMUNICATION),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(RankData*)", COMMUNICATION),
        ("two_shot_all_reduce_kernel", COMMUNICATION),
    ],
)
def test_kinds_of_kernels(name, kind):
    assert kind_of(name, KERNELS) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", GEMM),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", ATTENTION),
        ("aten::add_", ELEMENTWISE),
        ("aten::copy_", COPY),
        ("aten::embedding", OTHER_KIND),
        ("c10d::_allgather_base_", COMMUNICATION),
        ("gloo:all_reduce", COMMUNICATION),
    ],
)
def test_kinds_of_operators(name, kind):
    assert kind_of(name, OPERATORS) == kind
