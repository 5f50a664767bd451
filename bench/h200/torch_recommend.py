#!/usr/bin/env python3
"""A training step of the recommenders in PyTorch: the median of 30 after 10 warm-ups, timed by CUDA events, one JSON
line a measurement.

NCF is ulp's `ncf` on MovieLens-1M (6,040 users, 3,706 items; Adam), DLRM its `dlrm` with 26 tables of 10,000 rows of
16 (SGD). Ids are uniform at random and lie on the GPU, as does all else. Modes: fp32, tf32, amp-bf16; `compiled-` is
torch.compile of the model, `graphs-` the same with CUDA graphs (reduce-overhead). --sparse gives tables sparse
gradients, which PyTorch's compiler does not take.
"""

import argparse
import itertools
import json
import statistics
import sys

MODES = ['fp32', 'tf32', 'amp-bf16', 'compiled-tf32', 'compiled-amp-bf16', 'graphs-tf32', 'graphs-amp-bf16']
WARMUP = 10
USERS, ITEMS = 6040, 3706
TABLES, ROWS, WIDTH, DENSE = 26, 10_000, 16, 13


def networks(torch, sparse):
    nn = torch.nn

    def layers(*widths, last=True):
        made = []
        for i, (before, after) in enumerate(zip(widths, widths[1:])):
            made.append(nn.Linear(before, after))
            if last or i + 2 < len(widths):
                made.append(nn.ReLU())
        return nn.Sequential(*made)

    class Ncf(nn.Module):
        def __init__(self):
            super().__init__()
            self.gmf_user, self.gmf_item = (nn.Embedding(n, 8, sparse=sparse) for n in (USERS, ITEMS))
            self.mlp_user, self.mlp_item = (nn.Embedding(n, 32, sparse=sparse) for n in (USERS, ITEMS))
            self.layers, self.score = layers(64, 32, 16, 8), nn.Linear(16, 1)

        def forward(self, users, items):
            product = self.gmf_user(users) * self.gmf_item(items)
            x = self.layers(torch.cat([self.mlp_user(users), self.mlp_item(items)], 1))
            return self.score(torch.cat([product, x], 1))

    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH, sparse=sparse) for _ in range(TABLES))
            self.bottom = layers(DENSE, 512, 256, 64, WIDTH)
            pairs = (TABLES + 1) * TABLES // 2
            self.top = layers(pairs + WIDTH, 512, 256, 1, last=False)
            self.register_buffer('below', torch.tril_indices(TABLES + 1, TABLES + 1, -1), persistent=False)

        def forward(self, dense, ids):
            x = self.bottom(dense)
            vectors = torch.stack([x, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
            dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.below[0], self.below[1]]
            return self.top(torch.cat([x, dots], 1))

    return {'ncf': Ncf, 'dlrm': Dlrm}


def measure(name, batch, mode, steps, sparse):
    import torch

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = mode != 'fp32'
    model = networks(torch, sparse)[name]().cuda().train()
    if name == 'ncf':
        inputs = (torch.randint(0, USERS, (batch,), device='cuda'), torch.randint(0, ITEMS, (batch,), device='cuda'))
        optimizer = torch.optim.SparseAdam(model.parameters(), lr=5e-4) if sparse else torch.optim.Adam(
            model.parameters(), lr=5e-4, fused=True)
    else:
        inputs = (torch.randn(batch, DENSE, device='cuda'), torch.randint(0, ROWS, (batch, TABLES), device='cuda'))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **({} if sparse else {'fused': True}))
    labels = torch.randint(0, 2, (batch, 1), device='cuda').float()
    criterion = torch.nn.BCEWithLogitsLoss()
    run = (torch.compile(model) if mode.startswith('compiled') else
           torch.compile(model, mode='reduce-overhead') if mode.startswith('graphs') else model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cuda', dtype=torch.bfloat16, enabled=mode.endswith('bf16')):
            loss = criterion(run(*inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(WARMUP):
        loss = step()
    torch.cuda.synchronize()
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
    return {'what': 'torch', 'model': name, 'batch': batch, 'mode': mode, 'sparse': sparse, 'ms': ms,
            'ms_min': min(times), 'ms_max': max(times), 'examples_per_second': 1e3 * batch / ms,
            'loss': float(loss.detach()), 'peak_bytes': torch.cuda.max_memory_allocated(),
            'torch': torch.__version__, 'gpu': torch.cuda.get_device_name()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--models', default='ncf,dlrm', help='comma-separated')
    parser.add_argument('--batches', help='comma-separated; default: 1024,65536 for ncf, 2048,32768 for dlrm')
    parser.add_argument('--modes', default=','.join(MODES), help='comma-separated')
    parser.add_argument('--steps', type=int, default=30, help='timed steps')
    parser.add_argument('--sparse', action='store_true', help='sparse gradients of tables')
    options = parser.parse_args()
    for mode in options.modes.split(','):
        if mode not in MODES:
            parser.error(f'unknown mode {mode}; known: {", ".join(MODES)}')
    for name in options.models.split(','):
        batches = options.batches or {'ncf': '1024,65536', 'dlrm': '2048,32768'}.get(name)
        if batches is None:
            parser.error(f'unknown model {name}; known: ncf, dlrm')
        for batch, mode in itertools.product(map(int, batches.split(',')), options.modes.split(',')):
            print(json.dumps(measure(name, batch, mode, options.steps, options.sparse)), flush=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
