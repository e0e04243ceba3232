# Programs that pip does not install; to be sourced. apt installs missing ones if the script sets may_install=yes, or under
# CI=true. Otherwise the tests that need them are listed as left out, which fails a run under CI=true.

left_out=()
may_install=
[ "${CI:-}" != true ] || may_install=yes

# need PROGRAM PACKAGE WHAT FOR: whether PROGRAM can be used.
need() {
    command -v "$1" >/dev/null && return
    install_program "$1" "$2" && return
    left_out+=("$3 (needs $1: install the package $2)")
    return 1
}

# install_program PROGRAM PACKAGE: whether it exists afterwards.
install_program() {
    [ -n "$may_install" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null \
        && grep -qiE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release || return
    echo "Installing $2 ..."
    [ -n "${apt_lists:-}" ] || apt-get update -qq && apt_lists=fresh
    local output
    output=$(DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" 2>&1) || true
    command -v "$1" >/dev/null && return
    tail -3 <<<"$output"
    return 1
}

# has_browser: whether there is a Chromium, by one of the names that tests/support.py knows.
has_browser() {
    local name
    for name in chromium-headless-shell chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null && return
    done
    install_program chromium-headless-shell chromium-headless-shell
}

# need_postgres WHAT FOR: whether PostgreSQL's server programs can be used; Debian keeps them out of the path.
need_postgres() {
    local programs
    programs=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -1)
    PATH="$PATH${programs:+:$programs}" need initdb postgresql "$1" && return
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && unset 'left_out[-1]'
}

# The tests start hundreds of processes. Without compiled files each of them would compile what it imports.
unset PYTHONDONTWRITEBYTECODE

# Options of pytest: progress instead of dots (tests/progress.py), and the slowest tests. Side by side, there is one worker
# per core. The tests of a file stay together, and files keep their order (tests/conftest.py).
with_progress=(--progress --quiet --override-ini console_output_style=classic)
side_by_side=("${with_progress[@]}" --numprocesses "${WORKERS:-$(nproc)}" --dist loadfile --no-loadscope-reorder)

# Otherwise each worker, and each process that a test starts, would compile the same files at the same time.
compile_all() {
    .venv/bin/python -m compileall -q -j 0 config console governance turns webchat
}

# run TITLE COMMAND...: run it, record a failure, and continue.
failed=()
run() {
    echo "== $1"
    "${@:2}" || failed+=("$1")
}

# node_packages WHAT FOR: whether the packages of package.json are installed; done once for each state of the lock file.
node_packages() {
    need node nodejs "$1" && need npm npm "$1" || return
    cmp -s package-lock.json node_modules/.installed-lock.json && return
    run "npm ci" install_node_packages
}
install_node_packages() {
    npm ci --silent --ignore-scripts && cp package-lock.json node_modules/.installed-lock.json
}

# Ends the script: lists what was left out and what failed.
conclude() {
    local line
    for line in "${left_out[@]}"; do echo "Left out: $line"; done
    for line in "${failed[@]}"; do echo "Failed: $line"; done
    if [ "${CI:-}" = true ] && [ ${#left_out[@]} -gt 0 ]; then
        echo "Nothing may be left out here."
        exit 1
    fi
    [ ${#failed[@]} -eq 0 ] || exit 1
}
