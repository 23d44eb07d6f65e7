"""smelt bench --plot: medians with their confidence intervals, as a picture."""
import io

from .problems import Problem, check_file

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
    from matplotlib.figure import Figure
    rows = found['rows']
    figure = Figure(figsize=(8, 1.5 + 0.4 * len(rows)), layout='constrained')
    axes = figure.add_subplot()
    names = [', '.join([row['label'], *(f'{name} {value}' for name, value in row['point'].items())]) for row in rows]
    middle = [row['median'] * 1e3 for row in rows]
    errors = [[(row['median'] - row['low']) * 1e3 for row in rows], [(row['high'] - row['median']) * 1e3 for row in rows]]
    bars = axes.barh(range(len(rows)), middle, xerr=errors, color=['#8a8f98' if row['label'] == 'eager' else '#3867d6'
                                                                   for row in rows])
    axes.bar_label(bars, [f'{row["speedup"]:.2f}x' for row in rows], padding=4)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlabel('median time of a call in ms, with its 95 % interval')
    axes.set_title(f'{found["target"]}, {found["kind"]}')
    axes.margins(x=0.15)
    try:
        if not path.endswith('.html'):
            return figure.savefig(path, dpi=150)
        text = io.StringIO()
        figure.savefig(text, format='svg')
        picture = text.getvalue()
        with open(path, 'w') as file:
            file.write(f'<!doctype html><meta charset="utf-8"><title>{found["target"]}</title>\n'
                       + picture[picture.index('<svg'):])
    except OSError as error:
        raise Problem(f'--plot {path} can not be written: {error}') from error
