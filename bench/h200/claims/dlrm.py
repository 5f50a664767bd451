"""Claim 9 on recommendations: updates of 16-bit weights in DLRM."""

import rules
from logs import best, show, signed, table
from rules import NO_RUN, NO_WORSE, UNDECIDED, WORSE, mean


class Dlrm:
    DATA = 'synthetic-clicks:10000000'
    LEAST = 60.0  # AUC of fp32 below which nothing is decided
    # Name, what it was run with, the papers' figure, what the claim wants of it.
    ROWS = [('fp32', {'policy': 'fp32'}, '80.27 ± 0.01', None),
            ('bf16, plain', {'policy': 'fpu16:bf16', 'update': 'plain'}, '78.49 ± 0.08', WORSE),
            ('bf16, stochastic', {'policy': 'fpu16:bf16', 'update': 'stochastic', 'groups': ''}, '80.18 ± 0.02',
             NO_WORSE),
            ('bf16, Kahan', {'policy': 'fpu16:bf16', 'update': 'kahan'}, '80.26 ± 0.01', NO_WORSE),
            ('bf16 but for fp32 weights', {'policy': 'fpu16:bf16', 'update': 'master'}, '80.26 ± 0.01', NO_WORSE)]
    MORE = [('bf16, stochastic; top layers Kahan',
             {'policy': 'fpu16:bf16', 'groups': 'top*:update=kahan score*:update=kahan'}),
            ('bf16, stochastic; tables Kahan', {'policy': 'fpu16:bf16', 'groups': 'table*:update=kahan'}),
            ('fp16, plain', {'policy': 'uniform', 'update': 'plain'}),
            ('fp16+8', {'policy': 'uniform', 'update': 'extra:8'})]

    def __init__(self, logs):
        self.logs = logs

    def cell(self, what):
        return self.logs.cell(model='dlrm', data=self.DATA, epochs=1, batch=128, tf32=True, **what)

    def compare(self, what):
        return rules.compare(best(self.cell(what)), best(self.cell(self.ROWS[0][1])), self.logs.s.get(self.DATA),
                             rules.NARROW_MARGIN)

    def claim(self):
        found = [(name, *self.compare(what), wanted) for name, what, _, wanted in self.ROWS[1:]]
        verdict = rules.all_of([item[1] for item in found], [item[4] for item in found])
        if verdict == NO_RUN:
            return NO_RUN, NO_RUN
        fp32 = best(self.cell(self.ROWS[0][1]))
        if fp32 and mean(fp32) < self.LEAST:
            return f'fp32 reaches only {mean(fp32):.2f}%', UNDECIDED
        return '; '.join(f'{name}: {what}' + (f' ({d:+.2f})' if d is not None else '')
                         for name, what, d, _, _ in found), verdict

    def table(self):
        rows = []
        papers = [(name, what, paper) for name, what, paper, _ in self.ROWS]
        for name, what, paper in papers + [(name, what, '') for name, what in self.MORE]:
            runs = self.cell(what)
            verdict, d, h = self.compare(what) if name != 'fp32' else ('', None, None)
            rows.append([name, paper, show(runs), signed(d) + (f' ± {h:.2f}' if h is not None else ''),
                         '' if verdict == NO_RUN else verdict,
                         f'{mean([run.peak for run in runs]) / 2**20:.0f}' if runs else ''])
        return table(['formats, update', 'paper: AUC %, real rows', 'ours, made-up rows', '- fp32', 'no worse?',
                      'peak MiB'], rows)
