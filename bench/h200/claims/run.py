#!/usr/bin/env python3
"""Makes the runs of experiments/claims on a machine with a GPU, as many as fit in a time, and packs their logs.

Usage: run.py --bin DIR --data DIR --out DIR --seconds N [options] FILE...

A .toml FILE is one of `ulp sweep`; its runs have the same names. A .txt FILE has a command of ulp a line, `NAME:
ARGUMENTS`, OUT standing for a folder, or `NAME SECONDS: ARGUMENTS` with what it is expected to take; these have the
machine to themselves. Every run with the first seed comes before any with the second; within a seed the order is that
of the files.

A run starts when it is expected to end before the time is up, by what runs of its kind took so far, or by careful
guesses. If the next does not fit, a shorter one behind it may. With --cut runs start anyway, and those that still run
when the time is up are stopped and saved: the same command with the same --work goes on with them.

Finished runs are packed into one archive in --out, written anew after each: MANIFEST.json, and of each run config.toml,
metrics.jsonl and log.txt. Runs that stand in an archive of --done, or were packed from the same --work before, are not
made again, whatever file they are in.
"""

import argparse
import datetime
import hashlib
import io
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
KNOWN = {'model', 'data', 'policy', 'optimizer', 'candidates', 'schedule'}  # in names these stand for themselves
RESERVE = 12      # seconds before the end in which nothing runs: stopping, packing
START = 4         # seconds a run takes to start: the process, its data
# Seconds of 30 epochs of 50,000 images alone on an H200, under a narrow policy; of dlrm, of 30 times
# ten million rows.
ALONE = {'resnet18': 45, 'mobilenetv2': 70, 'shufflenetv2': 60, 'squeezenet': 30, 'resnet20': 25, 'resnet32': 40,
         'resnet50-cifar': 60, 'dlrm': 1800}
FACTOR = {'exact': 4.0, 'fp32': 1.6, 'amp': 1.0, 'fpu16': 1.3, 'narrow': 1.1, 's2fp8': 4.0}
UPDATE = 1.7      # times, where an update rule is given
SUMS = 40         # times, where sums are rounded term by term
TOGETHER = {1: 1.0, 2: 1.6, 3: 2.1}  # how many times one run's work so many do at once; 2.5 from four on


def text_of(value):
    return (str(value).lower() if isinstance(value, bool) else f'{value:.12g}' if isinstance(value, float)
            else str(value))


class Job:
    """One run: its name, the file it is of, its options (None: a command), its arguments."""

    def __init__(self, file, name, options=None, command=None, seconds=60):
        self.file, self.name, self.options, self.command = os.path.basename(file), name, options, command
        self.seconds = seconds
        what = (command if options is None
                else sorted((key, text_of(value)) for key, value in options.items() if key != 'device'))
        self.key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]

    def alone(self):
        return self.options is None

    def kind(self):
        """Runs of a kind take the same time an epoch."""
        if self.alone():
            return self.name
        get = self.options.get
        policy = get('policy', 'fp32').split(':')[0]
        policy = policy if policy in ('fp32', 'amp', 'fpu16', 's2fp8') else 'narrow'
        if policy == 'fp32' and not get('tf32', False):
            policy = 'exact'
        return ' '.join(map(text_of,
                            (get('model', 'resnet20'), get('width', 1), get('batch', 128), get('data', ''), policy,
                             'updates' if get('update', 'master') != 'master' else '-',
                             get('accumulator', 'fp32'))))

    def guess(self):
        """Seconds an epoch, alone, before anything of this kind was measured."""
        if self.alone():
            return self.seconds
        model, _, batch, _, policy, update, sums = self.kind().split(' ')
        seconds = ALONE.get(model, 60) / 30 * FACTOR[policy]
        return (seconds * (0.9 if float(batch) > 128 else 1) * (UPDATE if update == 'updates' else 1)
                * (1 if sums == 'fp32' else SUMS))

    def epochs(self):
        return 1 if self.alone() else self.options.get('epochs', 10)


def part(key, value):
    """What stands in a folder's name for a value, as in `ulp sweep`."""
    text = text_of(value)
    text = 's' + text if key == 'seed' else text if key in KNOWN else f'{key}_{text}'
    return re.sub(r'[^A-Za-z0-9_+.-]', '_', text)


