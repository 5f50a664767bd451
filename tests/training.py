"""What the end-to-end tests share: running ulp, folders, and reading what a run leaves behind."""

import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

ULP = None
SECONDS = 600  # no single command may take longer
# For main: on a busy machine OpenMP's barriers cost more than the models of these tests.
ONE_THREAD = {'OMP_NUM_THREADS': '1'}

TIMED = {'seconds', 'examples_per_second', 'rss_start_bytes', 'rss_peak_bytes'}
FILES = ['best.safetensors', 'config.toml', 'last.safetensors', 'metrics.jsonl']

NARROW_FILES = ['best.safetensors', 'config.toml', 'last.safetensors', 'metrics.jsonl', 'ranges.bin']

SYNTHETIC = ['train', '--data', 'synthetic', '--image-shape']
# 2181 weights, 4 steps an epoch: a run is over in a blink.
TINY = [*SYNTHETIC, '1x8x8', '--model', 'mlp', '--width', '0.1', '--subset', '64', '--batch', '16']
# Half a second to a second of training, 32 steps an epoch with a short last batch; the learning
# rate moves all the time.
LENET = [*SYNTHETIC, '1x20x20', '--model', 'lenet', '--subset', '1000', '--batch', '32', '--epochs', '6', '--augment',
         'crop:2+flip', '--lr', '0.03', '--checkpoint-every', '5']


def over(args, *more):
    """A command with some of its flags replaced: each may be given once, and epochs exclude steps."""
    gone = {*more, *(['--epochs'] if '--steps' in more else [])}
    kept = [word for flag, value in zip(args[1::2], args[2::2]) if flag not in gone for word in (flag, value)]
    return [args[0], *kept, *more]


def start(*args, env=None, **popen):
    popen = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True, **popen}
    return subprocess.Popen([ULP, *args], env={**os.environ, **(env or {})}, **popen)


def run(*args, **popen):
    with start(*args, **popen) as child:
        try:
            out, err = child.communicate(timeout=SECONDS)
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(args, child.returncode, out, err)


def read(path):
    with open(path, 'rb') as file:
        return file.read()


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file:
        file.write(data)


def listed(folder):
    """The files of a run's folder in order, but for its lock."""
    return sorted(name for name in os.listdir(folder) if name != '.lock')


def content(folder):
    """Every file of a folder with its bytes and time of change."""
    return {name: (read(os.path.join(folder, name)), os.stat(os.path.join(folder, name)).st_mtime_ns)
            for name in os.listdir(folder)}


def metrics(folder):
    return [json.loads(line) for line in read(os.path.join(folder, 'metrics.jsonl')).decode().splitlines()]


def column(folder, event, key):
    return [line[key] for line in metrics(folder) if line['event'] == event]


def untimed(folder):
    return [{key: value for key, value in line.items() if key not in TIMED} for line in metrics(folder)]


def tensors(path):
    """The fp32 tensors of a checkpoint, and its metadata."""
    data = read(path)
    length, = struct.unpack_from('<Q', data)
    header = json.loads(data[8:8 + length])
    metadata = header.pop('__metadata__')
    found = {}
    for name, entry in header.items():
        begin, end = entry['data_offsets']
        assert entry['dtype'] == 'F32', name
        found[name] = np.frombuffer(data, '<f4', (end - begin) // 4, 8 + length + begin).reshape(entry['shape'])
    return found, metadata


def fields(message):
    """(number, value) of a protocol buffer message; bytes of what has a length."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(message):
        head = varint()
        if head & 7 == 0:
            yield head >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(head & 7) or varint()
        yield head >> 3, message[at:at + size]
        at += size


def event_scalars(event):
    """[(tag, step, value)] of an event of TensorBoard."""
    parts = dict(fields(event))
    if 5 not in parts:
        return []
    value = dict(fields(dict(fields(parts[5]))[1]))
    return [(value[1].decode(), parts.get(2, 0), struct.unpack('<f', value[2])[0])]


def run_scalars(folder):
    """Every scalar of all of TensorBoard's files of a run, which must be whole, in order."""
    found = []
    for name in sorted(os.listdir(folder)):
        if not name.startswith('events.'):
            continue
        data, at = read(os.path.join(folder, name)), 0
        while at < len(data):
            size, = struct.unpack_from('<Q', data, at)
            found += event_scalars(data[at + 12:at + 12 + size])
            at += 16 + size
        assert at == len(data), name
    return sorted(found)


class UlpCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def good(self, *args, **popen):
        done = run(*args, **popen)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, '')
        return done.stdout

    def bad(self, *args, says=(), printed=False, **popen):
        """Exit 2, one line on stderr that names the fault, nothing on stdout unless it may have printed before."""
        done = run(*args, **popen)
        self.assertEqual(done.returncode, 2, (args, done.stderr))
        self.assertRegex(done.stderr, r'\Aulp: [^\n]+\n\Z', args)
        if not printed:
            self.assertEqual(done.stdout, '')
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, done.stderr)
        return done


class TrainCase(UlpCase):
    def train(self, name, *args, **popen):
        self.good(*args, '--out', self.path(name), **popen)
        return self.path(name)

    def same_run(self, one, other, files=FILES):
        """Weights byte for byte, metrics but for what a clock says; temporary files of killed processes aside."""
        for folder in [one, other]:
            names = {name for name in os.listdir(folder) if not name.startswith('.ulp-') and name != '.lock'}
            self.assertEqual(sorted(names), files)
        self.assertEqual(untimed(one), untimed(other))
        for name in files:
            if name not in ['config.toml', 'metrics.jsonl']:
                self.assertEqual(read(os.path.join(one, name)), read(os.path.join(other, name)), name)

    def stop(self, how, steps, *args):
        """Sends a signal once so many steps have been written; returns the process and what it printed."""
        path = os.path.join(args[args.index('--out' if '--out' in args else '--resume') + 1], 'metrics.jsonl')
        # At least one of its own: before that it may not be listening yet.
        with contextlib.suppress(FileNotFoundError):
            steps = max(steps, read(path).count(b'"event":"step"') + 1)
        child = start(*args)
        until = time.monotonic() + SECONDS
        while child.poll() is None and time.monotonic() < until:
            with contextlib.suppress(FileNotFoundError):
                if read(path).count(b'"event":"step"') >= steps:
                    break
            time.sleep(0.002)
        child.send_signal(how)
        out, err = child.communicate(timeout=SECONDS)
        return child, out, err


def main(environment=None):
    """Runs the tests of a script whose first argument is ulp; the environment is for every command of theirs."""
    global ULP
    ULP = os.path.abspath(sys.argv.pop(1))
    os.environ.update(environment or {})
    unittest.main()
