"""The claims of the S2FP8 paper: residual nets (claim 11) and recommendations (claim 13)."""

import rules
from logs import best, show, signed, table
from rules import NO_RUN, NO_WORSE, UNDECIDED, WORSE, mean


class Residual:
    """Claim 11: resnet20 on CIFAR-10, and what stands around it."""
    # Name, what it was run with, the paper's figure, what the claim wants of it.
    ROWS = [('fp32 (tf32)', {'policy': 'fp32'}, '91.5', None),
            ('bf16', {'policy': 'products:bf16'}, '91.7', None),
            ('s2fp8', {'policy': 's2fp8'}, '91.1', NO_WORSE),
            ('fp8', {'policy': 'fp8', 'loss_scale': 'none'}, '17.9', WORSE),
            ('fp8, scale 100', {'policy': 'fp8', 'loss_scale': 'constant:100'}, '91.1', NO_WORSE)]
    ONCE = [('s2fp8, blocks\' outputs fp32',
             {'policy': 's2fp8', 'formats': 'relu.out=fp32 relu.out.grad=fp32 *relu2.out=fp32 *relu2.out.grad=fp32'}),
            ('fp8, scale 100, stochastic', {'policy': 'fp8', 'loss_scale': 'constant:100', 'round': 'stochastic'}),
            ('fp8, scale 100, first and last in fp32',
             {'policy': 'fp8', 'loss_scale': 'constant:100', 'keep_first_last': True}),
            ('fp8, exponential scale', {'policy': 'fp8', 'loss_scale': 'exponential:100:5000'})]
    DEEPER = [('resnet32', '92.5', '92.0', '13.5', '92.0'), ('resnet50-cifar', '93.0', '93.2', '11.5', '92.9')]
    USUAL = {'round': 'even', 'keep_first_last': False, 'formats': ''}

    def __init__(self, logs):
        self.logs = logs

    def cell(self, wanted, model='resnet20', epochs=40):
        return self.logs.cell(model=model, data='cifar10', width=1, epochs=epochs, batch=128, weight_decay=2e-4,
                              update='default', **{**self.USUAL, **wanted})

    def compare(self, wanted):
        return rules.compare(best(self.cell(wanted)), best(self.cell(self.ROWS[0][1])), self.logs.s.get('cifar10'),
                             rules.MARGIN['cifar10'], planned=3)

    def claim(self):
        found = [(name, *self.compare(wanted), hoped) for name, wanted, _, hoped in self.ROWS if hoped]
        verdict = rules.all_of([item[1] for item in found], [item[4] for item in found])
        if verdict == NO_RUN:
            return NO_RUN, NO_RUN
        return '; '.join(f'{name}: {what}' + (f' ({d:+.2f})' if d is not None else '')
                         for name, what, d, _, _ in found), verdict

    def table(self):
        rows = []
        for name, wanted, paper, _ in self.ROWS:
            verdict, d, h = self.compare(wanted) if 'fp32' not in name else ('', None, None)
            rows.append([name, paper, show(self.cell(wanted)), signed(d) + (f' ± {h:.2f}' if h is not None else ''),
                         '' if verdict == NO_RUN else verdict, show(self.cell(wanted, epochs=250))])
        rows += [[name, '', show(self.cell(wanted)), '', '', ''] for name, wanted in self.ONCE]
        return table(['formats', 'paper %', 'ours, 40 epochs', '- fp32', 'no worse?', 'ours, 250 epochs'], rows)

    def deeper(self):
        columns = [self.ROWS[0], *self.ROWS[2:]]
        rows = []
        for model, *paper in self.DEEPER:
            rows.append([model, *(f'{theirs}; {show(self.cell(wanted, model))}'
                                  for theirs, (_, wanted, _, _) in zip(paper, columns, strict=True))])
        return table(['paper\'s %; ours, 40 epochs', *(name for name, *_ in columns)], rows)


class Ncf:
    """Claim 13."""
    ROWS = [('fp32', 'fp32', '0.666', None), ('bf16', 'products:bf16', '0.653', None), ('fp8', 'fp8', '0.633', WORSE),
            ('s2fp8', 's2fp8', '0.663', NO_WORSE)]

    def __init__(self, logs):
        self.logs = logs

    def cell(self, policy):
        return self.logs.cell(model='ncf', data='ml-1m', epochs=20, batch=1024, policy=policy)

    def compare(self, policy):
        return rules.compare(best(self.cell(policy)), best(self.cell('fp32')), self.logs.s.get('ml-1m'),
                             rules.MARGIN['ml-1m'], planned=3)

    def claim(self):
        found = [(name, *self.compare(policy), wanted) for name, policy, _, wanted in self.ROWS if wanted]
        verdict = rules.all_of([item[1] for item in found], [item[4] for item in found])
        if verdict == NO_RUN:
            return NO_RUN, NO_RUN
        fp32 = best(self.cell('fp32'))
        ours = '; '.join(f'{name}: {what}' + (f' ({d:+.2f})' if d is not None else '') for name, what, d, _, _ in found)
        if fp32 and mean(fp32) < rules.LEAST_NCF:
            return f'fp32 reaches only {mean(fp32):.2f}%', UNDECIDED
        return ours, verdict

    def table(self):
        rows = []
        for name, policy, paper, wanted in self.ROWS:
            runs = self.cell(policy)
            verdict, d, h = self.compare(policy) if name != 'fp32' else ('', None, None)
            rows.append([name, f'`{policy}`', paper, show(runs),
                         f'{mean([run.in_fp32 for run in runs]):.2f}' if runs else '',
                         f'{mean([run.last_ties for run in runs]):.2f}' if runs else '',
                         signed(d) + (f' ± {h:.2f}' if h is not None else ''), '' if verdict == NO_RUN else verdict])
        return table(['formats', 'policy', 'paper: HR@10', 'ours, %', 'the same weights in fp32, %',
                      'ties at the end', '- fp32', 'no worse?'], rows)
