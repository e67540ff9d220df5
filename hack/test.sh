#!/usr/bin/env bash
# Runs the tests of every module. `unit` leaves out what needs the control plane and the servers of
# `make build build-race demo-build control-plane-build`. `coverage` runs those of the product's module without the race detector, which makes
# counters twice as expensive as all the rest, and reports the coverage of the packages written here.
# Usage: hack/test.sh all|unit|coverage
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly scope="${1:?all, unit or coverage}"

# Under the race detector a seventh of the processor time goes to collecting small heaps again and again.
export GOGC="${GOGC:-400}"
# The programs of the control plane, of the plugin and of `make run` are here, which each package would link again.
export METACONTROLLER_PROGRAMS="${root}/bin"
work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT
mkdir "${work}/binary"
# Hooks are started again and again, and python3 may be a script that looks for the program first. The folder is always the same one:
# results are kept only as long as PATH stays.
python="$(python3 -c 'import sys; print(sys.executable)')"
mkdir -p bin/path
ln -sf "${python}" bin/path/python3
export PATH="${root}/bin/path:${PATH}"

# Servers wait for the disk at each write, and a disk to which programs are linked takes a second and more, at times over ten. Where there is
# memory for it, the folders of tests are there. It is always the same one: results are kept only as long as TMPDIR stays. What killed tests left goes.
if [[ "$(stat -f -c %T /dev/shm 2>/dev/null)" == tmpfs ]] && (($(df -k --output=avail /dev/shm | tail -n 1) > 4 << 20)); then
    export GOTMPDIR="${GOTMPDIR:-${TMPDIR:-/tmp}}" TMPDIR="/dev/shm/metacontroller-apiserver-${UID}"
    mkdir -p -m 700 "${TMPDIR}"
    find "${TMPDIR}" -mindepth 1 -maxdepth 1 -mmin +120 -exec rm -rf {} +
fi

mapfile -t unit_packages < <(go list ./... | grep -v -e /pkg/generated/ -e '/test/')
# Packages under test/ that start no program but their own: go test knows all that their results depend on.
alone=(./test/{bench/report,process,server})
# The engine in a simulated cluster, where one goroutine runs at a time.
simulated=(./test/simulation ./test/simulation/{history,mutants,world})
mapfile -t control_plane_packages < <(
    go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./test/... |
        grep -vxF -f <(go list "${alone[@]}" "${simulated[@]}")
)
# Nobody debugs these programs: without debug information and symbols they are linked in half of the time.
plain=('-ldflags=-s -w')
race=(-race "${plain[@]}")
# Results of tests with programs that go test did not build, which it does not know of, are not kept. The tests' own programs are: go test
# links those again of which something has changed.
export PROCESSOR_TIMES="${work}/processor-times"
# go test splits what it executes at spaces, unless it is in quotes.
control_plane=(-count=1 -timeout 30m -o bin/tests/ -exec "'${root}/hack/lib/timed.sh'")
# Suites of more than a minute, the longest first: one that is alone at the end has a processor to itself and leaves the other one idle.
readonly long=(
    faults/storage integration/{replicas,registration,apiserver} conformance/apply faults/engine e2e/rescue bench
    conformance/{inspection,status,accounts} e2e/{helloworld,firsthour,availability}
)

# kept COMMAND...: runs the command, shows its output and keeps it for the end.
kept() {
    "$@" 2>&1 | tee -a "${work}/output"
}

units() {
    echo "go test ${*}: the product's module, ${#unit_packages[@]} packages"
    kept go test "$@" -timeout 30m "${unit_packages[@]}" || complain "tests of the product's module failed"
}

# What tests are made of, and the histories that are kept. The race detector finds nothing where one goroutine runs at a time. Random histories
# are for others.
parts() {
    echo "go test ${*}: what tests are made of, ${#alone[@]} packages, and ${#simulated[@]} of the simulation without -race"
    kept go test "$@" -timeout 30m "${alone[@]}" || complain "tests of what tests are made of failed"
    kept go test "${plain[@]}" -skip '^Test(Histories|RunsRepeat)$' -timeout 30m "${simulated[@]}" || complain "tests of the simulation failed"
}

