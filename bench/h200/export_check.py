#!/usr/bin/env python3
"""Networks that ulp has trained, exported and predicted with, once more in PyTorch.

  export_check.py prepare ULP FOLDER     trains every network a few steps on made-up pictures, exports it, predicts;
                                         starts a run from the exported file and exports that: the same bytes
  export_check.py check FOLDER           loads what was exported into PyTorch's modules and compares the scores

`prepare` wants numpy, `check` wants numpy and PyTorch; the folder is all that the second needs of the first. Prints a
line for each network and exits 1 if one differs."""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import numpy as np

CLASSES, TRAIN, TEST, SHOWN = 5, 12, 2, 6  # pictures of a class; pictures that are predicted
STEPS = 120  # enough for running statistics to be those of the pictures
# Of the scores, as a share of the largest: sums in another order. A layout that is wrong is off by
# as much as 1.
TOLERANCE = 1e-4

WIDE, SQUARE = (3, 32, 64), (3, 32, 32)  # where nothing forbids it height and width differ
BITS = ['--update', 'stochastic', '--weight', 'bf16', '--policy', 'amp:bf16']
# name: (network, (channels, height, width), width, options of training, of export, of predict)
CASES = {
    'mlp': ('mlp', (3, 12, 20), 1, [], [], []),
    'mlp-grey': ('mlp', (1, 12, 20), 0.5, [], [], []),
    'lenet': ('lenet', (3, 28, 36), 1, [], [], []),
    'lenet-grey': ('lenet', (1, 32, 32), 0.5, [], [], []),
    **{name: (name, (3, 16, 24), 1, [], [], [])
       for name in ['resnet8', 'resnet20', 'resnet32', 'resnet44', 'resnet50-cifar', 'resnet56']},
    **{name: (name, WIDE, 0.25, [], [], []) for name in ['resnet18', 'resnet34', 'resnet50', 'shufflenetv2']},
    'mobilenetv2': ('mobilenetv2', WIDE, 0.5, [], [], []),
    'squeezenet': ('squeezenet', SQUARE, 1, [], [], []),
    'resnet8-bf16': ('resnet8', (3, 16, 24), 1, BITS, [], ['--fp32']),
    'lenet-fp16': ('lenet', (3, 28, 36), 1, [*BITS[:2], '--weight', 'fp16', '--policy', 'amp:fp16'], [], ['--fp32']),
    'resnet8-e4m3': ('resnet8', (3, 16, 24), 1,
                     ['--policy', 'uniform', '--candidates', 'fp8', '--update', 'stochastic', '--weight', 'e4m3'], [],
                     ['--fp32']),
    'resnet8-extra-whole': ('resnet8', (3, 16, 24), 1, ['--policy', 'amp:bf16', '--update', 'extra:16'],
                            ['--split', 'whole'], ['--fp32']),
    'resnet8-as-fp32': ('resnet8', (3, 16, 24), 1, BITS, ['--dtype', 'fp32'], ['--fp32']),
}

DTYPES = {'F32': 'float32', 'F16': 'float16', 'BF16': 'bfloat16', 'F8_E4M3': 'float8_e4m3fn',
          'F8_E5M2': 'float8_e5m2', 'I64': 'int64'}
FP8_BITS = {'float8_e4m3fn': (4, 3), 'float8_e5m2': (5, 2)}


