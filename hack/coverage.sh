#!/usr/bin/env bash
# Prints the share of statements that were run, for each package written here and in total. A statement counts as run
# when any of the profiles says so. Usage: hack/coverage.sh PROFILE...
source "$(dirname "${BASH_SOURCE[0]}")/lib/init.sh"

cat "$@" | awk -v module="$(go list -m)/" '
    # A line is: file:start.column,end.column statements count
    /^mode:/ || /zz_generated\./ || index($1, module "pkg/generated/") { next }
    index($1, module "cmd/") == 1 || index($1, module "pkg/") == 1 {
        statements[$1] = $2
        if ($3 > 0) ran[$1] = 1
    }
    END {
        for (block in statements) {
            package = substr(block, length(module) + 1)
            sub(/\/[^\/]*$/, "", package)
            all[package] += statements[block]; total += statements[block]
            if (block in ran) { hit[package] += statements[block]; run += statements[block] }
        }
        for (package in all) printf "%-58s %6d statements %6.1f%%\n", package, all[package], 100 * hit[package] / all[package]
        if (total > 0) printf "%-58s %6d statements %6.1f%%\n", "~total", total, 100 * run / total
    }' | sort | sed 's/^~total/total /'
