#!/usr/bin/env bash
# Plan two models, predict, and write plans, launch files and a trace into ./quickstart. No GPU, no torch.
set -euo pipefail
here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
source "${here}/quickstart_show.sh"

llama=(llama-3.1-70b --on "h100-sxm-80gb x 64" --seq-len 8192 --global-batch 512)
mixtral=(mixtral-8x7b --on "a100-sxm-80gb x 32" --seq-len 4096 --global-batch 256)

echo "== Llama-3.1-70B on 64 H100, for Megatron-Core: the best plans, and why"
run meshwright plan "${llama[@]}" --stack megatron-core --top 3 -o "${out}/llama-megatron.yaml"
run meshwright predict "${out}/llama-megatron.yaml" --trace "${out}/llama-megatron.trace.json"
run meshwright export "${out}/llama-megatron.yaml" --to megatron -o "${out}/llama-megatron"

echo
echo "== The same for torchtitan"
run meshwright plan "${llama[@]}" --stack torchtitan --top 3 -o "${out}/llama-torchtitan.yaml"
run meshwright compare "${out}/llama-megatron.yaml" "${out}/llama-torchtitan.yaml"
run meshwright export "${out}/llama-torchtitan.yaml" --to torchtitan -o "${out}/llama-torchtitan"

echo
echo "== Mixtral 8x7B on 32 A100, for Megatron-Core"
run meshwright plan "${mixtral[@]}" --stack megatron-core --top 3 -o "${out}/mixtral-megatron.yaml"
run meshwright predict "${out}/mixtral-megatron.yaml"
run meshwright export "${out}/mixtral-megatron.yaml" --to megatron -o "${out}/mixtral-megatron"

printf '\nWritten to %s:\n' "${out}"
find "${out}" -type f | sort | sed 's/^/  /'
printf '\nAll figures are predictions. Open the trace at https://ui.perfetto.dev.\n'
