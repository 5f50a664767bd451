#!/usr/bin/env python3
"""A training step in PyTorch: the median of 30 after 10 warm-ups, timed by CUDA events, one JSON line a measurement.

Random data on the GPU, 3x32x32, 10 classes, SGD with momentum 0.9, cross entropy: what `ulp bench step` measures,
though that at rate 0. compile-bf16 is plain torch.compile; graphs-bf16 compiles with CUDA graphs (reduce-overhead).
--fresh runs each measurement in a process of its own: then peak_bytes is that of the step alone.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys

MODES = ['fp32', 'tf32', 'amp-bf16', 'amp-fp16', 'compile-bf16', 'graphs-bf16']
COMPILED = ['resnet18', 'resnet20']  # of the others the table has no compiled row
WARMUP = 10


def measure(name, batch, mode, steps):
    import torch
    from torch_models import make

    torch.manual_seed(0)
    tf32 = mode != 'fp32'
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    layout = torch.contiguous_format if mode == 'fp32' else torch.channels_last
    model = make(name).cuda().to(memory_format=layout).train()
    images = torch.randn(batch, 3, 32, 32, device='cuda').to(memory_format=layout)
    labels = torch.randint(0, 10, (batch,), device='cuda')
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    criterion = torch.nn.CrossEntropyLoss()
    narrow = {'amp-bf16': torch.bfloat16, 'amp-fp16': torch.float16, 'compile-bf16': torch.bfloat16,
              'graphs-bf16': torch.bfloat16}.get(mode)
    scaler = torch.amp.GradScaler('cuda', enabled=mode == 'amp-fp16')
    run = (torch.compile(model) if mode.startswith('compile') else
           torch.compile(model, mode='reduce-overhead') if mode.startswith('graphs') else model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cuda', dtype=narrow or torch.bfloat16, enabled=narrow is not None):
            loss = criterion(run(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    for _ in range(WARMUP):
        loss = step()
    torch.cuda.synchronize()
    # Trying algorithms takes memory that steps do not.
    warmup_peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        loss = step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    ms = statistics.median(times)
    return {'what': 'torch', 'model': name, 'batch': batch, 'mode': mode, 'ms': ms, 'ms_min': min(times),
            'ms_max': max(times), 'examples_per_second': 1e3 * batch / ms, 'loss': float(loss.detach()),
            'peak_bytes': torch.cuda.max_memory_allocated(), 'peak_bytes_with_warmup': warmup_peak,
            'reserved_bytes': torch.cuda.max_memory_reserved(), 'torch': torch.__version__,
            'gpu': torch.cuda.get_device_name()}


def parse(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--models', default='resnet18,resnet20,mobilenetv2,shufflenetv2', help='comma-separated')
    parser.add_argument('--batches', default='128,1024', help='comma-separated')
    parser.add_argument('--modes', default=','.join(MODES), help='comma-separated')
    parser.add_argument('--steps', type=int, default=30, help='timed steps')
    parser.add_argument('--fresh', action='store_true', help='one process a measurement')
    options = parser.parse_args(words)
    options.models, options.modes = options.models.split(','), options.modes.split(',')
    options.batches = [int(batch) for batch in options.batches.split(',')]
    for mode in options.modes:
        if mode not in MODES:
            parser.error(f'unknown mode {mode}; known: {", ".join(MODES)}')
    return options


def main():
    options = parse()
    failed = False
    for name, batch, mode in itertools.product(options.models, options.batches, options.modes):
        if mode.startswith(('compile', 'graphs')) and name not in COMPILED:
            continue
        if options.fresh:
            command = [sys.executable, __file__, '--models', name, '--batches', str(batch), '--modes', mode, '--steps',
                       str(options.steps)]
            failed |= subprocess.run(command, check=False).returncode != 0
        else:
            print(json.dumps(measure(name, batch, mode, options.steps)), flush=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