# What comes from hooks is fuzzed from the corpus in testdata, so often that it takes some seconds on an idle machine: beside other work a
# time would be over before much was tried. `make fuzz` does it for longer.
fuzz() {
    local function folder count
    while read -r function folder count; do
        # go test succeeds when no target has that name.
        grep -q "^func ${function}(" "${folder}"/*_test.go || complain "there is no ${function}"
        kept go test -o bin/tests/fuzz/ -run '^$' -fuzz "^${function}\$" -fuzztime "${count}x" "${folder}" || complain "${function} failed"
    done <<END
FuzzDecodeResponse ./pkg/hook/wire 20000
FuzzMerge ./pkg/children/merge 80000
END
}

# The race detector is for the engine, and takes more processor time than the server itself. The suites in which much happens at the
# same moment have it in the server; the others have the server as it is shipped. The tests' own programs, whose parts are tested with
# it above, do without. With RACE=programs, as in continuous integration, these have it too, and with RACE=all all servers. Suites wait more than
# they compute: as many of them run at a time as there are processors, and the other modules beside them. With two more, creations took over 34 s on
# a slow machine. One go test runs all of them: with two, processors are idle at the end of the first one. They use the same few control planes one
# after the other (test/cluster), which end when nobody holds the pipe any more.
suites() {
    local raced=(churn conformance/{brakes,deferred,finalizers,pairs,rollout}) all programs=("${plain[@]}") planes="${work}/planes" held
    mapfile -t all < <(
        printf './test/%s\n' "${raced[@]}" "${long[@]}" # conformance/brakes is the longest.
        printf '%s\n' "${control_plane_packages[@]}" | grep -vE "/test/($(IFS='|' && echo "${raced[*]}|${long[*]}"))\$"
    )
    case "${RACE:-}" in
    programs) programs=("${race[@]}") ;;
    all) raced=("${all[@]##*/test/}") programs=("${race[@]}") ;;
    esac
    echo "go test: the suites on a real control plane; the server has the race detector in ${raced[*]}"
    mkdir "${planes}"
    mkfifo "${planes}/held"
    exec {held}<>"${planes}/held"
    RACED_SUITES="${raced[*]}" METACONTROLLER_CONTROL_PLANES="${planes}" kept go test "${programs[@]}" "${control_plane[@]}" -p "$(nproc)" "${all[@]}" \
        {held}>&- || complain "tests under test/ failed"
    exec {held}>&-
}

histories() {
    # Always the same ones, so that a commit that was green is green; `make simulate` goes further.
    echo "go test: ${HISTORIES:=400} histories of the simulated cluster"
    kept hack/simulate.sh -simulation.seeds "${HISTORIES}" || complain "the simulation found something"
}

# What the simulation checks is checked by faults in the engine, which it has to find; `make simulate-mutants` has all of them.
mutants() {
    echo "go run: quick mutants of the engine; the first history is a large one"
    GOGC=800 go run ./test/simulation/mutants -quick -first 2 -histories 100 || complain "the simulation does not find a fault"
}

# They compute and wait for nobody, so that they take what others leave, and go on when all else is done.
fuzz_and_histories() {
    fuzz
    histories
    mutants
}

# The engines of Argo CD and Flux want a newer Go, which not every machine can get. `make gitops` runs all of them.
gitops() {
    local toolchain
    toolchain="$(awk '$1 == "toolchain" {print $2}' test/gitops/go.mod)"
    if ! GOTOOLCHAIN="${toolchain}" timeout 300 go version >/dev/null 2>&1; then
        echo "test/gitops is left out, since go cannot get ${toolchain}: 'GOTOOLCHAIN=${toolchain} go version' says why; with it, run make gitops"
        return
    fi
    echo "go test -short: test/gitops"
    METACONTROLLER_APISERVER="${root}/bin/metacontroller-apiserver" kept hack/gitops.sh -short || complain "tests of test/gitops failed"
}

