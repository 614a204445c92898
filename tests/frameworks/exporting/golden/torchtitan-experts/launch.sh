#!/usr/bin/env bash
# meshwright VERSION for torchtitan 0.3.0
# qwen3-30b-a3b on h100-sxm-80gb x 32: pp=2 dp_replicate=1 dp_shard=16 cp=1 tp=1 ep=8 etp=1 zero3 interleaved-1f1b x2 micro_batch=1 recompute=full seq_len=4096 global_batch=128 bf16
set -euo pipefail
HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
source "${HERE}/args.sh"

# Where the nodes meet; job.sbatch sets these.
NNODES="${NNODES:-4}"
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
