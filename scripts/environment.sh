# shellcheck shell=bash
# Sourced by scripts/quickstart and scripts/test: a virtual environment that is made once and kept current.

# The newest Python of 3.11 or later on this machine.
find_python() {
  local name
  for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  printf 'error: no Python 3.11 or newer found; install one and run this again\n' >&2
  return 1
}

# make_environment FOLDER EXTRA...: the project, editable, with these extras, in the versions that were last found to
# work together (scripts/constraints.txt); repeated only when one of these two files changed.
make_environment() {
  local folder=$1 extras
  shift
  extras=$(IFS=,; printf '%s' "$*")
  local stamp=$folder/.made-for want
  want="$extras $(cat pyproject.toml scripts/constraints.txt | cksum)"
  if [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    return
  fi
  printf 'making the environment in %s (about a minute, once) …\n' "$folder"
  [ -x "$folder/bin/python" ] || "$(find_python)" -m venv "$folder"
  # The pip of an older Python can search for hours where a newer one reports a conflict at once.
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$extras]" \
    --constraint scripts/constraints.txt
  printf '%s' "$want" >"$stamp"
}
