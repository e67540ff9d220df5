#!/usr/bin/env bash
# Builds the tests' control plane where it is not built yet, or starts it until Ctrl-C. Its own program, in the module
# test/controlplane, does both. Usage: hack/control-plane.sh build [--soon]|start
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

readonly program="${root}/bin/controlplane"

case "${1:?build or start}" in
build)
    (cd test/controlplane && CGO_ENABLED=0 "${root}/hack/build.sh" bin/controlplane -trimpath -buildvcs=false -o "${program}" .)
    exec "${program}" build --module test/controlplane "${@:2}"
    ;;
start)
    exec "${program}" start --module test/controlplane
    ;;
*)
    echo "usage: hack/control-plane.sh build|start" >&2
    exit 2
    ;;
esac
