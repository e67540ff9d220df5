#!/usr/bin/env bash
# Runs random histories of a simulated cluster in one process, and prints which part of each package of the engine they reach.
# Usage: hack/simulate-coverage.sh SEEDS FIRST
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT

go test -count=1 -timeout 0 -run '^TestHistories$' -coverpkg='./pkg/controller/...,./pkg/children/...,./pkg/cluster/...,./pkg/hook/...' \
    -coverprofile="${work}/simulation.out" ./test/simulation -simulation.alone -simulation.seeds "${1:?how many histories}" \
    -simulation.first "${2:?the first seed}"
hack/coverage.sh "${work}/simulation.out"
