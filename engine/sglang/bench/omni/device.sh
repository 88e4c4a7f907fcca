#!/usr/bin/env bash
# Measures on an offline machine with one GPU: the bundle lies unpacked in S, packed speech in A.
#
#   engine/sglang/bench/omni/device.sh S A OUT SECONDS CASE... [options of live.py]
#
# Results, logs and the compiled kernels come back in OUT; a second run takes another folder of S for its logs (LOGS).
set -u
logs=${LOGS:-logs}
s=$1 a=$2 out=$3 seconds=$4; shift 4
began=$SECONDS
if [ ! -f "$s/env.sh" ]; then
  bash "$s/install.sh" "$s"
  # Kernels that were compiled on another machine are compiled again where a header is younger than they are.
  find "$s/site" -exec touch -h -d 2026-01-01 {} +
  # Every engine starts several processes, and each would compile these by itself.
  python3 -m compileall -q -j 0 "$s/site" engine streaming clients > /dev/null 2>&1
fi
. "$s/env.sh"
export PATH="$s/site/bin:$PATH" PYTHONPATH="$PWD:$PYTHONPATH" PYTHONUNBUFFERED=1
echo "installed after $((SECONDS - began)) s"
if [ ! -f "$s/random/config.json" ]; then
  python3 -m engine.sglang.bench.omni.checkpoint "$s/random" || exit 1
  echo "weights after $((SECONDS - began)) s"
fi
python3 -m engine.sglang.bench.omni.live "$@" --model "$s/random" --audio "$a" --out "$out/rows.jsonl" \
  --logs "$s/$logs" --budget $((seconds - (SECONDS - began)))
tar cJf "$out/flashinfer-cache.txz" -C ~ .cache/flashinfer 2> /dev/null
tar cJf "$out/logs.txz" -C "$s" "$logs"
