#!/usr/bin/env python3
"""Makes the tables of docs/claims.md from the logs of the runs, by the rules of that page.

Usage: tables.py [--check] [--logs FOLDER] [--page FILE] [--runs]

Reads every *.tar.xz of FOLDER (this script's own unless named): MANIFEST.json, and of each run config.toml and
metrics.jsonl. Writes what stands between the marks `<!-- claims:NAME -->` and `<!-- /claims:NAME -->` of the page.
--check writes nothing, and exits 1 where the page has something else than the logs give. --runs prints every run as
CSV: its archive, commit, time and figures.
"""

import argparse
import csv
import itertools
import os
import re
import sys
import tomllib

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import rules  # noqa: E402
from dlrm import Dlrm  # noqa: E402
from logs import Bad, Logs, best, show, signed, table  # noqa: E402
from s2fp8 import Ncf, Residual  # noqa: E402
from rules import FAILS, HOLDS, MORE, NO_RUN, NO_WORSE, OPEN, UNDECIDED, WORSE, mean  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
GRIDS = os.path.join(ROOT, 'experiments', 'claims')
MODELS = ('squeezenet', 'resnet18', 'shufflenetv2', 'mobilenetv2')
SETTINGS = [(model, data, width) for model in MODELS
            for data, width in (('cifar10', 1), ('cifar100', 1), ('cifar100', 0.25))]
PAPER_GPU_DAYS = 1081
def ratios():
    """{setting: R*}, as experiments/claims has it."""
    with open(os.path.join(GRIDS, 'claims-1-3-assign.toml'), 'rb') as file:
        grids = tomllib.load(file)['grid']
    return {(grid['model'], grid['data'], grid['width']): policy for grid in grids for policy in grid['policy']
            if isinstance(grid['policy'], list) and policy.startswith('size:') and policy != 'size:1'}


