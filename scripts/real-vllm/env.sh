# The scripts of this folder source this file. It says which vLLM they use, where it is and how a
# script ends. E2E_CACHE moves the cache (about 7 GB), VERSION picks one of the requirements-*.txt.
VERSION=${VERSION:-0.32.0}
CACHE=${E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/xpyd-e2e}
case $CACHE in /*) ;; *) CACHE=$PWD/$CACHE ;; esac
VENV=$CACHE/venv-$VERSION
MODEL=$CACHE/model
VISION=$CACHE/vision-$VERSION # a model that reads images, and what it needs besides
RUN=$CACHE/run # logs and pid files
unset PYTHONDONTWRITEBYTECODE # importing vLLM costs half the CPU if it has been compiled

fail() { # something broke
  echo "$(basename "$0" .sh): $*" >&2
  exit 1
}

cannot() { # nothing broke, but this machine lacks something
  echo "$(basename "$0" .sh): cannot run here: $*" >&2
  exit 3
}
