#!/usr/bin/env bash
# meshwright VERSION for torchtitan 0.3.0
# llama-3.1-8b on h100-sxm-80gb x 16: pp=1 dp_replicate=2 dp_shard=2 cp=2 tp=2 zero3 1f1b x1 micro_batch=2 recompute=selective seq_len=8192 global_batch=128 bf16
set -euo pipefail
HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
source "${HERE}/args.sh"

# Where the nodes meet; job.sbatch sets these.
NNODES="${NNODES:-2}"
MASTER_ADDR="${MASTER_ADDR:-localhost}"
MASTER_PORT="${MASTER_PORT:-29500}"
RDZV_ID="${RDZV_ID:-0}"

# Set these for your site. The defaults lie in a checkout of torchtitan at v0.3.0.
cd -- "${TORCHTITAN_DIR:-.}"
RUN_ARGS=(
  --training.steps "${TRAIN_STEPS:-100}"
  --hf_assets_path "${HF_ASSETS_PATH:-./tests/assets/tokenizer}"
  --dataloader.dataset "${DATASET:-c4_test}"
)

exec torchrun \
  --nnodes "${NNODES}" \
  --nproc-per-node 8 \
  --rdzv-backend c10d \
  --rdzv-endpoint "${MASTER_ADDR}:${MASTER_PORT}" \
  --rdzv-id "${RDZV_ID}" \
  -m torchtitan.train \
  "${TORCHTITAN_ARGS[@]}" \
  "${RUN_ARGS[@]}" \
  "$@" \
  "${TORCHTITAN_SUBCOMMANDS[@]}"