class Assign:
    """Claims 1 to 3: (a) of twelve settings, and what stands around it."""

    def __init__(self, logs):
        self.logs, self.ratios = logs, ratios()

    def cells(self, setting, epochs=30):
        model, data, width = setting

        def cell(policy, **more):
            return self.logs.cell(model=model, data=data, width=width, data_dir='', epochs=epochs, batch=128,
                                  schedule='cosine', tf32=True,
                                  update='default', keep_first_last=False, policy=policy, **more)
        return {'fp32': cell('fp32'), 'op': cell('op', promote='off'), 'op-out': cell('op-out', promote='off'),
                'uniform': cell('uniform', promote='off'), 'size:R*': cell(self.ratios[setting], promote=0.01),
                'size:1': cell('size:1', promote=0.01)}

    def first(self, setting, epochs=30):
        """Claim 1 in a setting: (outcome, verdict, d, h, ratio of low shares)."""
        cells = self.cells(setting, epochs)
        size, op = cells['size:R*'], cells['op']
        verdict, d, h = rules.compare(best(size), best(op), self.logs.s.get(setting[1]), rules.MARGIN[setting[1]])
        ratio = mean([run.low_mean for run in size]) / mean([run.low_mean for run in op]) if size and op else None
        if verdict in (NO_RUN, UNDECIDED):
            outcome = verdict
        elif verdict == MORE:
            outcome = OPEN
        else:
            outcome = HOLDS if verdict == NO_WORSE and ratio > 2 else FAILS
        return outcome, verdict, d, h, ratio

    def second(self, setting):
        """Claim 2 in a setting: (did uniform diverge, did size:1), each None before it is known."""
        cells = self.cells(setting)

        def lost(runs):
            if any(run.diverged for run in runs):
                return True
            return False if len(runs) >= 2 and cells['fp32'] else None
        return lost(cells['uniform']), lost(cells['size:1'])

    def costs(self):
        """Points of the largest aggregate that promotion took, of every run with a threshold of 0.01."""
        return [((run.planned_low - run.low_last) / 2, run)
                for run in self.logs.cell(promote=0.01) if run.planned_low is not None]

    def claim1(self):
        outcomes = [self.first(setting)[0] for setting in SETTINGS]
        verdict = rules.at_least(outcomes, 10)
        ours = NO_RUN if verdict == NO_RUN else (f'{outcomes.count(HOLDS)} of 12 settings hold, '
                                                 f'{outcomes.count(FAILS)} do not, '
                                                 f'{12 - outcomes.count(HOLDS) - outcomes.count(FAILS)} open or not '
                                                 f'decided')
        return ours, verdict

    def claim2(self):
        found = [self.second(setting) for setting in SETTINGS]
        uniform, size = [first for first, _ in found], [second for _, second in found]
        if not any(self.cells(setting)[policy] for setting in SETTINGS for policy in ('uniform', 'size:1')):
            return NO_RUN, NO_RUN
        ours = (f'`uniform` diverged in {uniform.count(True)} settings and not in {uniform.count(False)}, '
                f'`size:1` in {size.count(True)} and not in {size.count(False)}')
        if True in size or 12 - uniform.count(False) < 6:
            return ours, FAILS
        return ours, HOLDS if uniform.count(True) >= 6 and None not in size else OPEN

    def claim3(self):
        costs = self.costs()
        if not costs:
            return NO_RUN, NO_RUN
        worst, run = max(costs, key=lambda item: item[0])
        ours = f'at most {worst:.2f}% in {len(costs)} runs ({run.entry["name"]})'
        whole = all(len(self.cells(setting)[policy]) >= 2 for setting in SETTINGS for policy in ('size:R*', 'size:1'))
        return ours, FAILS if worst >= 3 else HOLDS if whole else OPEN

    def row(self, setting, epochs=30):
        cells = self.cells(setting, epochs)
        _, verdict, d, h, ratio = self.first(setting, epochs)
        if epochs != 30 and verdict == MORE:
            verdict = 'one seed'
        low = {name: f'{mean([run.low_mean for run in runs]):.1f}' if runs else '' for name, runs in cells.items()}
        worst = [item for item, run in self.costs() if run in cells['size:R*'] + cells['size:1']]
        return [setting[0], f'{setting[1]}, width {setting[2]:g}', f'`{self.ratios[setting]}`',
                *(show(cells[name]) for name in ('fp32', 'op', 'uniform', 'size:R*', 'size:1', 'op-out')),
                f'{low["op"]} / {low["size:R*"]} / {low["size:1"]}' if any(low.values()) else '',
                '' if ratio is None else f'{ratio:.2f}',
                signed(d) + (f' ± {h:.2f}' if h is not None else ''), '' if verdict == NO_RUN else verdict,
                f'{max(worst):.2f}' if worst else '']

    HEADER = ['network', 'data', 'R*', 'fp32 (tf32)', '`op`', '`uniform`', '`size:R*`', '`size:1`', '`op-out`',
              'low %: `op` / R* / 1', 'times `op`', '`size:R*` - `op`', 'no worse?', 'promotion, % of aggregate']

    def settings(self):
        return table(self.HEADER, [self.row(setting) for setting in SETTINGS])

    def long(self):
        settings = [(model, 'cifar100', 1) for model in ('squeezenet', 'shufflenetv2')]
        return table(self.HEADER, [self.row(setting, 200) for setting in settings])

    def promotion(self):
        rows = []
        for model in MODELS:
            def cell(policy, **more):
                return show(self.logs.cell(**{'model': model, 'data': 'cifar10', 'data_dir': '', 'width': 1,
                                              'epochs': 30, 'schedule': 'cosine',
                                              'batch': 128, 'keep_first_last': False, 'policy': policy, 'tf32': True,
                                              **more}))
            rows.append([model, *(cell(f'size:{r}', promote=promote) for r in (0.4, 0.7) for promote in ('off', 0.01)),
                         *(cell('size:1', promote=promote) for promote in (0.1, 0.01, 0.001)),
                         cell('uniform', promote='off', keep_first_last=True), cell('fp32', tf32=False)])
        return table(['network', '`size:0.4`, no promotion', 'with', '`size:0.7`, no promotion', 'with',
                      '`size:1`, threshold 0.1', '0.01',
                      '0.001', '`uniform`, first and last high', 'fp32, exact'], rows)

    def fifths(self):
        rows = []
        for policy in ('fp32', 'size:0.2', 'size:0.4', 'size:0.6', 'size:0.8', 'size:1'):
            runs = [run for run in self.logs.cell(policy=policy, model='shufflenetv2', epochs=6)
                    if run.config['data_dir']]
            of_fifth = {run.config['data_dir']: run for run in runs}
            rows.append([f'`{policy}`',
                         *(f'{of_fifth[f"fifth{i}"].best:.2f}' if f'fifth{i}' in of_fifth else NO_RUN
                           for i in range(1, 6)),
                         f'{mean(best(runs)):.2f}' if runs else ''])
        return table(['policy', *(f'fifth {i}' for i in range(1, 6)), 'mean'], rows)


