# Sourced by the other scripts: `use_venv EXTRAS` makes or reuses .venv with .[EXTRAS] installed.
# A stamp of what setup.cfg asks for, and of what is compiled, avoids installing again.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# Compiled once, inside .venv: else each of the hundreds of processes of a test run compiles again,
# where the environment says that nothing is to be written.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$PWD/.venv/pycache

find_python() {
  local name
  for name in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    if [ -n "$name" ] && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "Python 3.11 or later is needed, on the PATH or named by PYTHON=..." >&2
  return 1
}

use_venv() {
  local extras=$1 python stamp have had each missing=
  if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python) || exit 1
    echo "making .venv with $python" >&2
    "$python" -m venv --clear .venv || exit 1
  fi
  stamp="$(cat setup.cfg pyproject.toml setup.py zbroker/client/publisher/*.pyx | cksum) $PWD"
  have=$(cat .venv/zbroker-stamp 2>/dev/null || true)
  had=${have#"$stamp "}
  [ "$had" = "$have" ] && had= # of other files, or none
  for each in ${extras//,/ }; do
    [[ ",$had," == *",$each,"* ]] || missing=${missing:+$missing,}$each
  done
  if [ "$missing" ]; then
    extras=${had:+$had,}$missing # what other scripts asked for stays
    echo "installing .[$extras] into .venv" >&2
    .venv/bin/python -m pip install --quiet --no-compile --editable ".[$extras]" >&2 || exit 1
    echo "$stamp $extras" > .venv/zbroker-stamp
  fi
}

ALL_EXTRAS=spark,demo,bson,protobuf,transaction,test,dev
