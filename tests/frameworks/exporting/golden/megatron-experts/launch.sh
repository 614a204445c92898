#!/usr/bin/env bash
# meshwright VERSION for megatron-core 0.19.2
# deepseek-v3 on b200 x 256: pp=8 dp_replicate=2 dp_shard=8 cp=1 tp=2 ep=16 etp=1 zero1 1f1b x1 micro_batch=2 recompute=mla_up_proj+moe_act seq_len=4096 global_batch=2048 fp8
set -euo pipefail
HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
source "${HERE}/args.sh"

# Where the nodes meet; job.sbatch sets these.
NNODES="${NNODES:-32}"
MASTER_ADDR="${MASTER_ADDR:-localhost}"
MASTER_PORT="${MASTER_PORT:-29500}"
RDZV_ID="${RDZV_ID:-0}"

# Set these for your site. Without DATA_PATH the run reads mock data.
MEGATRON_DIR="${MEGATRON_DIR:-.}"  # a checkout of Megatron-LM at core_v0.19.2
DATA_ARGS=(
  --mock-data
  --tokenizer-type NullTokenizer
  --vocab-size 129280
)
if [[ -n "${DATA_PATH:-}" ]]; then
  DATA_ARGS=(
    --data-path "${DATA_PATH}"
    --split 100,0,0
    --tokenizer-type "${TOKENIZER_TYPE:-HuggingFaceTokenizer}"
    --tokenizer-model "${TOKENIZER_MODEL:?set it with DATA_PATH}"
  )
fi
RUN_ARGS=(
  --train-iters "${TRAIN_ITERS:-100}"
  --lr "${LR:-1e-4}"
  --eval-iters 0
  --log-interval 1
  --log-throughput
)
if [[ -n "${CHECKPOINT_DIR:-}" ]]; then
  RUN_ARGS+=(
    --save "${CHECKPOINT_DIR}"
    --load "${CHECKPOINT_DIR}"
    --save-interval "${SAVE_INTERVAL:-1000}"
  )
fi

exec torchrun \
  --nnodes "${NNODES}" \
  --nproc-per-node 8 \
  --rdzv-backend c10d \
  --rdzv-endpoint "${MASTER_ADDR}:${MASTER_PORT}" \
  --rdzv-id "${RDZV_ID}" \
  "${MEGATRON_DIR}/pretrain_gpt.py" \
  "${MEGATRON_ARGS[@]}" \
  "${DATA_ARGS[@]}" \
  "${RUN_ARGS[@]}" \
  "$@"