class Orders:
    """Claim 4."""
    CELLS = list(itertools.product(('squeezenet', 'shufflenetv2', 'mobilenetv2'), (0.4, 0.6)))

    def __init__(self, logs):
        self.cells = []
        for model, r in self.CELLS:
            common = {'model': model, 'data': 'cifar100', 'width': 1, 'epochs': 30, 'schedule': 'cosine',
                      'promote': 0.01}
            self.cells.append([[run for run in logs.cell(policy=f'{order}:{r}', **common) if run.config['seed'] < 3]
                               if order != 'random' else
                               [run for k in range(3) for run in logs.cell(policy=f'random:{r}:{k}', **common)]
                               for order in ('size', 'random', 'size-inc')])

    def differences(self):
        """(size - random, random - increasing) of the cells that are whole."""
        whole = [[mean(best(runs)) for runs in cell] for cell in self.cells if all(len(runs) == 3 for runs in cell)]
        return [cell[0] - cell[1] for cell in whole], [cell[1] - cell[2] for cell in whole]

    def claim(self):
        if not any(runs for cell in self.cells for runs in cell):
            return NO_RUN, NO_RUN
        differences = self.differences()
        if len(differences[0]) < len(self.CELLS):
            return f'{len(differences[0])} of 6 cells whole', OPEN
        found = [rules.twice_its_error(values) for values in differences]
        ours = '; '.join(f'{name} {middle:+.2f} ± {error:.2f}' for name, (middle, error, _) in
                         zip(('size - random', 'random - increasing'), found))
        verdicts = [verdict for _, _, verdict in found]
        return ours, FAILS if FAILS in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS

    def table(self):
        rows = [[model, f'{r:g}', *(show(runs) for runs in cell)] for (model, r), cell in zip(self.CELLS, self.cells)]
        return table(['network, CIFAR-100', 'R', '`size`', '`random`, three orders', '`size-inc`'], rows)


class Split:
    """Claim 6. Times are of runs that had the GPU to themselves."""
    ROWS = [('fp32', {'policy': 'fp32'}, '94.64', '42 min', '4720 MB'),
            ('AMP fp16', {'policy': 'amp:fp16'}, '94.04', '24 min', '4520 MB'),
            ('fp16', {'weight': 'fp16', 'update': 'plain'}, '93.79', '23 min', '3840 MB'),
            ('fp16+8', {'weight': 'fp16', 'update': 'extra:8'}, '94.06', '20 min', '3776 MB'),
            ('fp16+13, stochastic', {'weight': 'fp16', 'update': 'extra:13:sr'}, '94.10', '38 min', '3868 MB'),
            ('e5m2', {'weight': 'e5m2', 'update': 'plain'}, '8.78', '', ''),
            ('e5m2+4', {'weight': 'e5m2', 'update': 'extra:4'}, '65.53', '', ''),
            ('e5m2+8', {'weight': 'e5m2', 'update': 'extra:8'}, '93.96', '', '')]

    def __init__(self, logs):
        self.logs = logs
        common = {'batch': 256, 'weight_decay': 2e-4, 'model': 'resnet18', 'data': 'cifar10'}
        self.runs = {name: logs.cell(epochs=200, **common, **what) for name, what, *_ in self.ROWS}
        self.timed = {name: [run for run in logs.cell(epochs=3, **common, **what) if run.jobs == 1]
                      for name, what, *_ in self.ROWS}

    def claims(self):
        verdict, d, h = rules.compare(best(self.runs['fp16+8']), best(self.runs['AMP fp16']),
                                      self.logs.s.get('cifar10'),
                                      rules.NARROW_MARGIN, planned=3)
        ours = NO_RUN if d is None else f'fp16+8 - AMP {d:+.2f}' + (f' ± {h:.2f}' if h is not None else '')
        yield ours, {NO_WORSE: HOLDS, WORSE: FAILS, MORE: OPEN}.get(verdict, verdict)
        for what in (lambda run: run.peak), (lambda run: run.epoch_seconds):
            pair = self.timed['fp16+8'], self.timed['AMP fp16']
            if not all(pair):
                yield NO_RUN, NO_RUN
                continue
            less = 100 * (1 - mean([what(run) for run in pair[0]]) / mean([what(run) for run in pair[1]]))
            yield f'{less:.1f}% less', HOLDS if less >= 16 else FAILS

    def table(self):
        rows = []
        for name, _, accuracy, time, memory in self.ROWS:
            timed = self.timed[name]
            rows.append([name, accuracy, show(self.runs[name]), time,
                         f'{mean([run.epoch_seconds for run in timed]):.2f} s' if timed else NO_RUN,
                         memory, f'{mean([run.peak for run in timed]) / 2**20:.0f} MiB' if timed else NO_RUN])
        return table(['formats', 'paper: accuracy %', 'ours', 'paper: time', 'ours, an epoch', 'paper: memory',
                      'ours, peak'], rows)


