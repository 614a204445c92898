# meshwright VERSION for torchtitan 0.3.0
# llama-3.1-8b on h100-sxm-80gb x 16: pp=1 dp_replicate=2 dp_shard=2 cp=2 tp=2 zero3 1f1b x1 micro_batch=2 recompute=selective seq_len=8192 global_batch=128 bf16
# shellcheck shell=bash
TORCHTITAN_ARGS=(
  --module llama3
  --config llama3_8b
  --parallelism.data_parallel_replicate_degree 2
  --parallelism.data_parallel_shard_degree 2
  --parallelism.context_parallel_degree 2
  --parallelism.tensor_parallel_degree 2
  --parallelism.pipeline_parallel_degree 1
  --parallelism.expert_parallel_degree 1
  --parallelism.fsdp_reshard_after_forward always
  --training.seq_len 8192
  --training.local_batch_size 2
  --training.global_batch_size 128
  --training.mixed_precision_param bfloat16
)
TORCHTITAN_SUBCOMMANDS=(
  activation-checkpoint:selective
)
