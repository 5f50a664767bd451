#!/usr/bin/env python3
"""How far the losses of runs lie apart: loss_gap.py CPU1 CPU2 GPU, three folders of runs with the same steps.

Prints the largest and the mean distance between the smoothed losses of the first two, and of the first and the third.
Exit 1 if the mean distance of the third is more than twice that of the second.
"""
import json
import sys


def smoothed(folder, keep=0.9):
    values, mean = [], None
    with open(folder + "/metrics.jsonl") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] != "step":
                continue
            mean = event["loss"] if mean is None else keep * mean + (1 - keep) * event["loss"]
            values.append(mean)
    return values


def gap(a, b):
    apart = [abs(x - y) for x, y in zip(a, b)]
    return max(apart), sum(apart) / len(apart)


def main():
    one, two, gpu = (smoothed(folder) for folder in sys.argv[1:4])
    if not len(one) == len(two) == len(gpu):
        sys.exit("loss_gap: the runs have different numbers of steps")
    threads, devices = gap(one, two), gap(one, gpu)
    print(f"steps {len(one)}, last smoothed loss {one[-1]:.4f} {two[-1]:.4f} {gpu[-1]:.4f}")
    print(f"1 and 2 threads: largest gap {threads[0]:.5f}, mean {threads[1]:.5f}")
    print(f"CPU and GPU:     largest gap {devices[0]:.5f}, mean {devices[1]:.5f}, {devices[1] / threads[1]:.2f} times")
    sys.exit(0 if devices[1] <= 2 * threads[1] else 1)


if __name__ == "__main__":
    main()
