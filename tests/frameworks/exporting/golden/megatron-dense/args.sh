# meshwright VERSION for megatron-core 0.19.2
# llama-3.1-70b on h100-sxm-80gb x 64: pp=4 dp_replicate=1 dp_shard=8 cp=1 tp=2 zero1 interleaved-1f1b x2 micro_batch=1 recompute=selective seq_len=8192 global_batch=512 bf16
# Rotary scaling for long contexts is no part of a plan: add it where a checkpoint has it.
# shellcheck shell=bash
MEGATRON_ARGS=(
  --num-layers 80
  --hidden-size 8192
  --ffn-hidden-size 28672
  --num-attention-heads 64
  --kv-channels 128
  --group-query-attention
  --num-query-groups 8
  --position-embedding-type rope
  --max-position-embeddings 131072
  --rotary-base 500000
  --normalization RMSNorm
  --norm-epsilon 1e-05
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 4
  --context-parallel-size 1
  --sequence-parallel
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --num-virtual-stages-per-pipeline-rank 2
  --recompute-granularity selective
  --recompute-modules core_attn
  --micro-batch-size 1
  --global-batch-size 512
  --seq-length 8192
  --bf16
  --optimizer adam
  --attention-backend auto
  --make-vocab-size-divisible-by 128
)
