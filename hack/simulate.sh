#!/usr/bin/env bash
# Runs random histories of the engine in a simulated cluster, without the race detector, which makes them about twenty times slower.
# Usage: hack/simulate.sh FLAG..., the flags being those of test/simulation. TESTS selects other tests than those of random histories.
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

# Its sources are of Go's own packages: the dot keeps them out of ./...
mkdir -p bin/.repeatable
overlay="$(go run ./hack/repeatable-runtime bin/.repeatable)"
# Vetting all packages once more, because of another runtime, would take minutes.
GOGC=800 go test -vet=off -overlay "${overlay}" -count=1 -v -timeout 0 -run "${TESTS:-^Test(Histories|RunsRepeat)$}" ./test/simulation "$@"
