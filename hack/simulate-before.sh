#!/usr/bin/env bash
# Runs the kept histories before-*.json, and then random ones, in a simulated cluster against the engine as it was at another commit.
# Usage: hack/simulate-before.sh COMMIT SEEDS FIRST OPEN, where OPEN are invariants that are left out, with commas between them.
# What the simulation needs of the commit stands in test/simulation/before/COMMIT.patch.
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly commit="${1:?which commit}" seeds="${2:?how many histories}" first="${3:-1}" open="${4:-}"
readonly patch="${PWD}/test/simulation/before/${commit}.patch"

work="$(mktemp -d)"
trap 'git worktree remove --force "${work}/tree" 2>/dev/null || true; rm -rf "${work}"' EXIT
git worktree add --quiet --detach "${work}/tree" "${commit}"
git -C "${work}/tree" apply "${patch}"
cp -R test/simulation "${work}/tree/test/simulation"
cp go.mod go.sum "${work}/tree"

cd "${work}/tree"
go test -vet=off -c -o "${work}/simulation.test" ./test/simulation
cd test/simulation

# What is known to be wrong in that engine. A history that violates nothing there is no longer a proof.
missed=0
for history in history/testdata/before-*.json; do
    output="$(GOMAXPROCS=1 "${work}/simulation.test" -test.v -test.run '^TestReplay$' -simulation.replay "${history}" 2>&1)" || true
    violated="$(sed -n -e 's/^ *VIOLATED //p' <<<"${output}")"
    invariant="$(sed -n -e 's/^ *"invariant": "\(.*\)",$/\1/p' "${history}")"
    echo "${history##*/}: ${violated:-violates nothing}"
    if [[ "${violated}" != "${invariant} "* ]]; then
        echo "  it shows what it is kept for when it violates ${invariant}" >&2
        missed=1
    fi
done

if [[ "${seeds}" -gt 0 ]]; then
    "${work}/simulation.test" -test.v -test.timeout 0 -test.run '^TestHistories$' -simulation.seeds "${seeds}" -simulation.first "${first}" \
        -simulation.open "${open}"
fi
exit "${missed}"
