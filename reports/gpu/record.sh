#!/bin/sh
# Runs on a machine with a GPU everything that a record stands for, step by step, and leaves in the folder of --out the
# result of each step and steps.tsv: name, exit code, seconds, command. A step that fails does not stop the next. Needs no
# make: built programs may be carried here together with fixtures/ and oracles/. `make gpu-record` calls this.
set -u

usage() {
    [ $# -eq 0 ] || echo "record.sh: $1" >&2
    cat >&2 <<'TEXT'
usage: reports/gpu/record.sh --binary FILE --tests FILE --out DIR [options]

  --binary FILE   the built program, dflash-parity
  --tests FILE    the built test suites
  --out DIR       folder of the results
  --record FILE   afterwards also make the record FILE of what is in DIR
  --name NAME     name in the record (default: that of its file)
  --only GLOB     run only the steps that GLOB matches, and keep the results of the others that are in DIR already
  --against FILE  also hold the exact class against digests that a CPU elsewhere wrote
  --python FILE   an interpreter whose PyTorch is timed beside the table (default: python3, if it can)

Exit codes: 0 the steps ran (whether they passed is in steps.tsv), with --record that of the record (0 or 1), 2 usage,
3 results in DIR come from another program, 4 there is no GPU to run on: nothing is written.
TEXT
    exit 2
}

program='' tests='' folder='' record='' name='' only='*' against='' python=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage "$1 needs a value"
    case $1 in
    --binary) program=$2 ;;
    --tests) tests=$2 ;;
    --out) folder=$2 ;;
    --record) record=$2 ;;
    --name) name=$2 ;;
    --only) only=$2 ;;
    --against) against=$2 ;;
    --python) python=$2 ;;
    *) usage "unknown word '$1'" ;;
    esac
    shift 2
done
[ -n "$program" ] && [ -n "$tests" ] && [ -n "$folder" ] || usage '--binary, --tests and --out are all needed'
for file in "$program" "$tests"; do
    [ -x "$file" ] || usage "$file is not there to be run"
done
[ -n "$name" ] || name=$(basename "${record:-gpu}" .record.json)

# A device that computes wrong goes on, into a record that says so; only one that is not there ends here.
said=$("$program" check --checkpoint fixtures/small/tiny-plain --oracle oracles/tiny-plain.h5 --backend cuda 2>&1)
if [ $? -eq 4 ]; then
    printf '%s\n' "$said" | tail -n 3 >&2
    echo 'record.sh: no GPU that this program can run on; nothing is recorded' >&2
    exit 4
fi

mkdir -p "$folder" || exit 4
digest=$(sha256sum "$program" "$tests" | cut -d ' ' -f 1)
if [ "$only" = '*' ]; then
    rm -f "$folder"/*.json "$folder"/*.txt "$folder/steps.tsv"
elif [ -f "$folder/programs.sha256" ] && [ "$digest" != "$(cat "$folder/programs.sha256")" ]; then
    echo "record.sh: the results in $folder come from other programs; run without --only, or choose another folder" >&2
    exit 3
fi
printf '%s\n' "$digest" >"$folder/programs.sha256" || exit 4
touch "$folder/steps.tsv"

step() {
    step=$1
    shift
    # shellcheck disable=SC2254 # a pattern
    case $step in
    $only) ;;
    *) return 0 ;;
    esac
    rm -f "$folder/$step.json"
    begin=$(date +%s)
    "$@" >"$folder/$step.txt" 2>&1
    code=$?
    grep -v "^$step	" "$folder/steps.tsv" >"$folder/steps.new"
    printf '%s\t%d\t%d\t%s\n' "$step" "$code" "$(($(date +%s) - begin))" "$*" >>"$folder/steps.new"
    mv "$folder/steps.new" "$folder/steps.tsv"
    echo "$step: exit code $code: $(tail -n 1 "$folder/$step.txt")" >&2
}

# The driver's own version; every result also holds the versions of CUDA and cuBLAS.
describe_driver() {
    facts=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '"\\')
    printf '{"nvidia_smi": "%s"}\n' "${facts:-not there}" | tee "$folder/driver.json"
}

step driver describe_driver
step prepare "$program" gate --prepare
for class in exact cublas fast; do
    step "gate-$class" "$program" gate --backend cuda --class "$class" --out "$folder/gate-$class.json"
done
step digests-cpu "$program" identity --case '*' -k round.all --digests "$folder/digests.cpu"
step digests-exact "$program" identity --case '*' --backend cuda --class exact --against "$folder/digests.cpu" \
    --out "$folder/digests-exact.json"
[ -z "$against" ] ||
    step digests-elsewhere "$program" identity --case '*' --backend cuda --class exact --against "$against"
for class in exact cublas fast; do
    step "identity-$class" "$program" identity --backend cuda --class "$class" --out "$folder/identity-$class.json"
done
step suite env CK_RUN_SUITE=cuda CK_FORK=no "$tests"
# Watched, a round runs stage by stage (gate); unwatched it may run as one kernel (the arm observer.off), which cublas has
# not. racecheck takes longer for one case than the others for all small ones, and most of what it would see in cublas is
# the library's.
for tool in memcheck racecheck initcheck; do
    cases='tiny-*' classes='exact cublas fast'
    [ $tool != racecheck ] || cases=tiny-dflash2 classes='exact fast'
    for class in $classes; do
        step "$tool-$class" compute-sanitizer --tool "$tool" --error-exitcode 9 --report-api-errors no \
            "$program" gate -k "$cases" --backend cuda --class "$class"
        [ $class != cublas ] || continue
        step "$tool-$class-unobserved" compute-sanitizer --tool "$tool" --error-exitcode 9 --report-api-errors no \
            "$program" identity --case "$cases" -k observer.off --backend cuda --class "$class"
    done
done
ready='import torch, safetensors, sys; sys.exit(not torch.cuda.is_available())'
if [ -z "$python" ] && python3 -c "$ready" >/dev/null 2>&1; then python=python3; fi
step bench-table "$program" bench --table --backend cuda ${python:+--torch "$python"} --out "$folder/bench-table.json"

[ -n "$record" ] || exit 0
exec "$program" gpu-record --results "$folder" --name "$name" --out "$record"
