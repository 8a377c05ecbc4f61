#!/bin/bash
# Real vLLM engines on loopback, each with a name of its own.
#   engine.sh start NAME ROLE PORT [arguments of vllm serve]   ROLE is plain, prefill or decode, or store: LMCache's cache
#                                    server, with its pages on PORT and its cache 1000 above
#   engine.sh stop NAME [SIGNAL]     ends it (TERM, and KILL after 20 s) and waits until nothing is left
#   engine.sh signal NAME SIGNAL     one signal to all of its processes
#   engine.sh stop-all
#   engine.sh status                 name, role, port, pid, state (starting, up, dead) and log of each
#   engine.sh show ROLE PORT [arguments]   the command that start runs
# KV_POLICY=fail|recompute: what a decode engine does when blocks cannot be loaded
# KV_LEASE=SECONDS: how long a prefill engine holds blocks for a decode engine that does not come
# KV_CONNECTOR=CLASS: vLLM's connector, NixlConnector unless set
# KV_ROLE=ROLE: kv_role of both kinds of engines, kv_producer and kv_consumer unless set
# KV_MODULE=MODULE: Python module that has the class; those of the folder python beside this file are found
# KV_PACKAGE=NAME: the connector's own package, which extra.sh NAME has put into the cache
# KV_EXTRA=MEMBERS: more of kv_connector_extra_config, such as '"shared_storage_path":"/tmp/kv"'
# GPUS=NUMBER: the engines run on the GPUs of this machine, by their ports in turn (scripts/gpu/e2e.sh)
# IMAGES=1: the engine has the model that reads images
# CACHE_LIST=FILE: the engine publishes its KV events, and writes into FILE how many blocks its prefix cache has
# START_TIMEOUT=SECONDS: 240
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/env.sh"
[ -z "${IMAGES:-}" ] || MODEL=$VISION/model

# engine_command sets what starts an engine: ENV and COMMAND. On your own nodes, use your model in
# place of $MODEL and the node's address in place of 127.0.0.1. Leave out everything in small, which
# is for a small model on a CPU. engine.sh show prints the result.
engine_command() { # ROLE PORT [arguments]
  local role=$1 port=$2 connector=()
  shift 2
  if [ "$role" = store ]; then
    ENV=("PYTHONPATH=$CACHE/$KV_PACKAGE" LMCACHE_TRACK_USAGE=false)
    COMMAND=("$VENV/bin/python" -m lmcache.v1.multiprocess.http_server --http-port "$port" --host 127.0.0.1
      --port $((port + 1000)) --chunk-size 32 --l1-size-gb 1 --eviction-policy LRU --supported-transfer-mode auto --disable-metrics "$@")
    return
  fi
  # Decode engines ask here for the prefill engine's KV blocks, so they must be able to reach this
  # address.
  ENV=(VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=$((port + 1000)))
  case $role in
    prefill) connector=(--kv-transfer-config "$(connector_config kv_producer)") ;;
    decode) connector=(--kv-transfer-config "$(connector_config kv_consumer)") ;;
  esac

  # NIXL moves blocks with UCX, here over TCP on loopback. Nothing may be looked up on other
  # machines.
  ENV+=(VLLM_HOST_IP=127.0.0.1 UCX_NET_DEVICES=lo OMP_NUM_THREADS=1
    HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 "XDG_CACHE_HOME=$CACHE/engines")
  local device=()
  if [ -n "${GPUS:-}" ]; then
    # FlashAttention takes no float32. Triton would round its factors to 10 bits, and answers that are compared would
    # depend on what else is computed. With a fixed size of the cache, engines of one GPU may start together.
    ENV+=("CUDA_VISIBLE_DEVICES=$((port % GPUS))" TRITON_F32_DEFAULT=ieee UCX_TLS=cuda_ipc,cuda_copy,sm,tcp,self)
    device=(--attention-backend TRITON_ATTN --kv-cache-memory-bytes 64M --gpu-memory-utilization 0.02)
  else
    ENV+=(UCX_TLS=tcp,self VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind)
  fi
  [ -z "${IMAGES:-}" ] || ENV+=("PYTHONPATH=$VISION/lib")
  [ -z "${KV_PACKAGE:-}" ] || ENV+=("PYTHONPATH=$CACHE/$KV_PACKAGE:$HERE/python" VLLM_MOONCAKE_BOOTSTRAP_PORT=$((port + 1000))
    "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT=${KV_LEASE:-30}")
  local small=(--served-model-name tiny --host 127.0.0.1 --dtype float32 --max-model-len 2048
    --block-size 32 --num-gpu-blocks-override 256 --enforce-eager --seed 0)

  if [ -n "${CACHE_LIST:-}" ]; then
    ENV+=("PYTHONPATH=$HERE/python" "CACHE_LIST=$CACHE_LIST")
    device+=(--scheduler-cls cachelist.Scheduler --kv-events-config
      '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:0","replay_endpoint":"tcp://*:0"}')
  fi

  COMMAND=("$VENV/bin/vllm" serve "$MODEL" --port "$port" --enable-prompt-tokens-details
    "${connector[@]}" "${small[@]}" "${device[@]}" "$@")
}