class Bf16:
    """Claim 9, by the 350 epochs; the 30 beside it."""
    ROWS = [('fp32', {'policy': 'fp32'}, '95.45 ± 0.07', None),
            ('bf16, plain', {'policy': 'fpu16:bf16', 'update': 'plain'}, '94.23 ± 0.12', WORSE),
            ('bf16, stochastic', {'policy': 'fpu16:bf16', 'update': 'stochastic'}, '95.33 ± 0.08', NO_WORSE),
            ('bf16, Kahan', {'policy': 'fpu16:bf16', 'update': 'kahan'}, '95.36 ± 0.07', NO_WORSE),
            ('bf16 but for fp32 weights', {'policy': 'fpu16:bf16', 'update': 'master'}, '95.40 ± 0.05', NO_WORSE)]
    MORE = [(f'{name}, {rule}', {'policy': f'fpu16:{name}', 'update': rule})
            for name in ('fp16', 'e8m5', 'e8m3', 'e8m1')
            for rule in ('plain', 'stochastic', 'kahan')]

    def __init__(self, logs):
        self.logs = logs

    def cell(self, what, epochs):
        schedule = {350: 'multi-step:150,250:0.1', 30: 'multi-step:13,21:0.1'}[epochs]
        return self.logs.cell(model='resnet18', data='cifar10', epochs=epochs, schedule=schedule, tf32=True, **what)

    def compare(self, what, epochs):
        return rules.compare(best(self.cell(what, epochs)), best(self.cell(self.ROWS[0][1], epochs)),
                             self.logs.s.get('cifar10'),
                             rules.NARROW_MARGIN)

    def claim(self):
        found = [(name, *self.compare(what, 350), wanted) for name, what, _, wanted in self.ROWS[1:]]
        verdict = rules.all_of([item[1] for item in found], [item[4] for item in found])
        return NO_RUN if verdict == NO_RUN else '; '.join(f'{name}: {what}' + (f' ({d:+.2f})' if d is not None else '')
                                                          for name, what, d, _, _ in found), verdict

    def table(self):
        rows = []
        for name, what, paper, wanted in self.ROWS:
            row = [name, paper]
            for epochs in (350, 30):
                verdict, d, h = self.compare(what, epochs) if wanted else (NO_RUN, None, None)
                row += [show(self.cell(what, epochs)), signed(d) + (f' ± {h:.2f}' if h is not None else ''),
                        '' if verdict == NO_RUN else verdict]
            rows.append(row)
        rows += [[name, '', '', '', '', show(self.cell(what, 30)), '', ''] for name, what in self.MORE]
        return table(['formats, update', 'paper %', 'ours, 350 epochs', '- fp32', '', '30 epochs', '- fp32', ''], rows)


