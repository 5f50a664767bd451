#!/usr/bin/env python3
"""Fused optimizer steps in PyTorch on 268,435,456 parameters, and what the GPU can do: a copy, a bf16 matrix product, a
cast to e4m3.

One JSON line a measurement; medians by CUDA events. Bytes are what a step must read and write.
"""

import argparse
import json
import statistics
import sys

import torch

PARAMETERS = 268435456
WARMUP, STEPS = 5, 30
WHAT = ['adamw-fp32', 'adamw-bf16', 'sgd-fp32', 'sgd-bf16', 'copy', 'gemm-bf16', 'cast-e4m3']


def timed(work):
    """Median milliseconds."""
    for _ in range(WARMUP):
        work()
    times = []
    for _ in range(STEPS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def optimizer_step(kind, dtype, parameters):
    """Weight and state read and written, gradient read."""
    weight = torch.nn.Parameter((0.1 * torch.randn(parameters, device='cuda')).to(dtype))
    weight.grad = (1e-3 * torch.randn(parameters, device='cuda')).to(dtype)
    if kind == 'adamw':
        optimizer, states = torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.01, fused=True), 2
    else:
        optimizer, states = torch.optim.SGD([weight], lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True), 1
    ms = timed(optimizer.step)
    size = weight.element_size() * (2 + 1 + 2 * states)
    return {'ms': ms, 'bytes_per_parameter': size, 'gbs': 1e-6 * size * parameters / ms}


def measure(what, parameters):
    kind, _, form = what.partition('-')
    if kind in ('adamw', 'sgd'):
        return optimizer_step(kind, torch.float32 if form == 'fp32' else torch.bfloat16, parameters)
    if what == 'copy':
        source = torch.randn(parameters, device='cuda')
        target = torch.empty_like(source)
        ms = timed(lambda: target.copy_(source))
        return {'ms': ms, 'gbs': 1e-6 * 8 * parameters / ms}
    if what == 'cast-e4m3':
        source = torch.randn(parameters, device='cuda')
        target = torch.empty(parameters, device='cuda', dtype=torch.float8_e4m3fn)
        ms = timed(lambda: target.copy_(source))
        return {'ms': ms, 'gbs': 1e-6 * 5 * parameters / ms, 'elements_per_second': 1e3 * parameters / ms}
    side = 8192
    a, b = (torch.randn(side, side, device='cuda', dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty(side, side, device='cuda', dtype=torch.bfloat16)
    ms = timed(lambda: torch.matmul(a, b, out=c))
    return {'ms': ms, 'tflops': 2e-9 * side**3 / ms, 'side': side}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--what', default=','.join(WHAT), help='comma-separated; known: ' + ', '.join(WHAT))
    parser.add_argument('--parameters', type=int, default=PARAMETERS)
    options = parser.parse_args()
    for what in options.what.split(','):
        if what not in WHAT:
            parser.error(f'unknown: {what}')
        found = measure(what, options.parameters)
        print(json.dumps({'what': what, 'parameters': options.parameters, **found, 'torch': torch.__version__}),
              flush=True)
        torch.cuda.empty_cache()
    return 0


if __name__ == '__main__':
    sys.exit(main())
