#!/bin/sh
# Runs on a machine with a GPU everything that a record stands for, step by step, and leaves in FOLDER the result of each
# step and steps.tsv: name, exit code, seconds, command. A step that fails does not stop the next. `make gpu-record`
# calls this and makes the record of what it left.
set -u
[ $# -eq 3 ] || { echo "usage: $0 PROGRAM TESTS FOLDER" >&2; exit 2; }
program=$1 tests=$2 folder=$3
mkdir -p "$folder"
rm -f "$folder"/*.json "$folder"/*.txt "$folder/steps.tsv"

step() {
    name=$1
    shift
    begin=$(date +%s)
    "$@" >"$folder/$name.txt" 2>&1
    code=$?
    printf '%s\t%d\t%d\t%s\n' "$name" "$code" "$(($(date +%s) - begin))" "$*" >>"$folder/steps.tsv"
    echo "$name: exit code $code: $(tail -n 1 "$folder/$name.txt")" >&2
}

step prepare "$program" gate --prepare
for class in exact cublas fast; do
    step "gate-$class" "$program" gate --backend cuda --class "$class" --out "$folder/gate-$class.json"
    step "identity-$class" "$program" identity --backend cuda --class "$class" --out "$folder/identity-$class.json"
done
step digests-cpu "$program" identity -k round.all --digests "$folder/digests.cpu"
step digests-exact "$program" identity --backend cuda --class exact --against "$folder/digests.cpu"
step suite env CK_RUN_SUITE=cuda CK_FORK=no "$tests"
for tool in memcheck racecheck initcheck; do
    step "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 --report-api-errors no \
        "$program" gate -k 'tiny-dflash2' --backend cuda --class exact
done
for class in exact fast; do
    step "bench-$class" "$program" bench --backend cuda --class "$class" --context 2048 --out "$folder/bench-$class.json"
done
