# meshwright VERSION for megatron-core 0.19.2
# deepseek-v3 on b200 x 256: pp=8 dp_replicate=2 dp_shard=8 cp=1 tp=2 ep=16 etp=1 zero1 1f1b x1 micro_batch=2 recompute=mla_up_proj+moe_act seq_len=4096 global_batch=2048 fp8
# Rotary scaling for long contexts is no part of a plan: add it where a checkpoint has it.
# shellcheck shell=bash
MEGATRON_ARGS=(
  --num-layers 61
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 128
  --multi-latent-attention
  --q-lora-rank 1536
  --kv-lora-rank 512
  --qk-head-dim 128
  --qk-pos-emb-head-dim 64
  --v-head-dim 128
  --rope-type rope
  --no-rope-fusion
  --qk-layernorm
  --position-embedding-type rope
  --max-position-embeddings 163840
  --rotary-base 10000
  --normalization RMSNorm
  --norm-epsilon 1e-06
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --num-experts 256
  --moe-router-topk 8
  --moe-ffn-hidden-size 2048
  --moe-grouped-gemm
  --moe-token-dispatcher-type alltoall
  --moe-layer-freq '([0]*3+[1]*58)'
  --moe-shared-expert-intermediate-size 2048
  --moe-router-score-function sigmoid
  --moe-router-enable-expert-bias
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 8
  --context-parallel-size 1
  --expert-model-parallel-size 16
  --expert-tensor-parallel-size 1
  --sequence-parallel
  --use-distributed-optimizer
  --num-distributed-optimizer-instances 2
  --overlap-grad-reduce
  --overlap-param-gather
  --pipeline-model-parallel-layout 'Et*7|t*7|(t*8|)*5t*7L'
  --recompute-granularity selective
  --recompute-modules mla_up_proj moe_act
  --micro-batch-size 2
  --global-batch-size 2048
  --seq-length 4096
  --bf16
  --fp8-format hybrid
  --fp8-recipe tensorwise
  --optimizer adam
  --attention-backend auto
  --make-vocab-size-divisible-by 128
)