connector_config() {
  local more='' extra=${KV_EXTRA:-}
  [ -z "${KV_POLICY:-}" ] || more+=",\"kv_load_failure_policy\":\"$KV_POLICY\""
  [ -z "${KV_LEASE:-}" ] || extra+="${extra:+,}\"kv_lease_duration\":$KV_LEASE"
  [ -z "$extra" ] || more+=",\"kv_connector_extra_config\":{$extra}"
  [ -z "${KV_MODULE:-}" ] || more+=",\"kv_connector_module_path\":\"$KV_MODULE\""
  echo "{\"kv_connector\":\"${KV_CONNECTOR:-NixlConnector}\",\"kv_role\":\"${KV_ROLE:-$1}\"$more}"
}

# An engine's processes are those whose working directory is its own. So no process number that the
# system may have given to another program meanwhile decides what is ended.
# The pid file holds: pid, its start time, the directory, role, port.
members() {
  local dir c
  dir=$(field "$1" 3)
  [ -d "$dir" ] || return 0
  for c in /proc/[0-9]*/cwd; do
    if [ "$c" -ef "$dir" ]; then c=${c#/proc/}; echo "${c%/cwd}"; fi
  done
}

# alive succeeds if the first process runs, and its number has not been given to another process.
alive() { # NAME
  local pid
  pid=$(field "$1" 1)
  [ -n "$pid" ] && [ "/proc/$pid/cwd" -ef "$(field "$1" 3)" ]
}

field() { cut -d' ' -f"$2" "$RUN/$1.pid" 2>/dev/null || true; }

to_all() { # NAME SIGNAL
  local pids
  pids=$(members "$1")
  [ -z "$pids" ] || kill -"$2" $pids 2>/dev/null || true
}

# note_shm remembers the shared memory that an engine maps, because an engine that is killed does
# not remove it.
note_shm() {
  local dir p
  dir=$(field "$1" 3)
  [ -d "$dir" ] || return 0
  for p in $(members "$1"); do
    grep -ho '/dev/shm/\(psm_\|sem\.mp-\|vllm\)[^ ]*' "/proc/$p/maps" 2>/dev/null || true
  done | sort -u - "$dir/shm" -o "$dir/shm"
}

gone_within() { # NAME SECONDS
  local until=$((SECONDS + $2))
  while [ -n "$(members "$1")" ]; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.1
  done
}

bring_down() { # NAME SIGNAL
  local name=$1 signal=$2 dir
  dir=$(field "$name" 3)
  if [ -n "$(members "$name")" ]; then
    note_shm "$name"
    to_all "$name" "$signal"
    to_all "$name" CONT # one that was stopped must run to end
    gone_within "$name" 20 || { to_all "$name" KILL; gone_within "$name" 10; } ||
      fail "$name does not end: pids $(members "$name" | xargs) (log: $RUN/$name.log)"
  fi
  # Another stop of the same engine may be taking the folder away just now.
  { xargs -r rm -f <"$dir/shm"; } 2>/dev/null || true
  case $dir in /tmp/xpyd-engine.*) rm -rf "$dir" ;; esac
  rm -f "$RUN/$name.pid"
}

# unpin undoes a binding. On a CPU NixlConnector binds each worker to the last core, for which the
# engines of one machine would compete.
unpin() {
  local p
  for p in $(members "$1"); do
    taskset -a -p "$(taskset -p $$ | sed 's/.*: //')" "$p" >/dev/null 2>&1 || true
  done
}

# bindable says which port is taken. vLLM itself would share a port with another vLLM.
bindable() { # PORT…
  "$VENV/bin/python" - "$@" <<'P'
import socket, sys
for port in map(int, sys.argv[1:]):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError as e:
            sys.exit(f"port {port} of 127.0.0.1: {e.strerror}")
P
}

check_start() { # NAME ROLE PORT
  local name=$1 role=$2 port=$3 why
  case $role in plain | prefill | decode | store) ;; *) fail "role $role: plain, prefill, decode or store" ;; esac
  [[ $name =~ ^[A-Za-z0-9_-]+$ ]] || fail "name $name: letters, digits, - and _"
  [[ $port =~ ^[0-9]+$ ]] && [ "$port" -ge 1024 ] && [ "$port" -le 64535 ] || fail "port $port: 1024 to 64535 (the side channel is 1000 above)"
  [ -f "$VENV.stamp" ] && [ -f "$MODEL.stamp" ] || fail "vLLM $VERSION is not in $CACHE: run scripts/real-vllm/setup.sh $VERSION"
  ! alive "$name" || fail "$name runs already on port $(field "$name" 5): scripts/real-vllm/engine.sh stop $name"
  bring_down "$name" KILL # what a dead one has left
  local ports=("$port")
  [ "$role" = plain ] || ports+=($((port + 1000)))
  why=$(bindable "${ports[@]}" 2>&1) || fail "$name: $why; take another port, or end what holds it"
}

