#!/usr/bin/env bash
# Makes an environment that runs SGLang on a CPU: slow, but the real engine with real weights, for tests.
#
#   engine/sglang/install_cpu.sh DIR [EXTRAS]
#
# DIR becomes a virtual environment (about 6 GB, two minutes); EXTRAS of this project (default "dev") are
# installed into it too, so that tests can compare the engines. Python 3.11 or 3.12.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:?DIR}
extras=${2:-dev}
python=${PYTHON:-}
for name in python3.12 python3.11; do
  if [ -z "$python" ] && command -v "$name" >/dev/null && "$name" -c 'import ensurepip' 2>/dev/null; then
    python=$name
  fi
done
"${python:?needs Python 3.11 or 3.12}" -m venv --clear "$target"
pip() { "$target/bin/python" -m pip --disable-pip-version-check "$@"; }
pip install --quiet --upgrade pip
pip install --quiet -r engine/sglang/requirements-cpu.txt
pip install --quiet --no-deps sglang==0.5.23 apache-tvm-ffi==0.1.11 compressed-tensors==0.18.0 gguf==0.19.0 \
  xgrammar==0.2.7
pip install --quiet -c engine/sglang/requirements-cpu.txt -e ".[$extras]"
# The audio model of one policy imports a name from vLLM that it never calls on a CPU.
site=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
if ! "$target/bin/python" -c 'import vllm' 2>/dev/null; then
  mkdir -p "$site/vllm"
  : >"$site/vllm/__init__.py"
  printf 'def rotary_embedding(*_args: object) -> None:\n    raise NotImplementedError\n' >"$site/vllm/_custom_ops.py"
fi
"$target/bin/python" -c 'import sglang, engine.sglang.client; print("sglang", sglang.__version__)'