def expand(path, seeds=None):
    """The runs of a file, in the order of `ulp sweep`. seeds: these instead of those in the file."""
    with open(path, 'rb') as file:
        content = tomllib.load(file)
    jobs = []
    for grid in content['grid']:
        if seeds is not None:
            grid['seed'] = seeds
        axes = [key for key, value in grid.items() if isinstance(value, list)]
        for values in itertools.product(*(grid[key] for key in axes)):
            options = {**content.get('base', {}), **{key: value for key, value in grid.items() if key != 'name'},
                       **dict(zip(axes, values))}
            name = '-'.join(part(key, value) for key, value in zip(axes, values)) or 'run'
            jobs.append(Job(path, f'{grid["name"]}/{name}', options))
    return jobs


def commands(path):
    with open(path, encoding='utf-8') as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith('#')]
    jobs = []
    for line in lines:
        name, seconds, command = re.fullmatch(r'([A-Za-z0-9._-]+)(?: +(\d+))?: *(.*)', line).groups()
        jobs.append(Job(path, 'lab/' + name, command=command, seconds=int(seconds or 60)))
    return jobs


def ordered(jobs):
    """First seeds first; of equal runs the first."""
    jobs = sorted(jobs, key=lambda job: -1 if job.alone() else job.options.get('seed', 0))
    first = {}
    for job in jobs:
        first.setdefault(job.key, job)
    return list(first.values())


class Times:
    """What runs took, and so what they will take."""

    def __init__(self):
        self.alone = {}

    def share(self, jobs):
        return jobs / TOGETHER.get(jobs, 2.5)

    def add(self, kind, epochs, seconds, jobs):
        self.alone.setdefault(kind, []).append(max(seconds - START, 0.01) / epochs / self.share(jobs))

    def expect(self, job, jobs):
        seen = self.alone.get(job.kind())
        an_epoch = max(seen[-4:]) * 1.1 if seen else job.guess()
        return START + an_epoch * job.epochs() * (1 if job.alone() else self.share(jobs))


def thin(text, every):
    """A metrics file with one of `every` steps, and all that is not an ordinary step."""
    kept = []
    for line in text.splitlines(keepends=True):
        if line.startswith('{"event":"step"') and every > 1:
            step = json.loads(line)
            ordinary = not step['skipped'] and not isinstance(step['loss'], str) and 'cancelled_by_weight' not in step
            if ordinary and step['step'] % every != 0 and step['step'] != 1:
                continue
        kept.append(line)
    return ''.join(kept)


def device_name(device):
    if device == 'cuda':
        found = subprocess.run(['nvidia-smi', '--query-gpu=name', '--format=csv,noheader'], capture_output=True,
                               text=True, check=False)
        return found.stdout.strip() or 'cuda'
    with open('/proc/cpuinfo', encoding='utf-8') as file:
        return next((line.split(':', 1)[1].strip() for line in file if line.startswith('model name')), 'cpu')


