#!/usr/bin/env bash
# Runs random histories of a simulated cluster against the engine as it was at another commit.
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
go test -vet=off -count=1 -v -timeout 0 -run '^TestHistories$' ./test/simulation -simulation.seeds "${seeds}" \
    -simulation.first "${first}" -simulation.open "${open}"
