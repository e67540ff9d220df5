#!/usr/bin/env bash
# Runs the tests of every module with the race detector, and reports the coverage of the packages written here.
# `unit` leaves out test/, which needs the control plane and the servers of `make build build-race control-plane-build`.
# Usage: hack/test.sh all|unit
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly scope="${1:?all or unit}"

# Under the race detector a seventh of the processor time goes to collecting small heaps again and again.
export GOGC="${GOGC:-400}"
work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT
mkdir "${work}/binary"

mapfile -t units < <(go list ./... | grep -v -e /pkg/generated/ -e '/test/')

# The server that the tests start is itself built with coverage counters, and writes them here when it ends.
export GOCOVERDIR="${work}/binary"
export METACONTROLLER_APISERVER="${root}/bin/race/metacontroller-apiserver"

# kept COMMAND...: runs the command, shows its output and keeps it for the end.
kept() {
    "$@" 2>&1 | tee -a "${work}/output"
}

echo "go test -race: the product's module, ${#units[@]} packages"
kept go test -race -timeout 30m -covermode=atomic -coverprofile="${work}/unit.out" "${units[@]}" ||
    complain "tests of the product's module failed"

if [[ "${scope}" == all ]]; then
    # What comes from hooks is fuzzed for a minute, from the corpus in testdata; `make fuzz` does it for longer.
    for target in FuzzDecodeResponse:./pkg/hook/wire FuzzMerge:./pkg/children/merge; do
        # go test succeeds when no target has that name.
        grep -q "^func ${target%%:*}(" "${target##*:}"/*_test.go || complain "there is no ${target}"
        kept go test -run '^$' -fuzz "^${target%%:*}\$" -fuzztime 30s "${target##*:}" || complain "${target} failed"
    done
    # Results are not cached: go test does not know that these depend on programs that it did not build.
    # They wait more than they compute: one more at a time than there are processors.
    control_plane=(go test -race -count=1 -skip '^TestHistories$' -p "$(($(nproc) + 1))" -timeout 30m)
    # The race detector is for the engine, and takes more processor time than the server itself. What asks for the API alone, or goes from
    # one end to the other, has the server as it is shipped.
    shipped=(-e '/test/e2e/' -e '/test/bench$' -e '/test/integration/apiserver$' -e '/test/integration/registration$')
    mapfile -t suites < <(go list ./test/... | grep -v "${shipped[@]}")
    mapfile -t shipped_suites < <(go list ./test/... | grep "${shipped[@]}")
    echo "go test -race: the server, with the race detector, on a real control plane"
    kept "${control_plane[@]}" -covermode=atomic -coverpkg='./pkg/...' -coverprofile="${work}/control-plane.out" "${suites[@]}" ||
        complain "tests under test/ failed"
    echo "go test -race: the server as it is shipped"
    METACONTROLLER_APISERVER="${root}/bin/metacontroller-apiserver" kept "${control_plane[@]}" "${shipped_suites[@]}" ||
        complain "tests of the server as it is shipped failed"
    echo "go test: 90 seconds of histories of the simulated cluster"
    kept hack/simulate.sh -simulation.budget 90s || complain "the simulation found something"
    while IFS= read -r module; do
        case "${module}" in . | hack/tools) continue ;; esac
        echo "go test -race: ${module}"
        (cd "${module}" && kept go test -race -count=1 -timeout 30m ./...) || complain "tests of ${module} failed"
    done < <(modules)
fi

if compgen -G "${work}/binary/covcounters.*" >/dev/null; then
    go tool covdata textfmt -i="${work}/binary" -o="${work}/binary.out"
fi
echo
echo "Coverage of the packages written here, generated code left out:"
hack/coverage.sh "${work}"/*.out

echo
echo "The packages whose tests took longest, in seconds:"
awk '$1 == "ok" && $3 ~ /^[0-9.]+s$/ {printf "%8.1f  %s\n", $3, $2}' "${work}/output" | sort -rn | head -15

# A test that fails logs all that its server logged, so that what it complains of is far above.
if ((complaints > 0)); then
    echo
    echo "What failed:"
    grep -E '^ *--- FAIL: |^ +[a-z_]+_test\.go:[0-9]+: |^FAIL|^panic: |DATA RACE' "${work}/output" | cut -c -500 || true
fi
finish "test ${scope}"
