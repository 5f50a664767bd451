#!/usr/bin/env python3
"""A Markdown table of the JSON lines that `ulp bench step --json` and torch_step.py print: a row a model and batch, a
column a policy or mode.

Usage: table.py FILE...
"""

import json
import sys


def columns_of(lines, ours):
    """The names in the order they were measured first."""
    return list(dict.fromkeys(name for (_, name, is_ours) in lines if is_ours == ours))


def read(paths):
    """{(model and batch, column, whether it is ulp's): measurement}; a later line holds over an earlier one."""
    found = {}
    for path in paths:
        with open(path, encoding='utf-8') as file:
            for line in filter(str.strip, file):
                entry = json.loads(line)
                if 'model' not in entry or 'ms' not in entry:
                    continue
                ours = 'policy' in entry
                name = entry['policy'] if ours else entry['mode']
                if ours and entry.get('update', 'default') != 'default':
                    name += ' ' + entry['update']
                if ours and entry.get('fused_backward'):
                    name += ' fused'
                found[((entry['model'], entry['batch']), name, ours)] = entry
    return found


def table(found, title, cell):
    rows = list(dict.fromkeys(row for row, _, _ in found))
    columns = [(name, ours) for ours in (True, False) for name in columns_of(found, ours)]
    lines = [['model', 'batch', *(f'{"ulp" if ours else "torch"} {name}' for name, ours in columns)]]
    for row in rows:
        cells = [found.get((row, name, ours)) for name, ours in columns]
        lines.append([row[0], str(row[1]), *('-' if entry is None else cell(entry) for entry in cells)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ['| ' + ' | '.join(word.ljust(width) for word, width in zip(line, widths)) + ' |' for line in lines]
    text.insert(1, '|' + '|'.join('-' * (width + 2) for width in widths) + '|')
    return f'{title}\n\n' + '\n'.join(text) + '\n'


def peak(entry):
    size = entry.get('allocated_peak_bytes', entry.get('peak_bytes'))
    return '-' if size is None else f'{size / 2**20:.0f}'


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = read(sys.argv[1:])
    if not found:
        print('nothing was measured')
        return
    print(table(found, 'Median of a step, ms', lambda entry: f'{entry["ms"]:.2f}'))
    print(table(found, 'Peak of allocated bytes, MiB', peak))


if __name__ == '__main__':
    main()
