#!/usr/bin/env python3
"""CIFAR-10 in PyTorch: resnet18, batch 128, 30 epochs of one cycle (peak learning rate 0.2), everything on the GPU.

DATA is a folder with the binary version of CIFAR-10 (data_batch_1.bin to _5.bin, test_batch.bin), or one that holds
such a cifar-10-batches-bin; or with train_images.npy, train_labels.npy, test_images.npy, test_labels.npy, images as
bytes (n,3,32,32). One JSON line an epoch, and one at the end with the test accuracy and the seconds of training
(without tests; for compiled modes the first step, which compiles, is told apart). graphs-amp compiles with CUDA graphs
(reduce-overhead).
"""

import argparse
import json
import os
import sys
import time

import numpy as np

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
MODES = ['tf32', 'amp', 'compiled-amp', 'graphs-amp']
RECORD = 1 + 3 * 32 * 32


def load(folder):
    """((images, labels) of training, the same of the test), images (n,3,32,32) bytes."""
    inner = os.path.join(folder, 'cifar-10-batches-bin')
    folder = inner if os.path.isdir(inner) else folder
    if os.path.exists(os.path.join(folder, 'train_images.npy')):
        return [tuple(np.load(os.path.join(folder, f'{part}_{kind}.npy')) for kind in ('images', 'labels'))
                for part in ('train', 'test')]

    def read(names):
        raw = [np.fromfile(os.path.join(folder, name), np.uint8).reshape(-1, RECORD) for name in names]
        rows = np.concatenate(raw)
        return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)

    return read([f'data_batch_{i}.bin' for i in range(1, 6)]), read(['test_batch.bin'])


def train(options, mode):
    import torch
    import torch.nn.functional as F
    from torch_models import make

    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    mean, deviation = (torch.tensor(v, device='cuda').view(1, 3, 1, 1) for v in (MEAN, DEVIATION))

    def on_gpu(images, labels):
        x = torch.from_numpy(np.ascontiguousarray(images)).cuda().float() / 255
        return (x - mean) / deviation, torch.from_numpy(labels.astype(np.int64)).cuda()

    (x, y), (x_test, y_test) = (on_gpu(*part) for part in load(options.data))
    # Zero before normalising, as in the usual recipe.
    border = ((0 - mean) / deviation).expand(1, 3, 40, 40)
    padded = border.repeat(len(x), 1, 1, 1)
    padded[:, :, 4:36, 4:36] = x

    model = make('resnet18').cuda().to(memory_format=torch.channels_last)
    run = (torch.compile(model) if mode == 'compiled-amp' else
           torch.compile(model, mode='reduce-overhead') if mode == 'graphs-amp' else model)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)
    steps = len(x) // options.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps * options.epochs,
                                                   cycle_momentum=False)
    line = torch.arange(32, device='cuda')

    def augmented(index):
        """Crops from the padded images, half of them mirrored."""
        n = len(index)
        top, left = torch.randint(0, 9, (2, n), device='cuda')
        columns = left[:, None] + line
        columns = torch.where(torch.rand(n, 1, device='cuda') < 0.5, columns.flip(1), columns)
        rows = top[:, None] + line
        images = padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # (n, 32, 32, 3)
        return images.permute(0, 3, 1, 2)  # channels last already

    def autocast():
        return torch.autocast('cuda', dtype=torch.bfloat16, enabled=mode != 'tf32')

    def accuracy():
        model.eval()
        right = 0
        with torch.no_grad(), autocast():
            for begin in range(0, len(x_test), 1000):
                piece = x_test[begin:begin + 1000].to(memory_format=torch.channels_last)
                right += int((model(piece).argmax(1) == y_test[begin:begin + 1000]).sum())
        model.train()
        return right / len(x_test)

    model.train()
    spent, first = 0.0, None
    for epoch in range(options.epochs):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        order, total = torch.randperm(len(x), device='cuda'), torch.zeros((), device='cuda')
        for i in range(steps):
            index = order[i * options.batch:(i + 1) * options.batch]
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                loss = F.cross_entropy(run(augmented(index)), y[index])
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
            if first is None:
                torch.cuda.synchronize()
                first = time.perf_counter() - begin
        torch.cuda.synchronize()
        spent += time.perf_counter() - begin
        tested = accuracy() if epoch + 1 == options.epochs or options.test_every_epoch else None
        print(json.dumps({'mode': mode, 'epoch': epoch + 1, 'loss': float(total) / steps, 'accuracy': tested,
                          'seconds': spent}), flush=True)
    print(json.dumps({'what': 'torch-cifar', 'mode': mode, 'epochs': options.epochs, 'batch': options.batch,
                      'seed': options.seed, 'accuracy': tested, 'seconds': spent, 'first_step_seconds': first,
                      'peak_bytes': torch.cuda.max_memory_allocated(), 'torch': torch.__version__}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('data', metavar='DATA')
    parser.add_argument('--modes', default=','.join(MODES), help='comma-separated')
    parser.add_argument('--epochs', type=int, default=30)
    parser.add_argument('--batch', type=int, default=128)
    parser.add_argument('--lr', type=float, default=0.2, help='at the peak of the cycle')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--test-every-epoch', action='store_true')
    options = parser.parse_args()
    for mode in options.modes.split(','):
        if mode not in MODES:
            parser.error(f'unknown mode {mode}; known: {", ".join(MODES)}')
        train(options, mode)
    return 0


if __name__ == '__main__':
    sys.exit(main())