# Each waits for servers of its own, as the suites do, so that one runs at a time.
other_modules() {
    gitops
    while IFS= read -r module; do
        case "${module}" in . | hack/tools | test/gitops) continue ;; esac
        if [[ "${module}" == test/browser && -z "$(command -v chromium chromium-browser google-chrome)" ]]; then
            echo "test/browser is left out, since there is no Chromium: 'apt-get install chromium' gets one"
            continue
        fi
        echo "go test: ${module}"
        (cd "${module}" && kept go test "${plain[@]}" -short -count=1 -timeout 30m -o "${root}/bin/tests/${module}/" ./...) || complain "tests of ${module} failed"
    done < <(modules)
}

# The processes that run beside the suites, by the name of what they run.
declare -A beside=()

# aside NICENESS FUNCTION: runs it beside what follows; awaited waits for those named, or for all, and shows what they printed. What has servers
# needs niceness 0: with 10 it had a tenth of what the suites have, in which Argo CD's clients gave up and Leases were lost.
aside() {
    (
        renice -n "$1" -p "${BASHPID}" >/dev/null 2>&1 || true # It only says who goes first.
        work="${work}/$2" complaints=0
        mkdir "${work}"
        "$2"
        exit "${complaints}"
    ) >"${work}/$2.log" 2>&1 &
    beside["$2"]=$!
}

awaited() {
    local name names=("$@")
    ((${#names[@]} > 0)) || names=("${!beside[@]}")
    for name in "${names[@]}"; do
        wait "${beside[${name}]}" || complain "${name//_/ }, run beside the tests, failed"
        unset "beside[${name}]"
        cat "${work}/${name}.log"
        if [[ -e "${work}/${name}/output" ]]; then
            cat "${work}/${name}/output" >>"${work}/output"
        fi
    done
}

# Some suites run the server from its image, which takes one processor to compress.
image() {
    make --no-print-directory image-local || complain "the image could not be made"
}

# The server that the tests start has counters too, and writes them into a folder when it ends.
covered() {
    export GOCOVERDIR="${work}/binary" METACONTROLLER_APISERVER="${root}/bin/coverage/metacontroller-apiserver"
    units -coverprofile="${work}/unit.out"
    echo "go test: the server, with counters, on a real control plane"
    kept go test -count=1 -skip '^TestHistories$' -timeout 30m -p "$(($(nproc) + 1))" -coverpkg='./pkg/...' -coverprofile="${work}/control-plane.out" ./test/... ||
        complain "tests under test/ failed"
    go tool covdata textfmt -i="${work}/binary" -o="${work}/binary.out"
    echo
    echo "Coverage of the packages written here, generated code left out:"
    hack/coverage.sh "${work}"/*.out
}

case "${scope}" in
unit)
    units "${race[@]}"
    parts "${race[@]}"
    ;;
coverage) covered ;;
all)
    aside 10 fuzz_and_histories
    aside 0 image
    units "${race[@]}"
    parts "${race[@]}"
    awaited image
    aside 0 other_modules
    suites
    awaited
    ;;
*)
    complain "all, unit or coverage, not ${scope}"
    ;;
esac

echo
echo "The packages whose tests took longest, in seconds:"
awk '$1 == "ok" && $3 ~ /^[0-9.]+s$/ {printf "%8.1f  %s\n", $3, $2}' "${work}/output" | sort -rn | awk 'NR <= 15'

if [[ -e "${PROCESSOR_TIMES}" ]]; then
    echo
    echo "The processor time of the suites on a control plane, in seconds, with all the programs that they start but the control plane:"
    awk -F '\t' -v root="${root}/" 'index($1, root) == 1 {$1 = substr($1, length(root) + 1)} {printf "%8.1f  %s\n", $2, $1; all += $2} END {printf "%8.1f  all\n", all}' "${PROCESSOR_TIMES}" | sort -rn | awk 'NR <= 20'
fi

# A test that fails logs all that its server logged, so that what it complains of is far above.
if ((complaints > 0)); then
    echo
    echo "What failed:"
    grep -E '^ *--- FAIL: |^ +[a-z_]+_test\.go:[0-9]+: |^FAIL|^panic: |DATA RACE' "${work}/output" | cut -c -500 || true
fi
finish "test ${scope}"
