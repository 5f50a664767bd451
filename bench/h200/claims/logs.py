"""The logs of the runs, and how their figures are shown in the tables of docs/claims.md."""

import glob
import json
import math
import os
import re
import tarfile
import tomllib

import rules
from rules import NO_RUN, mean

# What a setting is; the rest of a configuration is what is compared within it.
SETTING = ('data', 'data_dir', 'model', 'width', 'epochs', 'batch', 'optimizer', 'lr', 'momentum', 'weight_decay',
           'schedule', 'warmup')
NOT_COMPARED = ('seed', 'out', 'threads', 'checkpoint_every', 'tensorboard')


class Bad(Exception):
    pass


def plain(value):
    """A value as it is compared: 1 and 1.0 and "1" are one, and so are true and "true"."""
    if isinstance(value, bool):
        return value
    try:
        return float(value)
    except ValueError:
        return value


class Run:
    """A finished run, as its log has it. Accuracies in percent."""

    def __init__(self, archive, manifest, entry, config, lines):
        self.archive, self.entry = archive, entry
        self.commit, self.seconds, self.jobs = manifest['commit'], entry['seconds'], entry['jobs']
        self.config = {key: plain(value) for key, value in config.items()}
        for key, value in entry['options'].items():
            if key not in ('device', 'data_dir') and self.config.get(key) != plain(value):
                raise Bad(f'{archive}: {entry["name"]} has {key} = {config.get(key)}, its manifest {value}')
        if self.config['promote'] == 'default':
            narrow = not re.match('fp32|amp|fpu16', self.config['policy'])
            self.config['promote'] = 0.01 if narrow else 'off'
        epochs = [line for line in lines if line['event'] == 'epoch']
        self.done = next((line for line in lines if line['event'] == 'done'), None)
        if self.done is None or len(epochs) != self.config['epochs']:
            raise Bad(f'{archive}: {entry["name"]} is not a whole run')
        metric = epochs[0].get('metric', 'acc')
        accuracies = [100 * float(line[f'test_{metric}']) for line in epochs]
        chosen = epochs[accuracies.index(max(accuracies))]
        self.in_fp32 = 100 * float(chosen.get(f'test_{metric}_fp32', chosen[f'test_{metric}']))
        self.last_ties = epochs[-1].get('test_ties')
        self.best, self.last = max(accuracies), accuracies[-1]
        self.finite = all(math.isfinite(float(line[key])) for line in epochs for key in ('train_loss', 'test_loss'))
        self.low_mean = 100 * mean([line['low_ratio'] for line in epochs])
        self.low_last = 100 * epochs[-1]['low_ratio']
        self.epoch_seconds = epochs[-1]['seconds']
        self.promoted = sum(line['event'] == 'promote' for line in lines)
        self.skipped = sum(line['event'] == 'step' and line['skipped'] for line in lines)
        self.peak = self.done['peak_bytes']
        self.planned_low = entry.get('planned_low')
        self.diverged = False

    def key(self, leave_out=NOT_COMPARED):
        return tuple(sorted((key, value) for key, value in self.config.items() if key not in leave_out))

    def setting(self):
        return tuple(self.config[key] for key in SETTING)

    def pool(self):
        """Whose deviations are taken together."""
        return self.config['data'] + (' fifths' if self.config['data_dir'] else '')

    def is_fp32(self):
        exact = self.config.get('device') == 'cpu'  # which has no other fp32
        return (self.config['policy'] == 'fp32' and self.config['update'] == 'default'
                and (exact or self.config['tf32'] is True))


class Logs:
    def __init__(self, folder):
        self.runs, self.labs, self.archives = [], {}, []
        self.gpu_seconds = 0  # archives of which every run was on a CPU are left out
        for path in sorted(glob.glob(os.path.join(folder, '*.tar.xz'))):
            self.read(path)
        self.judge()

    def read(self, path):
        name = os.path.basename(path)
        files = {}
        with tarfile.open(path, 'r:xz') as tar:
            for member in tar:
                if member.isfile():
                    files[member.name] = tar.extractfile(member).read().decode()
        manifest = json.loads(files['MANIFEST.json'])
        self.archives.append((name, manifest))
        before = len(self.runs)
        for entry in manifest['runs']:
            if entry.get('kind') == 'lab':
                self.labs[entry['name']] = (name, manifest, files[entry['name'] + '/log.txt'])
                continue
            lines = [json.loads(line) for line in files[entry['name'] + '/metrics.jsonl'].splitlines()]
            self.runs.append(Run(name, manifest, entry, tomllib.loads(files[entry['name'] + '/config.toml']), lines))
        made = self.runs[before:]
        if not made or any(run.config.get('device') != 'cpu' for run in made):
            self.gpu_seconds += manifest['busy_s']

    def judge(self):
        """Marks the diverged runs and pools deviations. A configuration and seed stands once, a setting has one
        build."""
        fp32, commits, seen = {}, {}, {}
        for run in self.runs:
            which = run.key(('out', 'threads', 'checkpoint_every', 'tensorboard'))
            if which in seen:
                raise Bad(f'{run.entry["name"]} is in {seen[which]} and in {run.archive}')
            seen[which] = run.archive
            commits.setdefault(run.setting(), set()).add(run.commit)
            if run.is_fp32():
                fp32.setdefault(run.setting(), []).append(run.last)
        for setting, builds in commits.items():
            if len(builds) > 1:
                raise Bad(f'the setting {setting} has runs of more than one build: {", ".join(sorted(builds))}')
        cells = {}
        for run in self.runs:
            last = fp32.get(run.setting())
            run.diverged = rules.diverged(run.finite, run.last, mean(last) if last else None)
            if not run.diverged:
                cells.setdefault(run.pool(), {}).setdefault(run.key(), []).append(run.best)
        self.s = {pool: rules.pooled(list(of_pool.values())) for pool, of_pool in cells.items()}

    def cell(self, **wanted):
        wanted = {key: plain(value) for key, value in wanted.items()}
        return [run for run in self.runs if all(run.config[key] == value for key, value in wanted.items())]


def best(runs):
    return [run.best for run in runs]


def show(runs):
    """Mean, least and most of the best epoch, and the number of seeds."""
    if not runs:
        return NO_RUN
    values = best(runs)
    text = f'{mean(values):.2f}'
    if len(values) > 1:
        text += f' ({min(values):.2f}..{max(values):.2f})'
    lost = sum(run.diverged for run in runs)
    return f'{text}, {len(values)}' + (f', {lost} diverged' if lost else '')


def signed(value, digits=2):
    return '' if value is None else f'{value:+.{digits}f}'


def table(header, rows):
    lines = ['| ' + ' | '.join(header) + ' |', '|' + '---|' * len(header)]
    return '\n'.join(lines + ['| ' + ' | '.join(str(cell) for cell in row) + ' |' for row in rows])
