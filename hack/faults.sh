#!/usr/bin/env bash
# Runs the long forms of the tests of faults, of which `make test` runs short ones, and writes what they measured into the table of
# test/faults/measured.md. Root mounts the file systems that are cut off and fill up; without root these rows are not measured.
# Usage: hack/faults.sh [REGEXP], where REGEXP names the tests that are run; the figures of the others stay those of the run before.
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly tests="${1:-}" folder="${root}/bin/faults"
export FAULTS_LONG=1 FAULTS_REPORT="${folder}/figures.jsonl"
export METACONTROLLER_APISERVER="${root}/bin/metacontroller-apiserver" METACONTROLLER_PROGRAMS="${root}/bin"

mkdir -p "${folder}"
if [[ -z "${tests}" ]]; then rm -f "${FAULTS_REPORT}"; fi
touch "${FAULTS_REPORT}"

# long PARALLEL PATTERN FOLDER...: runs tests in folders that exist, so many packages at a time.
long() {
    local parallel="$1" pattern="$2" packages=() package
    shift 2
    for package in "$@"; do
        if [[ -d "${package%/...}" ]]; then packages+=("${package}"); fi
    done
    if ((${#packages[@]} == 0)); then return; fi
    go test -count=1 -v -p "${parallel}" -timeout 55m -run "${pattern}" "${packages[@]}" || complain "the faults in ${packages[*]} were not endured"
}

# Most of these wait for minutes, for two things that do not disturb each other.
long 2 "${tests:-.}" ./test/faults/engine ./test/faults/storage
# The others measure how long things take.
long 1 "${tests:-.}" ./test/integration/replicas ./test/integration/certificates
long 1 "${tests:-^TestANodeIsLost\$}" ./test/e2e/rescue
long 1 "${tests:-^TestFiftyHostileHooks\$}" ./test/conformance/hostile
long 1 "${tests:-^TestAPanicAtEveryRequest\$}" ./test/simulation/world

go run ./hack/fault-table "${FAULTS_REPORT}" test/faults/measured.md
finish faults