def png(pixels):
    """An array (height, width, 1 or 3) of bytes as a PNG file."""
    def chunk(name, data):
        return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
    height, width, channels = pixels.shape
    rows = b''.join(b'\0' + row.tobytes() for row in pixels)
    colour = 0 if channels == 1 else 2
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, colour, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def header(path):
    """(header, bytes) of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack('<Q', data[:8])
    return json.loads(data[8:8 + size]), data[8 + size:]


# ---- here ----

def make_pictures(folder, shape, draw):
    channels, height, width = shape
    for label in range(CLASSES):
        for part, count in [('train', TRAIN), ('test', TEST)]:
            to = folder / part / f'class {label}'
            to.mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(draw.integers(0, 128, (height, width, channels)) + 30 * label, 0, 255)
                (to / f'{number}.png').write_bytes(png(pixels.astype(np.uint8)))


def shown_pictures(shape, draw):
    """Bright and dark squares under noise: pictures of noise alone would all look alike to a network that averages."""
    channels, height, width = shape
    coarse = draw.integers(0, 256, (SHOWN, -(-height // 4), -(-width // 4), channels))
    squares = coarse.repeat(4, 1).repeat(4, 2)[:, :height, :width]
    bright = draw.integers(0, 256, (SHOWN, 1, 1, channels))
    noise = draw.integers(0, 256, squares.shape)
    return ((squares + 2 * bright + noise) // 4).astype(np.uint8)


def run_ulp(ulp, *args):
    done = subprocess.run([ulp, *map(str, args)], capture_output=True, text=True, check=False,
                          env={**os.environ, 'OMP_NUM_THREADS': os.environ.get('OMP_NUM_THREADS', '1')})
    if done.returncode != 0:
        raise SystemExit(f'ulp {" ".join(map(str, args))}: exit {done.returncode}: {done.stderr.strip()}')
    return done.stdout


def begun(ulp, out, *args):
    """A run that has not taken a step: killed as soon as its first checkpoint, of what it starts from, is there."""
    for _ in range(50):
        shutil.rmtree(out, ignore_errors=True)
        child = subprocess.Popen([ulp, *map(str, args), '--out', str(out)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        last = out / 'last.safetensors'
        while child.poll() is None and not last.exists():
            time.sleep(0.0005)
        child.kill()
        _, errors = child.communicate()
        if not last.exists():
            raise SystemExit(f'a run from exported weights: exit {child.returncode}: {errors.strip()}')
        if header(last)[0]['__metadata__']['step'] == '0':
            return
    raise SystemExit('no run was stopped before its first step')


def prepare_case(ulp, folder, name, case, work):
    model, shape, width, train, export, predict = case
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    data = work / 'data'
    make_pictures(data, shape, draw)
    args = ['train', '--model', model, '--width', width, '--data', 'folder', '--data-dir', data, '--batch', 4,
            '--lr', 0.02, '--seed', 3, *train]
    run = work / 'run'
    run_ulp(ulp, *args, '--steps', STEPS, '--out', run)
    weights = folder / f'{name}.safetensors'
    run_ulp(ulp, 'export', run, '--checkpoint', 'last', '--out', weights, *export)
    pictures = shown_pictures(shape, draw)
    np.save(folder / f'{name}.npy', pictures)
    files = []
    for number, pixels in enumerate(pictures):
        files.append(work / f'{number}.png')
        files[-1].write_bytes(png(pixels))
    answer = json.loads(run_ulp(ulp, 'predict', run, '--checkpoint', 'last', '--json', *predict, *files))
    begun(ulp, work / 'again', *args, '--epochs', 1000, '--init', weights)
    run_ulp(ulp, 'export', work / 'again', '--out', work / 'again.safetensors', *export)
    if (work / 'again.safetensors').read_bytes() != weights.read_bytes():
        raise SystemExit(f'{name}: exported, begun and exported again it has other bytes')
    head, _ = header(weights)
    dtypes = sorted({entry['dtype'] for key, entry in head.items() if key != '__metadata__'})
    print(f'{name:<20} {len(head) - 1:>4} tensors  {", ".join(dtypes)}; begun from it and exported: the same bytes')
    return {'model': model, 'shape': shape, 'width': width, 'answer': answer,
            'sha256': hashlib.sha256(weights.read_bytes()).hexdigest()}


def prepare(ulp, folder, only):
    folder.mkdir(parents=True, exist_ok=True)
    cases = {}
    for name, case in CASES.items():
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as work:
            cases[name] = prepare_case(str(pathlib.Path(ulp).resolve()), folder, name, case, pathlib.Path(work))
    (folder / 'cases.json').write_text(json.dumps(cases))


# ---- where PyTorch is ----

def fp8_numbers(codes, exponent_bits, mantissa_bits):
    """Float8 codes as fp32: e4m3fn has no infinities and NaN at the last code alone, e5m2 is as IEEE has it."""
    codes = codes.astype(np.int32)
    exponent = codes >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = (codes & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    bias = (1 << exponent_bits - 1) - 1
    numbers = np.where(exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias))
    if exponent_bits == 5:
        numbers = np.where(exponent == 31, np.where(mantissa == 0, np.inf, np.nan), numbers)
    else:
        numbers = np.where(codes & 0x7f == 0x7f, np.nan, numbers)
    return np.where(codes >> 7 == 1, -numbers, numbers).astype(np.float32)


def state_dict(torch, path):
    head, data = header(path)
    metadata, state, by_hand = head.pop('__metadata__'), {}, set()
    for name, entry in head.items():
        begin, end = entry['data_offsets']
        raw, dtype = bytearray(data[begin:end]), DTYPES[entry['dtype']]
        if hasattr(torch, dtype):
            numbers = torch.frombuffer(raw, dtype=torch.uint8).view(getattr(torch, dtype))
        else:  # PyTorch before 2.1 has no float8
            numbers = torch.from_numpy(fp8_numbers(np.frombuffer(raw, np.uint8), *FP8_BITS[dtype]))
            by_hand.add(dtype)
        state[name] = numbers.reshape(entry['shape'])
    return state, metadata, by_hand


def check_case(torch, networks, folder, name, case, device):
    state, metadata, by_hand = state_dict(torch, folder / f'{name}.safetensors')
    classes = int(metadata['classes'])
    model = networks.make(case['model'], tuple(case['shape']), classes, case['width'])
    model.load_state_dict(state)
    model.to(device).eval()
    mean, deviation = (torch.tensor([float(x) for x in metadata[key].split()]).view(-1, 1, 1)
                       for key in ('mean', 'deviation'))
    pictures = torch.from_numpy(np.load(folder / f'{name}.npy')).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        scores = model(((pictures / 255 - mean) / deviation).to(device)).double().cpu()
    images = case['answer']['images']
    expected = torch.tensor([image['scores'] for image in images], dtype=torch.float64)
    shares = torch.tensor([image['probabilities'] for image in images], dtype=torch.float64)
    largest = expected.abs().max().item()
    off = (scores - expected).abs().max().item()
    shares_off = (torch.softmax(scores, 1) - shares).abs().max().item()
    # One score for all pictures would hide what is wrong before the last layer.
    spread = (expected.max(0).values - expected.min(0).values).max().item()
    fine = off <= TOLERANCE * max(largest, 1) and shares_off <= TOLERANCE and spread > 100 * TOLERANCE
    print(f'{name:<20} {device:<5} largest score {largest:8.4f}, off by {off:.2e}; probabilities off by '
          f'{shares_off:.2e}; scores of pictures differ by {spread:.3f}: {"fine" if fine else "WRONG"}'
          f'{"".join(f" ({dtype} decoded by hand)" for dtype in sorted(by_hand))}', flush=True)
    return fine


def check(folder):
    import torch

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import export_networks as networks

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    networks.check_parameters()
    print(f'torch {torch.__version__}: {len(networks.NETWORKS)} networks have the parameters of `ulp models`')
    cases = json.loads((folder / 'cases.json').read_text())
    missing = set(networks.NETWORKS) - {case['model'] for case in cases.values()}
    wrong = [f'no case of {name}' for name in sorted(missing)]
    for name, case in cases.items():
        for device in ['cpu', *(['cuda'] if torch.cuda.is_available() else [])]:
            try:
                fine = check_case(torch, networks, folder, name, case, device)
            except Exception as error:  # one network must not hide the others
                print(f'{name:<20} {device:<5} {type(error).__name__}: {error}', flush=True)
                fine = False
            if not fine:
                wrong.append(f'{name} on {device}')
    print(f'{len(cases)} networks, wrong: {", ".join(wrong) or "none"}')
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    first = commands.add_parser('prepare')
    first.add_argument('ulp')
    first.add_argument('folder', type=pathlib.Path)
    first.add_argument('--only', action='append', help='one case alone; may be given again')
    second = commands.add_parser('check')
    second.add_argument('folder', type=pathlib.Path)
    args = parser.parse_args()
    if args.command == 'prepare':
        with contextlib.suppress(KeyboardInterrupt):
            return prepare(args.ulp, args.folder, args.only)
        return 1
    return check(args.folder)


if __name__ == '__main__':
    sys.exit(main())
