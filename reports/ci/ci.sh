#!/bin/sh
# The gate and its reports, for any CI: builds, runs the gate, renders every report whatever the verdict is, and ends
# with the gate's exit code (README.md beside this file says what each code means).
#
#     reports/ci/ci.sh RESULTS [options of `dflash-parity gate`]
#
# RESULTS  a folder, made when it is missing: result.json, summary.md, junit.xml, report.html. Those of an earlier run are
#          removed first, so that none can be taken for this one's.
# CACHE    (environment) a folder that lasts from run to run: checkpoints that are written from their seeds, and
#          history.jsonl. Without it the checkpoints stay under build/ and the history is RESULTS/history.jsonl.
# PROGRAM  (environment) the program, when it is built already.
set -eu

case ${1:--} in
-*)
    echo "usage: reports/ci/ci.sh RESULTS [options of dflash-parity gate]" >&2
    exit 2
    ;;
esac

# An absolute path of a folder, which is made.
folder() { mkdir -p "$1" && (cd "$1" && pwd); }

results=$(folder "$1")
shift
history=$results/history.jsonl
if [ -n "${CACHE:-}" ]; then
    CACHE=$(folder "$CACHE")
    history=$CACHE/history.jsonl
fi
cd "$(dirname "$0")/../.."

# A folder of checkpoints that is there already is somebody's: only a missing one, or a link, leads to the cache.
if [ -n "${CACHE:-}" ]; then
    folder "$CACHE/checkpoints" >/dev/null
    mkdir -p build
    if [ -L build/checkpoints ] || [ ! -e build/checkpoints ]; then
        ln -sfn "$CACHE/checkpoints" build/checkpoints
    fi
fi

if [ -z "${PROGRAM:-}" ]; then
    make -j"$(nproc)" build >&2
    PROGRAM=build/dflash-parity
fi

(cd "$results" && rm -f result.json summary.md junit.xml report.html)
code=0
"$PROGRAM" gate "$@" --out "$results/result.json" --history "$history" || code=$?

# A gate that stopped before its first case (a usage error, a list that is no list) has said why and left no result.
report() {
    failed=0
    "$PROGRAM" report "$results/result.json" --as "$1" --out "$results/$2" || failed=$?
    [ "$code" -ne 0 ] || code=$failed
}
if [ -f "$results/result.json" ]; then
    report markdown summary.md
    report junit junit.xml
    report html report.html
fi
exit "$code"
