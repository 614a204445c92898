#!/usr/bin/env bash
# Make the Python environments in which `meshwright export --check` and `--check=dry` ask the targets themselves.
#
#   bash scripts/parsers.sh [megatron] [torchtitan] [deepspeed] [accelerate] [bridge] [sources]
#
# `sources` brings the packages of the first four alone, without torch, into ./parsers/sources-TARGET: enough for
# benchmarks/assertions.py megatron=parsers/sources-megatron ...
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

# Unpack a package without what it depends on; its own program for building is not run where there is a wheel.
unpack() {
  local target="$1"
  shift
  "${PYTHON:-python3}" -m pip download --quiet --no-deps --python-version 3.12 --only-binary=:all: \
    --dest "${folder}/downloads" "$@" 2> /dev/null ||
    "${PYTHON:-python3}" -m pip download --quiet --no-deps --dest "${folder}/downloads" "$@"
  "${PYTHON:-python3}" - "${folder}/downloads" "${1/==/-}" "${folder}/sources-${target}" <<'PROGRAM'
import sys, tarfile, zipfile
from pathlib import Path

downloads, name, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
for path in downloads.iterdir():
    if path.name.replace("_", "-").startswith(name.replace("_", "-")):
        if path.suffix == ".whl":
            zipfile.ZipFile(path).extractall(folder)
        else:
            tarfile.open(path).extractall(downloads, filter="data")
            (downloads / path.name.removesuffix(".tar.gz")).rename(folder)
PROGRAM
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
    sources)
      unpack megatron megatron-core==0.19.2
      unpack torchtitan torchtitan==0.3.0
      unpack deepspeed deepspeed==0.19.8
      unpack accelerate accelerate==1.15.0
      ;;
    *)
      echo "no such target: ${target}" >&2
      exit 2
      ;;
  esac
done
