#!/usr/bin/env bash
# Measures ulp on a machine with a GPU, beside PyTorch.
#
#   run.sh [--out FOLDER] [--data FOLDER] [PART...]
#
#   bits     the programs that compare the GPU's bits with the CPU's
#   sanitize compute-sanitizer's memcheck, initcheck and racecheck on some of the cases of those programs and on
#            steps of resnet20, each run up to LIMIT seconds
#   steps    a training step of every model, batch and policy, ulp and PyTorch in turns; a table at the end
#   memory   the peak of a step, each in a fresh process
#   adamw    updates of 268 M parameters, ulp's and PyTorch's; a copy, a matrix product, a cast
#   train    CIFAR-10, 30 epochs (needs --data: a folder with cifar-10-batches-bin)
#
# Without PART: bits steps memory adamw. Run from a folder with `ulp`, the test programs and the libraries that the
# machine lacks (their run path is $ORIGIN) and with these scripts; or name that folder in BIN. Logs go to FOLDER,
# measured-h200 unless named: *.jsonl as measured, *.log what was printed, *.md the tables. A part that fails is named
# at the end and the exit status is 1.
#
# What is measured can be chosen: MODELS, BATCHES, POLICIES (ulp), MODES (PyTorch), STEPS, DEVICE, TORCH=0 for ulp
# alone. EVERY: of the conformance cases one in so many for sanitizers; LIMIT: the seconds that each of their runs may
# take.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${BIN:-$PWD}
out=measured-h200 data='' parts=()
usage() { sed -n '2,/^set -u/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; }
bad() { echo "run.sh: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -gt 1 ] || bad '--out needs a folder'; out=$2; shift 2 ;;
    --data) [ $# -gt 1 ] || bad '--data needs a folder'; data=$2; shift 2 ;;
    -h|--help) usage; exit 0 ;;
    bits|sanitize|steps|memory|adamw|train) parts+=("$1"); shift ;;
    *) bad "unknown: $1 (see run.sh --help)" ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=(bits steps memory adamw)
for part in "${parts[@]}"; do
  [ "$part" != train ] || [ -n "$data" ] || bad 'train needs --data FOLDER'
done
[ -x "$bin/ulp" ] || bad "there is no program ulp in $bin (set BIN)"

