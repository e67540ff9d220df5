#!/usr/bin/env bash
# Prints what is stamped into the server, from git: its version, its commit, or the commit's date in UTC.
# Usage: hack/version.sh version|commit|date
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

case "${1:?version, commit or date}" in
version)
    if git describe --tags --abbrev=12 --match 'v[0-9]*' --dirty 2>/dev/null; then
        exit
    fi
    # No release tag is reachable: a version below every release, ordered by the number of commits.
    if count="$(git rev-list --count HEAD 2>/dev/null)"; then
        dirty="$(git diff --quiet HEAD -- 2>/dev/null || echo -dirty)"
        echo "v0.0.0-${count}-g$(git rev-parse --short=12 HEAD)${dirty}"
    else
        echo v0.0.0-unknown
    fi
    ;;
commit)
    git rev-parse HEAD 2>/dev/null || echo unknown
    ;;
date)
    TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null || echo 1970-01-01T00:00:00Z
    ;;
*)
    echo "usage: hack/version.sh version|commit|date" >&2
    exit 2
    ;;
esac
