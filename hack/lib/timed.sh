#!/usr/bin/env bash
# Runs a program for `go test -exec`, and adds the processor time to PROCESSOR_TIMES that it and all that it started and waited for took.
# Usage: PROCESSOR_TIMES=FILE hack/lib/timed.sh PROGRAM [ARGUMENT...]; it is run in the folder of the package.
set -o nounset

"$@"
status=$?
# The second line is that of the processes that were waited for, as 1m2.345s for user and system. In a pipe it would be that of a subshell.
times > >(awk -v folder="${PWD}" 'NR == 2 {
    for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); seconds += 60 * t[1] + t[2] }
    print folder "\t" seconds
}' >>"${PROCESSOR_TIMES}")
wait $!
exit "${status}"