IFS=' ,' read -ra models <<<"${MODELS:-resnet18 mobilenetv2 shufflenetv2 resnet20}"
IFS=' ,' read -ra batches <<<"${BATCHES:-128 1024}"
IFS=' ,' read -ra policies <<<"${POLICIES:-fp32 amp:bf16 amp:fp16 size:0.5 size:1}"
modes=${MODES:-fp32,tf32,amp-bf16,amp-fp16,compile-bf16,graphs-bf16}
modes=${modes// /,}
steps=${STEPS:-30} device=${DEVICE:-cuda} torch=${TORCH:-1}
mkdir -p "$out" || exit 2
failed=()

# Runs a command, its lines to a file: try FILE COMMAND...
try() {
  local file=$1; shift
  echo "+ $*" | tee -a "$out/commands.log" >&2
  if ! "$@" >>"$out/$file" 2>>"$out/errors.log"; then
    failed+=("$*")
    echo "  failed, see $out/errors.log" >&2
  fi
}
peers() { [ "$torch" = 0 ] || try "$1" python3 "$here/$2" "${@:3}"; }
joined() { local IFS=,; echo "$*"; }
step() { # FILE MODEL BATCH POLICY MORE...
  try "$1" "$bin/ulp" bench step --device "$device" --model "$2" --batch "$3" --policy "$4" --json "${@:5}"
}

run_bits() {
  local found=0 program
  for program in numeric_bits division_check convert_check products_check conv_igemm_check pointwise_check \
    conv_simt_check cuda_conformance cuda_first_step; do
    [ -x "$bin/$program" ] || continue
    found=1
    try bits.log "$bin/$program"
  done
  [ $found = 1 ] && return
  failed+=('bits: none of its programs is there')
  echo "no test programs of the cuda preset in $bin" >&2
}

# One at a time: under a sanitizer a program takes the whole GPU, and several time each other out. A report other than
# clean fails.
run_sanitize() {
  local tool
  command -v compute-sanitizer >/dev/null || { failed+=('sanitize: no compute-sanitizer'); return; }
  sanitized() { # NAME TOOL COMMAND...
    try "$1.log" timeout "${LIMIT:-300}" compute-sanitizer --error-exitcode 9 --tool "${@:2}"
    tail -n 1 "$out/$1.log"
  }
  for tool in memcheck initcheck racecheck; do
    # Under racecheck products of cuDNN and cuBLASLt fail, instrumented or not (an illegal address, of which memcheck
    # knows nothing).
    ULP_EVERY=${EVERY:-11} ULP_WITHOUT=$([ "$tool" = racecheck ] && echo cudnn,cublaslt) \
      sanitized "$tool-conformance" "$tool" --kernel-name kns=ulp "$bin/cuda_conformance" --gtest_filter='Backends*'
    # Whole steps, with the kernels that only plans make of several operators.
    for policy in amp:bf16 size:0.5 size:1; do
      sanitized "$tool-step-${policy/:/-}" "$tool" --kernel-name kns=ulp "$bin/ulp" bench step --device cuda \
        --model resnet20 --batch 16 --policy "$policy" --warmup-steps 1 --steps 1 --profile-steps 0 --no-ceilings
    done
    sanitized "$tool-conv_igemm" "$tool" "$bin/conv_igemm_check" --every 31
    sanitized "$tool-direct" "$tool" "$bin/conv_simt_check" --every 37
    sanitized "$tool-pointwise" "$tool" "$bin/pointwise_check"
  done
}

run_steps() {
  : >"$out/steps.jsonl"
  for model in "${models[@]}"; do
    for batch in "${batches[@]}"; do
      for policy in "${policies[@]}"; do
        step steps.jsonl "$model" "$batch" "$policy" --warmup-steps 10 --steps "$steps"
      done
      peers steps.jsonl torch_step.py --models "$model" --batches "$batch" --modes "$modes" --steps "$steps"
    done
  done
  table steps.jsonl
}

run_memory() {
  : >"$out/memory.jsonl"
  for model in "${models[@]}"; do
    for batch in "${batches[@]}"; do
      # Fresh by itself: ulp measures once a process.
      for policy in "${policies[@]}"; do
        step memory.jsonl "$model" "$batch" "$policy" --warmup-steps 2 --steps 3 --profile-steps 0
      done
    done
  done
  peers memory.jsonl torch_step.py --fresh --steps 3 --models "$(joined "${models[@]}")" \
    --batches "$(joined "${batches[@]}")" --modes "$(tr , '\n' <<<"$modes" | grep -v 'compile\|graphs' | paste -sd,)"
  table memory.jsonl
}

run_adamw() {
  : >"$out/adamw.jsonl"
  for rule in '' '--update extra:16 --gradient bf16 --state bf16' '--gradient bf16 --state bf16'; do
    # shellcheck disable=SC2086
    try adamw.jsonl "$bin/ulp" bench update --device "$device" --optimizer adamw $rule --json
  done
  peers adamw.jsonl torch_adamw.py
}

# PyTorch's cycle rises over 0.3 of the run from 1/25 of the peak, along half a wave; ulp's warm-up is a straight line
# between the same.
run_train() {
  : >"$out/train.jsonl"
  for policy in "${policies[@]}"; do
    local folder="$out/train-${policy//[^a-z0-9]/_}"
    if [ -e "$folder" ]; then
      echo "$folder is there: not trained again" >&2
    else
      try train.log "$bin/ulp" train --device "$device" --model resnet18 --data cifar10 --data-dir "$data" \
        --policy "$policy" --batch 128 --epochs 30 --lr 0.2 --schedule cosine --warmup 9e:0.04 --out "$folder"
    fi
  done
  peers train.jsonl torch_cifar.py "$data"
}

table() { python3 "$here/table.py" "$out/$1" | tee "$out/${1%.jsonl}.md"; }

for part in "${parts[@]}"; do "run_$part"; done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed:" >&2
  printf '  %s\n' "${failed[@]}" >&2
  exit 1
fi
