# Programs that pip does not install; to be sourced. Where that is possible, apt installs what is missing. Else it is
# noted, and fails the run where nothing may be left out (CI=true).

left_out=()

# need PROGRAM PACKAGE WHAT FOR: whether PROGRAM can be used.
need() {
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && grep -qiE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release; then
        echo "Installing $2 ..."
        [ -n "${apt_lists:-}" ] || apt-get update -qq && apt_lists=fresh
        local said
        said=$(DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" 2>&1) || true
        command -v "$1" >/dev/null && return
        tail -3 <<<"$said"
    fi
    left_out+=("$3 (needs $1: install the package $2)")
    return 1
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

# Options of pytest. Two processes for each core: they often wait for a server, a browser or a deadline. The tests of a
# file stay together, and files keep their order (tests/conftest.py). Sorted by their number of tests, those that start
# servers would come last. There would be nothing to do beside them.
side_by_side=(--numprocesses "${WORKERS:-$(($(nproc) * 2))}" --dist loadfile --no-loadscope-reorder)

# run TITLE COMMAND...: run it, remember whether it failed, go on.
failed=()
run() {
    echo "== $1"
    "${@:2}" || failed+=("$1")
}

# node_packages WHAT FOR: whether what package.json names is installed; done once for each state of the lock file.
node_packages() {
    need node nodejs "$1" && need npm npm "$1" || return
    cmp -s package-lock.json node_modules/.installed-lock.json && return
    run "npm ci" install_node_packages
}
install_node_packages() {
    npm ci --silent --ignore-scripts && cp package-lock.json node_modules/.installed-lock.json
}

# Ends the script: what was left out, what failed.
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