class Runner:
    def __init__(self, args, jobs, times):
        self.args, self.waiting, self.times = args, jobs, times
        self.began = time.monotonic()
        self.end = self.began + args.seconds - RESERVE
        self.running, self.entries, self.failed, self.files = {}, [], [], {}
        self.stopping = False
        self.busy, self.busy_since = 0.0, None
        stamp = datetime.datetime.now(datetime.timezone.utc)
        self.archive = os.path.join(args.out, f'claims-{stamp:%Y%m%d-%H%M%S}.tar.xz')
        self.started = f'{stamp:%Y-%m-%d %H:%M:%S} UTC'
        self.device = device_name(args.device)
        self.notes = read_notes(args.work)

    def folder(self, job):
        return os.path.join(self.args.work, job.name)

    def train(self, job):
        """The command of a run."""
        ulp = os.path.join(self.args.bin, 'ulp')
        folder = self.folder(job)
        if job.alone():
            words = [folder if word == 'OUT' else self.args.device if word == 'cuda' else word
                     for word in shlex.split(job.command)]
            return [ulp, *words]
        if os.path.exists(os.path.join(folder, 'last.safetensors')):
            return [ulp, 'train', '--resume', folder]
        options = {**job.options, 'device': self.args.device, 'out': folder,
                   'threads': job.options.get('threads', max(1, (os.cpu_count() or 1) // self.args.jobs))}
        if not str(options.get('data')).startswith('synthetic') and self.args.data:
            options['data_dir'] = os.path.join(self.args.data, options.get('data_dir', ''))
        command = [ulp, 'train']
        for key, value in options.items():
            if value is True:
                command.append('--' + key.replace('_', '-'))
            elif value is not False:
                command += ['--' + key.replace('_', '-'), text_of(value)]
        return command

    def planned_low(self, job):
        """The share of elements that the policy plans to store low, in percent."""
        get = job.options.get
        if re.match('fp32|amp|fpu16', get('policy', 'fp32')):
            return None
        command = [os.path.join(self.args.bin, 'ulp'), 'plan', '--json', '--classes',
                   '100' if get('data') == 'cifar100' else '10']
        for key in ('task', 'model', 'width', 'batch', 'policy', 'candidates', 'hi', 'lo', 'lo_grad', 'weight_grad',
                    'formats'):
            if key in job.options:
                command += ['--' + key.replace('_', '-'), text_of(get(key))]
        command += ['--keep-first-last'] if get('keep_first_last') else []
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return json.loads(found.stdout)['low_ratio_percent'] if found.returncode == 0 else None

    def start(self, job):
        folder = self.folder(job)
        os.makedirs(folder if job.alone() else os.path.dirname(folder), exist_ok=True)
        log = open(folder + '.log', 'a', encoding='utf-8')
        command = self.train(job)
        print(f'[{time.monotonic() - self.began:6.1f}] starts {job.name}, '
              f'{self.times.expect(job, self.args.jobs):.0f} s expected', flush=True)
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.running[process] = (job, time.monotonic(), log)
        if self.busy_since is None:
            self.busy_since = time.monotonic()

    def fits(self, job):
        if self.args.cut and not job.alone():
            return time.monotonic() + 2 * START < self.end
        return time.monotonic() + self.times.expect(job, self.args.jobs) < self.end

    def start_some(self):
        while self.waiting and len(self.running) < self.args.jobs and not self.stopping:
            if any(job.alone() for job, _, _ in self.running.values()):
                return
            chosen = next((job for job in self.waiting if self.fits(job)), None)
            if chosen is None or (chosen.alone() and self.running):
                return
            self.waiting.remove(chosen)
            self.start(chosen)

    def reap(self):
        for process in [process for process in self.running if process.poll() is not None]:
            job, began, log = self.running.pop(process)
            log.close()
            seconds = time.monotonic() - began
            if not self.running:
                self.busy += time.monotonic() - self.busy_since
                self.busy_since = None
            self.finish(job, process.returncode, seconds)

    def finish(self, job, code, seconds):
        folder = self.folder(job)
        whole = code == 0 and (job.alone() or self.is_done(folder))
        earlier = self.notes['seconds']  # of runs that were stopped and go on
        resumed = job.key in earlier
        total = earlier.pop(job.key, 0) + seconds
        if whole:
            if not resumed:
                self.times.add(job.kind(), job.epochs(), seconds, 1 if job.alone() else self.args.jobs)
            entry = {'name': job.name, 'file': job.file, 'key': job.key, 'seconds': round(total, 2),
                     'jobs': 1 if job.alone() else self.args.jobs,
                     'kind': 'lab' if job.alone() else 'train', 'options': job.options or {},
                     'command': job.command or ''}
            self.keep(job, entry)
            self.entries.append(entry)
            self.notes['packed'].append(job.key)
        elif self.stopping or self.is_begun(folder):
            earlier[job.key] = total
        if not whole and not self.stopping:
            with open(folder + '.log', encoding='utf-8', errors='replace') as file:
                self.failed.append({'name': job.name, 'key': job.key, 'code': code,
                                    'said': self.without_paths(file.read()[-600:])})
        word = 'done' if whole else 'stopped' if self.stopping else f'FAILED ({code})'
        print(f'[{time.monotonic() - self.began:6.1f}] {word} {job.name}, {seconds:.1f} s', flush=True)
        if whole or not self.stopping:
            self.pack()
        self.write_notes()

    def write_notes(self):
        path = os.path.join(self.args.work, 'notes.json')
        with open(path + '.new', 'w', encoding='utf-8') as file:
            json.dump(self.notes, file)
        os.replace(path + '.new', path)

    @staticmethod
    def is_begun(folder):
        return os.path.exists(os.path.join(folder, 'last.safetensors'))

    @staticmethod
    def is_done(folder):
        path = os.path.join(folder, 'metrics.jsonl')
        if not os.path.exists(path):
            return False
        with open(path, 'rb') as file:
            file.seek(max(0, os.path.getsize(path) - 4096))
            return b'"event":"done"' in file.read()

    def keep(self, job, entry):
        """What goes into the archive of a finished run. The paths of this machine do not."""
        folder = self.folder(job)
        with open(folder + '.log', encoding='utf-8', errors='replace') as file:
            log = file.read().replace(folder, job.name)
        self.files[f'{job.name}/log.txt'] = self.without_paths(log)
        if job.alone():
            for name in sorted(os.listdir(folder)):
                if name.endswith('.csv'):
                    with open(os.path.join(folder, name), encoding='utf-8') as file:
                        self.files[f'{job.name}/{name}'] = file.read()
            return
        with open(os.path.join(folder, 'config.toml'), encoding='utf-8') as file:
            config = file.read()
        config = re.sub(r'(?m)^out = .*$', lambda _: f'out = {json.dumps(job.name)}', config)
        config = re.sub(r'(?m)^data_dir = .*$', lambda _: f'data_dir = {json.dumps(job.options.get("data_dir", ""))}',
                        config)
        self.files[f'{job.name}/config.toml'] = config
        with open(os.path.join(folder, 'metrics.jsonl'), 'rb') as file:
            metrics = file.read()
        entry['metrics_sha256'] = hashlib.sha256(metrics).hexdigest()
        entry['planned_low'] = self.planned_low(job)
        self.files[f'{job.name}/metrics.jsonl'] = thin(metrics.decode(), self.args.every)
        if not self.args.keep_weights:
            for name in 'last.safetensors', 'best.safetensors', 'ranges.bin':
                if os.path.exists(os.path.join(folder, name)):
                    os.remove(os.path.join(folder, name))

    def without_paths(self, text):
        for path, name in (self.args.work, 'WORK'), (self.args.data, 'DATA'), (self.args.bin, 'BIN'):
            text = text.replace(os.path.abspath(path), name).replace(path, name) if path not in ('', '.', '/') else text
        return text

    def manifest(self):
        busy = (self.notes['busy'] + self.busy
                + (time.monotonic() - self.busy_since if self.busy_since is not None else 0))
        options = ['--jobs', str(self.args.jobs), '--seconds', f'{self.args.seconds:g}', '--device', self.args.device]
        for name in 'seeds', 'only':
            options += [f'--{name}', getattr(self.args, name)] if getattr(self.args, name) else []
        files = ['experiments/claims/' + os.path.basename(path) for path in self.args.files]
        return {'commit': self.args.commit,
                'command': shlex.join(['run.py', '--bin', 'BIN', '--data', 'DATA', '--out', 'OUT', *options, *files]),
                'device': self.device, 'started': self.started, 'jobs': self.args.jobs, 'busy_s': round(busy, 1),
                'every': self.args.every,
                'runs': self.entries, 'failed': self.failed}

    def pack(self):
        os.makedirs(self.args.out, exist_ok=True)
        files = {'MANIFEST.json': json.dumps(self.manifest(), indent=1) + '\n', **self.files}
        with tarfile.open(self.archive + '.new', 'w:xz', preset=4) as tar:
            for name, content in files.items():
                data = content.encode()
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        os.replace(self.archive + '.new', self.archive)

    def stop(self, *_):
        """Ends all that runs: it saves, and is given a few seconds for that."""
        self.stopping = True
        for process in self.running:
            process.send_signal(signal.SIGTERM)

    def run(self):
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        killed = None
        while True:
            self.start_some()
            if not self.running:
                break
            time.sleep(0.05)
            self.reap()
            if time.monotonic() > self.end and not self.stopping:
                self.stop()
            if self.stopping:
                killed = killed or time.monotonic() + RESERVE / 2
                if time.monotonic() > killed:
                    for process in self.running:
                        process.kill()
        if self.entries or self.failed:
            self.pack()
        busy = self.manifest()['busy_s']
        print(f'{len(self.entries)} runs done, {len(self.failed)} failed, {len(self.waiting)} not begun; busy '
              f'{busy:.0f} of '
              f'{time.monotonic() - self.began:.0f} s'
              + (f'; {os.path.basename(self.archive)}' if self.entries or self.failed else ''), flush=True)
        # What stopped runs took goes into the archive of the call that finishes them.
        self.notes['busy'] = 0 if self.entries or self.failed else busy
        self.write_notes()
        for entry in self.failed:
            print(f'failed: {entry["name"]}: {entry["said"].strip().splitlines()[-1] if entry["said"].strip() else ""}')
        return 1 if self.failed else 0


def read_notes(work):
    """What is known of this working folder from calls before: seconds of stopped runs, packed runs, busy time in no
    archive."""
    path = os.path.join(work, 'notes.json')
    if not os.path.exists(path):
        return {'seconds': {}, 'packed': [], 'busy': 0}
    with open(path, encoding='utf-8') as file:
        return json.load(file)


def manifests(folders):
    for folder in folders:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith('.tar.xz'):
                with tarfile.open(os.path.join(folder, name), 'r:xz') as tar:
                    yield json.load(tar.extractfile('MANIFEST.json'))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('files', nargs='+', metavar='FILE')
    parser.add_argument('--bin', required=True, help='folder of the program ulp')
    parser.add_argument('--data', default='', help='folder that holds the data sets')
    parser.add_argument('--out', required=True, help='where the archive goes')
    parser.add_argument('--work', help='where runs live while they run; OUT/work unless named')
    parser.add_argument('--seconds', type=float, required=True, help='all is over by then')
    parser.add_argument('--jobs', type=int, default=4, help='runs at a time')
    parser.add_argument('--commit', default='unknown', help='the commit that ulp was built from')
    parser.add_argument('--done', action='append',
                        help='folders of archives whose runs are not made again; this script\'s and OUT unless named')
    parser.add_argument('--only', help='of the runs those alone whose name this regular expression finds')
    parser.add_argument('--seeds', help='these seeds instead of those in the files, as 2,3')
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--every', type=int, default=20, help='one of so many ordinary steps is kept in a log; 1: all')
    parser.add_argument('--cut', action='store_true', help='start runs that will not end in time, and stop them')
    parser.add_argument('--keep-weights', action='store_true', help='leave the checkpoints of finished runs in --work')
    parser.add_argument('--dry-run', action='store_true',
                        help='list what would run, and how long that is expected to take')
    args = parser.parse_args()
    args.work = args.work or os.path.join(args.out, 'work')
    seeds = [int(seed) for seed in args.seeds.split(',')] if args.seeds else None
    times, done = Times(), set(read_notes(args.work)['packed'])
    for manifest in manifests(args.done or [HERE, args.out]):
        for entry in manifest['runs']:
            done.add(entry['key'])
            job = Job(entry['file'], entry['name'], entry['options'] or None, entry['command'])
            if manifest['device'] == device_name(args.device):
                times.add(job.kind(), job.epochs(), entry['seconds'], entry['jobs'])
    jobs = [job for path in args.files for job in (commands(path) if path.endswith('.txt') else expand(path, seeds))]
    if args.only:
        jobs = [job for job in jobs if re.search(args.only, job.name)]
    jobs = ordered(jobs)
    left = [job for job in jobs if job.key not in done]
    print(f'{len(jobs)} runs, {len(jobs) - len(left)} of them done before', flush=True)
    if args.dry_run:
        for job in left:
            print(f'  {times.expect(job, args.jobs):6.0f} s  {job.name}')
        print(f'{sum(times.expect(job, args.jobs) for job in left) / args.jobs:.0f} s in all, {args.jobs} at a time')
        return 0
    os.makedirs(args.work, exist_ok=True)
    return Runner(args, left, times).run()


if __name__ == '__main__':
    sys.exit(main())
