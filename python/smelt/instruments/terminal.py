"""Tables and progress. rich draws them where it is installed; without it there are plain tables and no progress."""
import contextlib
import shutil
import sys

try:
    import rich
    import rich.console
    import rich.progress
    import rich.table
    import rich.text
except ImportError:
    rich = None


def table(columns, rows, title=''):
    """Prints rows of texts; the first column is left-aligned, the others right-aligned. On a terminal that is too narrow the
    columns are shared out to several tables, each with the first column."""
    rows = [[str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        return print(plain_table(columns, rows, title))
    for chosen in parts_of(columns, rows, shutil.get_terminal_size().columns):
        part = [[row[i] for i in chosen] for row in rows]
        if rich is None:
            print(plain_table([columns[i] for i in chosen], part, title))
        else:
            _draw([columns[i] for i in chosen], part, title)


def _draw(columns, rows, title):
    drawn = rich.table.Table(title=title or None, title_justify='left')
    for number, column in enumerate(columns):
        drawn.add_column(column, justify='right' if number else 'left', overflow='fold' if number == 0 else 'ellipsis',
                         no_wrap=number > 0)
    for row in rows:
        drawn.add_row(*(rich.text.Text(cell) for cell in row))
    rich.console.Console().print(drawn)


def parts_of(columns, rows, width):
    """[[numbers of columns]] of tables that are no wider than that: each has the first column and as many of the others as
    there is room for, one at least."""
    widths = [max(len(row[i]) for row in [columns, *rows]) + 3 for i in range(len(columns))]  # with what is drawn between
    found = [[0]]
    for number in range(1, len(columns)):
        used = 1 + sum(widths[i] for i in found[-1])
        if len(found[-1]) > 1 and used + widths[number] > width:
            found.append([0])
        found[-1].append(number)
    return found


def plain_table(columns, rows, title=''):
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells):
        return '  '.join(cell.rjust(width) if i else cell.ljust(width)
                         for i, (cell, width) in enumerate(zip(cells, widths))).rstrip()
    return '\n'.join([*([title] if title else []), line(columns), *map(line, rows)])


@contextlib.contextmanager
def progress(text, total=None):
    """Gives a function that is called as work goes on: advance(done, text). The text is what is under way, and can be read
    whatever the width is; of the first, which may be a path, the end is shown. Nothing is shown where stderr is no terminal."""
    if rich is None or not sys.stderr.isatty():
        yield lambda done=None, text=None: None
        return
    console = rich.console.Console(stderr=True)
    columns, room = _progress_columns(console.width)
    with rich.progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(text if len(text) <= room else '…' + text[-room + 1:], total=total)

        def advance(done=None, text=None):
            if text is None:
                bar.update(task, completed=done)
            else:  # drawn at once: what is done may take less than the time between two drawings
                bar.update(task, completed=done, description=text if len(text) <= room else text[:room - 1] + '…', refresh=True)
        yield advance


def _progress_columns(width):
    """What is drawn, and how long its text may be: a bar has 10 columns at least, or there is none."""
    text = rich.progress.TextColumn('{task.description}', markup=False)
    percentage, bar, left = rich.progress.TaskProgressColumn(), rich.progress.BarColumn(), rich.progress.TimeRemainingColumn()
    if width < 60:
        return (text, percentage), max(width - 6, 10)
    return (text, bar, percentage, left), width - 26


def seconds(value):
    """A time in the unit that reads best."""
    return _in_unit(value, (('s', 1), ('ms', 1e-3), ('us', 1e-6), ('ns', 1e-9)))


def count(value):
    """A large number with its unit: 15.9 k."""
    return _in_unit(value, (('G', 1e9), ('M', 1e6), ('k', 1e3), ('', 1)))


def bytes_(value):
    return _in_unit(value, (('GiB', 1 << 30), ('MiB', 1 << 20), ('KiB', 1 << 10), ('B', 1)))


def _in_unit(value, units):
    """By three digits, in the largest unit of which it has one; the smallest else."""
    for unit, scale in units:
        if value >= 0.9995 * scale or (unit, scale) == units[-1]:
            number = value / scale
            return f'{number:.0f} {unit}'.rstrip() if number >= 999.5 else f'{number:.3g} {unit}'.rstrip()
