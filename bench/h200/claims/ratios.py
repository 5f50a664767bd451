#!/usr/bin/env python3
"""R* of every setting: the smallest tenth R for which `size:R` is planned to store at least twice the share of elements
low that `op` does.

Usage: ratios.py ULP [FILE.toml...]

Prints a line a setting. For files of experiments/claims it checks that a grid with size:R below 1 on 30 or 200 epochs
has the R* of its setting, and exits 1 where one has not.
"""

import json
import subprocess
import sys
import tomllib

MODELS = ('squeezenet', 'resnet18', 'shufflenetv2', 'mobilenetv2')
SETTINGS = [(model, data, width) for model in MODELS
            for data, width in (('cifar10', 1), ('cifar100', 1), ('cifar100', 0.25))]
CLASSES = {'cifar10': 10, 'cifar100': 100}


def low(ulp, model, data, width, policy):
    """The planned share of elements that are stored low, in percent."""
    command = [ulp, 'plan', '--model', model, '--width', str(width), '--classes', str(CLASSES[data]), '--policy',
               policy, '--json']
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)['low_ratio_percent']


def smallest(op, by_tenth):
    """The smallest tenth whose share is at least twice op's, as written in a policy; by_tenth: shares of R = 0.1,
    0.2, ..., 1."""
    for tenth, share in enumerate(by_tenth, 1):
        if share >= 2 * op:
            return f'{tenth / 10:g}'
    return None


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ulp = sys.argv[1]
    chosen = {}
    for setting in SETTINGS:
        op = low(ulp, *setting, 'op')
        shares = [low(ulp, *setting, f'size:{tenth / 10:g}') for tenth in range(1, 11)]
        chosen[setting] = smallest(op, shares)
        share = shares[round(float(chosen[setting]) * 10) - 1]
        model, data, width = setting
        print(f'{model:13} {data:8} width {width:<4}  op {op:5.2f}%  R* {chosen[setting]}  size:R* {share:5.2f}%  '
              f'ratio {share / op:.2f}')
    wrong = 0
    for path in sys.argv[2:]:
        with open(path, 'rb') as file:
            content = tomllib.load(file)
        for grid in content['grid']:
            policies = grid['policy'] if isinstance(grid['policy'], list) else [grid['policy']]
            if 'fp32' not in policies or not isinstance(grid.get('model'), str) or 'data_dir' in grid:
                continue
            below = [policy for policy in policies if policy.startswith('size:') and policy != 'size:1']
            setting = (grid['model'], grid['data'], grid['width'])
            if below and below != [f'size:{chosen[setting]}']:
                print(f'{path}: grid {grid["name"]} has {below}, R* is {chosen[setting]}')
                wrong = 1
    return wrong


if __name__ == '__main__':
    sys.exit(main())