started_at() { sed 's/.*) //' "/proc/$1/stat" | cut -d' ' -f20; }

launch() { # NAME ROLE PORT [arguments]
  local name=$1 dir pid
  dir=$(mktemp -d /tmp/xpyd-engine.XXXXXX)
  [ ! -f "$RUN/$name.log" ] || mv "$RUN/$name.log" "$RUN/$name.log.1"
  : >"$dir/shm"
  engine_command "${@:2}"
  (cd "$dir" && exec env TMPDIR="$dir" "${ENV[@]}" setsid nice -n 19 "${COMMAND[@]}") >"$RUN/$name.log" 2>&1 </dev/null &
  pid=$!
  disown "$pid" # the shell prints no message when it is killed
  echo "$pid $(started_at $pid) $dir $2 $3" >"$RUN/$name.pid"
}

healthy() { # NAME
  local page=health
  [ "$(field "$1" 4)" != store ] || page=healthcheck
  curl -fs -m 2 -o /dev/null "http://127.0.0.1:$(field "$1" 5)/$page"
}

start() { # NAME ROLE PORT [arguments]
  local name=$1 port=$3 begun=$SECONDS limit=${START_TIMEOUT:-240} dir
  check_start "$1" "$2" "$3"
  # Until the engine is up, anything that ends this script ends the engine too.
  trap "bring_down '$name' KILL" EXIT
  trap 'exit 130' INT TERM HUP
  launch "$@"
  dir=$(field "$name" 3)
  while ! healthy "$name"; do
    if [ "$(field "$name" 3)" != "$dir" ]; then
      trap - EXIT # the engine that has this name now was not started here
      fail "$name was stopped while it started (log: $RUN/$name.log)"
    fi
    alive "$name" || fail "$name died while it started: $(last_error "$name") (log: $RUN/$name.log)"
    [ $((SECONDS - begun)) -lt "$limit" ] || fail "$name is not up after $limit s and was ended: $(last_error "$name") (log: $RUN/$name.log)"
    note_shm "$name"
    sleep 0.5
  done
  note_shm "$name"
  unpin "$name"
  trap - EXIT INT TERM HUP
  echo "engine: $name ($2) is up on http://127.0.0.1:$port after $((SECONDS - begun)) s, pid $(field "$name" 1), log $RUN/$name.log"
}

# last_error prints the last error in the log that is a cause, or else the last line.
last_error() {
  { grep -E '\b([A-Za-z_]+(Error|Exception)|error): ' "$RUN/$1.log" | grep -v 'initialization failed' || tail -n 1 "$RUN/$1.log"; } |
    tail -n 1 | grep . | cut -c1-300 || echo "it wrote nothing"
}

stop() { # NAME [SIGNAL]
  local name=$1 signal=${2:-TERM}
  [ -f "$RUN/$name.pid" ] || fail "there is no engine $name (see engine.sh status)"
  kill -l "${signal#SIG}" >/dev/null 2>&1 || fail "signal $signal: a name such as TERM or KILL"
  bring_down "$name" "${signal#SIG}"
  echo "engine: $name is down"
}

names() {
  local f
  for f in "$RUN"/*.pid; do
    if [ -f "$f" ]; then basename "$f" .pid; fi
  done
}

status() {
  local name state
  for name in $(names); do
    state=dead
    if alive "$name"; then
      state=starting
      if healthy "$name"; then state=up; fi
    fi
    echo "$name $(field "$name" 4) $(field "$name" 5) $(field "$name" 1) $state $RUN/$name.log"
  done
}

stop_all() {
  local name
  for name in $(names); do stop "$name"; done
}

main() {
  local command=${1:-}
  case $command:$# in
    start:[4-9] | start:[1-9][0-9]) start "${@:2}" ;;
    stop:[23]) stop "${@:2}" ;;
    signal:3) to_all "$2" "$3" ;;
    stop-all:1) stop_all ;;
    status:1) status ;;
    show:[3-9] | show:[1-9][0-9]) engine_command "${@:2}" && printf '%q ' "${ENV[@]}" "${COMMAND[@]}" && echo ;;
    *) fail "start NAME ROLE PORT [arguments], stop NAME [SIGNAL], signal NAME SIGNAL, stop-all, status or show ROLE PORT" ;;
  esac
}

main "$@"