class Mpt:
    """Claim 10, its first half."""

    def __init__(self, logs):
        common = {'model': 'resnet18', 'data': 'cifar10', 'data_dir': '', 'width': 1, 'epochs': 30,
                  'schedule': 'cosine', 'batch': 128,
                  'lr': 0.1, 'warmup': 0}
        self.fp32 = logs.cell(policy='fp32', tf32=True, update='default', **common)
        self.rows = [('`amp:fp16`, no scale', 'none', 'default'), ('scale 1024', 1024, 'default'),
                     ('dynamic scale', 'dynamic', 'default'),
                     ('dynamic scale, no master weights', 'dynamic', 'plain')]
        self.cells = [logs.cell(policy='amp:fp16', loss_scale=scale, update=update, **common)
                      for _, scale, update in self.rows]
        self.found = [rules.compare(best(runs), best(self.fp32), logs.s.get('cifar10'), rules.MARGIN['cifar10'])
                      for runs in self.cells]
        small = {'model': 'resnet20', 'data': 'cifar10', 'epochs': 5}
        self.sums = [('resnet20, 5 epochs: fp32', logs.cell(policy='fp32', **small))]
        self.sums += [(f'resnet20, 5 epochs: `amp:fp16`, sums in {sums}',
                       logs.cell(policy='amp:fp16', accumulator=sums, **small))
                      for sums in ('fp32', 'fp16')]

    def claim(self):
        verdict = rules.all_of([item[0] for item in self.found[:3]], [NO_WORSE] * 3)
        return NO_RUN if verdict == NO_RUN else '; '.join(f'{name}: {found[0]}'
                                                          + (f' ({found[1]:+.2f})' if found[1] is not None else '')
                                                          for (name, _, _), found in zip(self.rows[:3],
                                                              self.found)), verdict

    def table(self):
        rows = [['resnet18: fp32', show(self.fp32), '', '']]
        rows += [['resnet18: ' + name, show(runs), signed(d) + (f' ± {h:.2f}' if h is not None else ''),
                  '' if verdict == NO_RUN else verdict]
                 for (name, _, _), runs, (verdict, d, h) in zip(self.rows, self.cells, self.found)]
        return table(['formats', 'ours', '- fp32', 'no worse?'],
                     rows + [[name, show(runs), '', ''] for name, runs in self.sums])


