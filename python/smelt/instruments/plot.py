"""smelt bench --plot: medians and speed-ups with their confidence intervals, as a picture."""
import html
import io

from .problems import Problem, check_file
from .terminal import seconds

_ENDINGS = ('.png', '.svg', '.html')


def check(path):
    """Before anything is measured."""
    if not path.endswith(_ENDINGS):
        raise Problem(f'--plot {path}: the name is to end with one of {", ".join(_ENDINGS)}')
    check_file(path, '--plot')
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Problem('--plot takes matplotlib; install it: pip install "smelt[plot]"') from None


def draw(found, path):
    import matplotlib
    matplotlib.use('Agg')
    figure = _figure(found)
    try:
        if not path.endswith('.html'):
            return figure.savefig(path, dpi=150)
        text = io.StringIO()
        figure.savefig(text, format='svg')
        with open(path, 'w') as file:
            file.write(_page(found, text.getvalue()))
    except OSError as error:
        raise Problem(f'--plot {path} can not be written: {error}') from error


def _name(row):
    return ', '.join([row['label'], *(f'{name} {value}' for name, value in row['point'].items())])


def _figure(found):
    """Two panels beside each other: times of calls, and how many times faster than eager they are."""
    from matplotlib.figure import Figure
    rows = found['rows']
    figure = Figure(figsize=(11, 1.6 + 0.4 * len(rows)), layout='constrained')
    times, gains = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    colours = ['#8a8f98' if row['label'] == 'eager' else '#c7772e' if row['label'].startswith('torch') else '#3867d6' for row in rows]
    places = range(len(rows))

    def bars(axes, middle, low, high, labels):
        errors = [[max(0.0, m - l) for m, l in zip(middle, low)], [max(0.0, h - m) for m, h in zip(middle, high)]]
        drawn = axes.barh(places, middle, xerr=errors, color=colours, error_kw={'ecolor': '#22262e', 'elinewidth': 1, 'capsize': 2})
        axes.bar_label(drawn, labels, padding=4, fontsize=8)
        axes.margins(x=0.2)
    bars(times, *([row[key] * 1e3 for row in rows] for key in ('median', 'low', 'high')), [seconds(row['median']) for row in rows])
    if max(row['median'] for row in rows) > 20 * min(row['median'] for row in rows):
        times.set_xscale('log')
    times.set_yticks(places, [_name(row) for row in rows])
    times.invert_yaxis()
    times.set_xlabel('median time of a call in ms, with its 95 % interval')
    bars(gains, *([row[key] for row in rows] for key in ('speedup', 'speedup_low', 'speedup_high')),
         [f'{row["speedup"]:.2f}x' for row in rows])
    gains.axvline(1.0, color='#22262e', linewidth=0.8, linestyle=':')
    gains.set_xlabel('speed-up against eager, with its 95 % interval')
    figure.suptitle(f'{found["target"]}, {found["kind"]}')
    return figure


def _page(found, picture):
    """One HTML file: the picture, the numbers, and what they were measured on."""
    columns = {'median': seconds, 'mean': seconds, 'p95': seconds, 'p99': seconds, 'first_call': seconds,
               'throughput': lambda value: f'{value:.4g}', 'speedup': lambda value: f'{value:.2f}'}
    rows = [''.join(f'<td>{html.escape(cell)}</td>' for cell in [_name(row), *(show(row[key]) for key, show in columns.items())])
            for row in found['rows']]
    heads = ''.join(f'<th>{key.replace("_", " ")}</th>' for key in ('', *columns))
    body = '\n'.join(f'<tr>{row}</tr>' for row in rows)
    facts = ', '.join(f'{key} {value}' for key, value in {**found['hardware'], **found['versions']}.items() if value)
    title = html.escape(found['target'])
    return f'''<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 0 auto; padding: 12px; color: #1c2330; background: #fff; }}
svg {{ width: 100%; height: auto; }} div {{ overflow-x: auto; }} table {{ border-collapse: collapse; font-size: 13.5px; }}
td, th {{ padding: 3px 9px; text-align: right; white-space: nowrap; border-bottom: 1px solid #dde1e7; }} td:first-child {{ text-align: left; }}
</style></head><body>
<h1>{title}, {html.escape(found["kind"])}</h1>
{picture[picture.index("<svg"):]}
<div><table><tr>{heads}</tr>
{body}
</table></div>
<p>{html.escape(found["time"])}: {html.escape(facts)}</p>
</body></html>
'''
