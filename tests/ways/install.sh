#!/usr/bin/env bash
# Other people's clients, each in an environment of its own under .ways, for `pytest -m sdk`. What is there
# already, in the same versions, stays. Names of environments as arguments: only those. WAYS_NEWEST=1 takes the
# newest versions there are, in place of those that are known to work: whether we keep up (`pytest -m sdk`).
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

# name: packages. `node-...` come from npm.
environments() {
  cat <<'LIST'
deepgram7: deepgram-sdk==7.17.0
deepgram4: deepgram-sdk==4.3.0
livekit: livekit-agents==1.8.9 livekit-plugins-deepgram==1.8.9 livekit-plugins-openai==1.8.9
pipecat: pipecat-ai[deepgram,openai]==1.14.0
node-deepgram: @deepgram/sdk@5.13.0
openai: openai[realtime]==3.57.0
node-openai: openai@6.49.0 ws@8.18.0
LIST
}

install() {
  local name=$1 packages=$2 place=.ways/$1
  if [ -n "${WAYS_NEWEST:-}" ]; then
    # shellcheck disable=SC2001 # several in one line
    packages=$(sed -E 's/(==|([a-z])@)[0-9.]+/\2/g' <<<"$packages")
  fi
  if [ -z "${WAYS_NEWEST:-}" ] && [ "$(cat "$place/packages" 2>/dev/null)" = "$packages" ]; then
    return
  fi
  rm -rf "$place"
  mkdir -p "$place"
  # shellcheck disable=SC2086 # several packages
  case $name in
    node-*)
      if ! command -v npm >/dev/null; then
        echo "$name is left out: it needs npm" >&2
        return
      fi
      npm install --silent --no-audit --no-fund --prefix "$place" $packages
      ;;
    *)
      "$python" -m venv "$place"
      "$place/bin/python" -m pip install --quiet --disable-pip-version-check $packages
      ;;
  esac
  echo "$packages" >"$place/packages"
}

while IFS=: read -r name packages; do
  if [ $# = 0 ] || [[ " $* " == *" $name "* ]]; then
    install "$name" "${packages# }"
  fi
done < <(environments)