def columns(text, name):
    """The cells of the first row of a printed table that is of `name`."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip('|').split('|')]
        if cells[0] == name:
            return cells
    raise Bad(f'no row of {name} in a log')


def claim5(logs):
    lab = logs.labs.get('lab/memory-profile-2000M')
    if lab is None:
        return NO_RUN, NO_RUN
    less = float(columns(lab[2], 'fp16+8')[5].rstrip('%'))
    return f'{less:.1f}% less', HOLDS if less >= 54 else FAILS


def claim8(logs):
    lab = logs.labs.get('lab/least-squares-bf16')
    if lab is None:
        return NO_RUN, NO_RUN
    weights, passes = (float(columns(lab[2], name)[2]) for name in ('weights', 'forward/backward'))
    return (f'weights {weights:g} times fp32\'s loss, forward and backward {passes:g} times',
            HOLDS if weights >= 10 and passes <= 1.1 else FAILS)


ASSIGN = 'ulp sweep experiments/claims/claims-1-3-assign.toml'
# Number, what the paper says and where, command, which logs: the runs' file or the lab's name.
CLAIMS = [
    ('1', 'Assign, section 5.3 and Figure 4: in 10 of 12 plots, over twice the memory reduction of `op` at a similar '
          'accuracy', ASSIGN,
     'claims-1-3-assign.toml'),
    ('2', 'Assign, section 5.3 and Figure 4: `uniform` loses far more than all others in 6 of 12 plots, as training '
          'diverges; '
     'with all tensors low and promotion it never does', ASSIGN, 'claims-1-3-assign.toml'),
    ('3', 'Assign, sections 4.2 and 5.4: promotion takes less than 3% of the largest model aggregate', ASSIGN,
     'claims-1-3-assign.toml'),
    ('4', 'Assign, section 5.4 and Figure 5: the largest groups first is the best order in nearly all cases, the '
          'smallest first the worst '
     'throughout', 'ulp sweep experiments/claims/claim-4-orders.toml', 'claim-4-orders.toml'),
    ('5', 'Split, Figure 2: 54% less peak memory than mixed precision, a dummy model of two billion parameters',
     'ulp lab memory-profile --parameters 2000M', 'claim-5-memory-profile.txt'),
    ('6, accuracy', 'Split, Table 3: fp16+8 94.06%, AMP 94.04%, resnet18 on CIFAR-10',
     'ulp sweep experiments/claims/claim-6-split.toml',
     'claim-6-split.toml'),
    ('6, memory', 'Split, Table 3: fp16+8 takes 3776 MB, AMP 4520 MB, 16% less',
     'ulp sweep experiments/claims/claim-6-split-time.toml',
     'claim-6-split-time.toml'),
    ('6, time', 'Split, Table 3: fp16+8 takes 20 min, AMP 24 min, 16% less',
     'ulp sweep experiments/claims/claim-6-split-time.toml',
     'claim-6-split-time.toml'),
    ('8', 'BF16, section 3.1 and Figure 2: on least squares, rounding weights to nearest leaves the loss magnitudes '
          'higher, rounding '
     'forward and backward alone close to none', 'ulp lab least-squares --format bf16', 'claim-8-least-squares.txt'),
    ('9', 'BF16, Tables 3 and 4, resnet18 on CIFAR-10: fp32 95.45%, plain 94.23%, stochastic 95.33%, Kahan 95.36%, '
          'fp32 weights 95.40%',
     'ulp sweep experiments/claims/claim-9-bf16.toml', 'claim-9-bf16.toml'),
    ('9, DLRM', 'BF16, Tables 3 and 4, DLRM on Criteo Kaggle: fp32 80.27%, plain 78.49%, stochastic 80.18%, Kahan '
                '80.26%, fp32 weights 80.26% AUC',
     'ulp sweep experiments/claims/claim-9-dlrm.toml', 'claim-9-dlrm.toml'),
    ('10, first half', 'MPT, section 4.1: convolutional networks in fp16 match fp32 without loss scaling',
     'ulp sweep experiments/claims/claim-10-mpt.toml', 'claim-10-mpt.toml'),
    ('11', 'S2FP8, Tables 1 and A2, resnet20 on CIFAR-10: fp32 91.5%, s2fp8 91.1%, fp8 17.9%, fp8 with a loss scale '
           'of 100 91.1%',
     'ulp sweep experiments/claims/claim-11-s2fp8.toml', 'claim-11-s2fp8.toml'),
    ('13', 'S2FP8, Tables 4 and A2: NCF on MovieLens-1M, HR@10: fp32 0.666, bf16 0.653, fp8 0.633, s2fp8 0.663',
     'ulp sweep experiments/claims/claim-13-ncf.toml', 'claim-13-ncf.toml'),
]


def sources(logs, file):
    names = sorted({name for name, manifest in logs.archives
                    if any(entry['file'] == file for entry in manifest['runs'])})
    return ', '.join(f'`{name}`' for name in names) or 'none yet'


def hours(seconds):
    return (f'{seconds / 3600:.2f} h' if seconds >= 3600 else f'{seconds / 60:.1f} min' if seconds >= 60
            else f'{seconds:.0f} s')


def effort(logs):
    """What was run, and what it took."""
    rows = []
    of_file = {}
    for _, manifest in logs.archives:
        for entry in manifest['runs']:
            of_file.setdefault(entry['file'], []).append(entry['seconds'])
    for file, seconds in sorted(of_file.items()):
        rows.append([f'`{file}`', len(seconds), hours(sum(seconds)), hours(max(seconds))])
    busy = logs.gpu_seconds
    rows.append(['all', sum(len(seconds) for seconds in of_file.values()), hours(sum(map(sum, of_file.values()))), ''])
    spread = ', '.join(f'{pool} {s:.3f}' for pool, s in sorted(logs.s.items()) if s is not None) or NO_RUN
    commits = ', '.join(sorted({manifest['commit'][:12] for _, manifest in logs.archives})) or 'none'
    return (table(['file', 'runs', 'time of all runs', 'of the longest'], rows) +
            f'\n\nThe GPU was busy for {hours(busy)}, {busy / 86400:.4f} GPU-days; the Assign paper took '
            f'{PAPER_GPU_DAYS:,}.\n'
            f'Builds: {commits}.\ns, in points: {spread}.')


def tables(logs):
    assign, orders, split, bf16, mpt = Assign(logs), Orders(logs), Split(logs), Bf16(logs), Mpt(logs)
    residual, ncf, dlrm = Residual(logs), Ncf(logs), Dlrm(logs)
    found = [assign.claim1(), assign.claim2(), assign.claim3(), orders.claim(), claim5(logs), *split.claims(),
             claim8(logs), bf16.claim(), dlrm.claim(),
             mpt.claim(), residual.claim(), ncf.claim()]
    rows = [[number, paper, ours, f'`{command}`', sources(logs, file),
             f'**{verdict}**' if verdict in (HOLDS, FAILS) else verdict]
            for (number, paper, command, file), (ours, verdict) in zip(CLAIMS, found, strict=True)]
    return {'verdicts': table(['claim', 'the paper', 'ours', 'command', 'log', 'verdict'], rows),
            'settings': assign.settings(), 'promotion': assign.promotion(), 'fifths': assign.fifths(),
            'long': assign.long(),
            'orders': orders.table(), 'split': split.table(), 'bf16': bf16.table(), 'mpt': mpt.table(),
            'residual': residual.table(), 'deeper': residual.deeper(), 'ncf': ncf.table(), 'dlrm': dlrm.table(),
            'effort': effort(logs)}


def fill(page, made):
    """The page with its tables replaced. Every mark is to have a table and every table a mark."""
    seen = set()

    def replace(match):
        name = match.group(1)
        if name not in made or name in seen:
            raise Bad(f'the page has a mark claims:{name} '
                      + ('twice' if name in seen else 'of which there is no table'))
        seen.add(name)
        return f'<!-- claims:{name} -->\n{made[name]}\n<!-- /claims:{name} -->'
    filled = re.sub(r'<!-- claims:([a-z0-9-]+) -->\n.*?<!-- /claims:\1 -->', replace, page, flags=re.S)
    if missing := set(made) - seen:
        raise Bad(f'the page has no mark for {", ".join(sorted(missing))}')
    return filled


def print_runs(logs):
    out = csv.writer(sys.stdout, lineterminator='\n')
    out.writerow(['archive', 'commit', 'run', 'seed', 'seconds', 'jobs', 'best', 'last', 'diverged', 'low_mean',
                  'low_last', 'promoted', 'skipped',
                  'peak_bytes'])
    for run in logs.runs:
        out.writerow([run.archive, run.commit[:12], run.entry['name'], f'{run.config["seed"]:g}', f'{run.seconds:.1f}',
                      run.jobs, f'{run.best:.2f}',
                      f'{run.last:.2f}', int(run.diverged), f'{run.low_mean:.2f}', f'{run.low_last:.2f}', run.promoted,
                      run.skipped, run.peak])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--runs', action='store_true')
    parser.add_argument('--logs', default=HERE)
    parser.add_argument('--page', default=os.path.join(ROOT, 'docs', 'claims.md'))
    args = parser.parse_args()
    try:
        logs = Logs(args.logs)
        if args.runs:
            print_runs(logs)
            return 0
        with open(args.page, encoding='utf-8') as file:
            page = file.read()
        filled = fill(page, tables(logs))
    except Bad as error:
        print(f'tables.py: {error}', file=sys.stderr)
        return 1
    busy = logs.gpu_seconds
    print(f'{len(logs.runs)} runs in {len(logs.archives)} archives; {busy:.0f} GPU-seconds, {busy / 86400:.4f} '
          f'GPU-days '
          f'(the Assign paper: {PAPER_GPU_DAYS:,})')
    if args.check:
        if filled != page:
            print(f'{args.page} is not what the logs give: run bench/h200/claims/tables.py', file=sys.stderr)
            return 1
        return 0
    if filled != page:
        with open(args.page, 'w', encoding='utf-8') as file:
            file.write(filled)
    return 0


if __name__ == '__main__':
    sys.exit(main())
