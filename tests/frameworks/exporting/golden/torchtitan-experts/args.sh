# meshwright VERSION for torchtitan 0.3.0
# qwen3-30b-a3b on h100-sxm-80gb x 32: pp=2 dp_replicate=1 dp_shard=16 cp=1 tp=1 ep=8 etp=1 zero3 interleaved-1f1b x2 micro_batch=1 recompute=full seq_len=4096 global_batch=128 bf16
# shellcheck shell=bash
TORCHTITAN_ARGS=(
  --module qwen3
  --config qwen3_30b_a3b
  --parallelism.data_parallel_replicate_degree 1
  --parallelism.data_parallel_shard_degree 16
  --parallelism.context_parallel_degree 1
  --parallelism.tensor_parallel_degree 1
  --parallelism.pipeline_parallel_degree 2
  --parallelism.expert_parallel_degree 8
  --parallelism.fsdp_reshard_after_forward never
  --parallelism.pipeline_parallel_schedule Interleaved1F1B
  --parallelism.module_fqns_per_model_part tok_embeddings,layers.0,layers.1,layers.2,layers.3,layers.4,layers.5,layers.6,layers.7,layers.8,layers.9,layers.10,layers.11 layers.12,layers.13,layers.14,layers.15,layers.16,layers.17,layers.18,layers.19,layers.20,layers.21,layers.22,layers.23 layers.24,layers.25,layers.26,layers.27,layers.28,layers.29,layers.30,layers.31,layers.32,layers.33,layers.34,layers.35 layers.36,layers.37,layers.38,layers.39,layers.40,layers.41,layers.42,layers.43,layers.44,layers.45,layers.46,layers.47,norm,lm_head
  --parallelism.pipeline_parallel_microbatch_size 1
  --training.seq_len 4096
  --training.local_batch_size 8
  --training.global_batch_size 128
  --training.mixed_precision_param bfloat16
  --training.disable_cuda_graphs
)
TORCHTITAN_SUBCOMMANDS=(
  activation-checkpoint:full
)
