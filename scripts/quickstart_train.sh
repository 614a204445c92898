#!/usr/bin/env bash
# Measure this machine, plan a small model for it, prove the plan, train it on a text, predicted beside measured.
set -euo pipefail
here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
source "${here}/quickstart_show.sh"
examples="${EXAMPLES:-examples}"

echo
echo "== This machine as a cluster: kernels and collectives, measured"
run meshwright measure --budget 6 -o "${out}/this-machine.yaml"

echo
echo "== A small Llama for it: the best plan, proven to compute what one device computes, and trained"
small=("${examples}/small-llama" --on "${out}/this-machine.yaml" --seq-len 128 --global-batch 8)
run meshwright plan "${small[@]}" --stack meshwright --keep cp=1 --top 3 -o "${out}/small-llama.yaml"
run meshwright verify "${out}/small-llama.yaml" --ranks 4
run meshwright run "${out}/small-llama.yaml" --steps 30 --lr 2e-3 --warmup 5 --eval-every 15 --resume never \
  --data "${examples}/persuasion-volume-one.txt" --cache "${out}/tokens" --out "${out}/small-llama"

printf '\nThe loss of every step is in %s. `meshwright run` with more --steps and without --resume goes on.\n' \
  "${out}/small-llama/metrics.jsonl"
