#!/usr/bin/env python3
"""Five disjoint fifths of CIFAR-10's training images, for experiments/claims/fifths.toml.

Usage: fifths.py DATA OUT

DATA holds cifar-10-batches-bin. Writes OUT/fifth1 to OUT/fifth5, each with a cifar-10-batches-bin whose training files
all hold the same fifth, 10,000 images with 1,000 of every class: a fifth five times over, as the format has 50,000
records. The n-th image of a class goes to fifth n modulo 5. The test set is the whole one.
"""

import os
import shutil
import sys

RECORD = 3073  # a label and 32x32 pixels of three colours
FOLDER = 'cifar-10-batches-bin'


def deal(records):
    """Five lists of records, dealt in turn within each class."""
    fifths = [[] for _ in range(5)]
    seen = {}
    for record in records:
        count = seen.get(record[0], 0)
        seen[record[0]] = count + 1
        fifths[count % 5].append(record)
    return fifths


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    data, out = sys.argv[1:]
    records = []
    for index in range(1, 6):
        with open(os.path.join(data, FOLDER, f'data_batch_{index}.bin'), 'rb') as file:
            content = file.read()
        records += [content[at:at + RECORD] for at in range(0, len(content), RECORD)]
    for number, fifth in enumerate(deal(records), 1):
        folder = os.path.join(out, f'fifth{number}', FOLDER)
        os.makedirs(folder, exist_ok=True)
        for index in range(1, 6):
            with open(os.path.join(folder, f'data_batch_{index}.bin'), 'wb') as file:
                file.write(b''.join(fifth))
        for name in 'test_batch.bin', 'batches.meta.txt':
            if os.path.exists(os.path.join(data, FOLDER, name)):
                shutil.copy(os.path.join(data, FOLDER, name), folder)


if __name__ == '__main__':
    main()
