#!/usr/bin/env bash
# Runs the engines of Argo CD and Flux against the server that METACONTROLLER_APISERVER names. They are a module of their own, with a newer Go,
# which go fetches. Usage: hack/gitops.sh [argument of go test]...
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

exec go -C test/gitops test -count=1 -ldflags='-s -w' -timeout 30m "$@" .
