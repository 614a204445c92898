#!/usr/bin/env bash
# Make the Python environments in which `meshwright export --check` and `--check=dry` ask the targets themselves.
#
#   bash scripts/parsers.sh [megatron] [torchtitan] [deepspeed] [accelerate] [bridge]
#
# They lie in ./parsers/TARGET, or where PARSERS says; together some 12 GB, for the targets bring torch. Megatron needs
# Python 3.12 or newer (PYTHON_MEGATRON), Bridge 3.12 itself (PYTHON_BRIDGE). No GPU is needed. Then:
#
#   meshwright export plan.yaml --to megatron --check --python parsers/megatron/bin/python
#   meshwright export plan.yaml --to torchtitan --check=dry --python parsers/torchtitan/bin/python
set -euo pipefail
folder="${PARSERS:-parsers}"
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(megatron torchtitan deepspeed accelerate)

make() {
  local target="$1" python="$2"
  shift 2
  "${python}" -m venv "${folder}/${target}"
  "${folder}/${target}/bin/pip" install --quiet "$@"
}

for target in "${targets[@]}"; do
  echo "${target} → ${folder}/${target}"
  case "${target}" in
    megatron)
      make megatron "${PYTHON_MEGATRON:-python3.12}" 'torch==2.13.*' numpy packaging
      "${folder}/megatron/bin/pip" install --quiet --no-deps megatron-core==0.19.2
      ;;
    # FSDP knows torchtitan's default backend, spmd_types, from torch 2.14 on.
    # Of the releases before 0.3 only the configuration classes are asked: their wheels lie beside it, unpacked.
    torchtitan)
      make torchtitan "${PYTHON:-python3}" 'torch==2.14.*' torchtitan==0.3.0 triton
      for release in 0.1.0 0.2.2; do
        "${folder}/torchtitan/bin/pip" install --quiet --no-deps --target "${folder}/torchtitan-${release}" \
          "torchtitan==${release}"
      done
      ;;
    deepspeed) make deepspeed "${PYTHON:-python3}" 'torch==2.13.*' deepspeed==0.19.8 'transformers==5.23.*' ;;
    bridge)
      # For benchmarks/bridge_accepts.py: without CUDA Bridge answers in part only, so it is made when it is named.
      make bridge "${PYTHON_BRIDGE:-python3.12}" 'torch==2.13.*' 'transformers>=5.8,<=5.12.1' 'hydra-core<1.4' \
        omegaconf peft accelerate einops pyyaml regex six tensorboard tqdm rich numpy packaging
      "${folder}/bridge/bin/pip" install --quiet --no-deps megatron-core==0.19.2 megatron-bridge==0.6.2
      ;;
    accelerate) make accelerate "${PYTHON:-python3}" 'torch==2.13.*' accelerate==1.15.0 'transformers==5.23.*' ;;
    *)
      echo "no such target: ${target}" >&2
      exit 2
      ;;
  esac
done
