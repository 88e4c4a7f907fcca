#!/usr/bin/env bash
# Measures on an offline machine with one GPU: the bundle lies unpacked in S, packed speech in A (clips.py).
#
#   engine/sglang/bench/device.sh S A OUT SECONDS SET... [--together N]
#
# Results, the engines' logs, stack samples and the compiled kernels come back in OUT.
set -u
s=$1 a=$2 out=$3 seconds=$4; shift 4
began=$SECONDS
if [ ! -f "$s/env.sh" ]; then
  bash "$s/install.sh" "$s"
  # Every engine starts several processes, and each would compile these by itself.
  python3 -m compileall -q -j 0 "$s/site" engine > /dev/null 2>&1
fi
. "$s/env.sh"
export PATH="$s/site/bin:$PATH" PYTHONUNBUFFERED=1 SEAMSCRIBE_STACKS="$s/stacks"
echo "installed after $((SECONDS - began)) s; py-spy: $(command -v py-spy)"
python3 -m engine.sglang.bench "$@" --model "$s/model" --audio "$a" --out "$out/rows.jsonl" \
  --logs "$s/logs" --budget $((seconds - (SECONDS - began)))
tar cJf "$out/flashinfer-cache.txz" -C ~ .cache/flashinfer .triton 2> /dev/null
tar cJf "$out/logs.txz" -C "$s" logs $([ -d "$s/stacks" ] && echo stacks)
