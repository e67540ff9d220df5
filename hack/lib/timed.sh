#!/usr/bin/env bash
# Runs a program for `go test -exec`, and adds the processor time to PROCESSOR_TIMES that it and all that it started and waited for took.
# Suites that RACED_SUITES names, by their folders under test/ with spaces between them, have the server with the race detector; the others
# have the server as it is shipped.
# Usage: PROCESSOR_TIMES=FILE RACED_SUITES=NAMES hack/lib/timed.sh PROGRAM [ARGUMENT...]; it is run in the folder of the package.
set -o nounset

programs="${PWD%/test/*}/bin"
case " ${RACED_SUITES} " in
*" ${PWD##*/test/} "*) programs+=/race ;;
esac
export METACONTROLLER_APISERVER="${programs}/metacontroller-apiserver"
# The folders of tests are where TMPDIR says, and not with those of go test itself, unless they are about disks.
[[ "${PWD}" == */test/faults/* ]] || unset GOTMPDIR

"$@"
status=$?
# The second line is that of the processes that were waited for, as 1m2.345s for user and system. In a pipe it would be that of a subshell.
times > >(awk -v folder="${PWD}" 'NR == 2 {
    for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); seconds += 60 * t[1] + t[2] }
    print folder "\t" seconds
}' >>"${PROCESSOR_TIMES}")
wait $!
exit "${status}"
