"""The local history of measurements: one SQLite file, with hardware and versions beside each run."""
import contextlib
import json
import os
import sqlite3
from pathlib import Path

from .problems import Problem

_SCHEMA = """
create table if not exists runs (
  id integer primary key, time text not null, name text not null, target text not null, kind text not null,
  hardware text not null, versions text not null, arguments text not null default '{}');
create table if not exists rows (
  run integer not null references runs(id), label text not null, point text not null, median real not null,
  mean real not null, p95 real not null, p99 real not null, throughput real not null, first_call real not null,
  details text not null);
create index if not exists rows_of_run on rows(run);
"""


def default_path():
    if given := os.environ.get('SMELT_HISTORY'):
        return Path(given)
    data = os.environ.get('XDG_DATA_HOME') or Path.home() / '.local' / 'share'
    return Path(data) / 'smelt' / 'history.sqlite'


@contextlib.contextmanager
def _open(path):
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path)
        try:
            connection.executescript(_SCHEMA)
            if 'arguments' not in [column[1] for column in connection.execute('pragma table_info(runs)')]:
                connection.execute("alter table runs add column arguments text not null default '{}'")
            with connection:
                yield connection
        finally:
            connection.close()
    except (OSError, sqlite3.Error) as error:
        raise Problem(f'the history {path} can not be used: {error}') from error


def check(path):
    """Before anything is measured: whether it can be used."""
    with _open(path):
        pass


def save(path, measurement, name=''):
    """Adds a measurement; gives its number."""
    m = measurement
    with _open(path) as db:
        run = db.execute('insert into runs (time, name, target, kind, hardware, versions, arguments) '
                         'values (?, ?, ?, ?, ?, ?, ?)',
                         (m['time'], name, m['target'], m['kind'], json.dumps(m['hardware'], sort_keys=True),
                          json.dumps(m['versions'], sort_keys=True), json.dumps(m.get('arguments', {})))).lastrowid
        for row in m['rows']:
            db.execute('insert into rows values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
                       (run, row['label'], json.dumps(row['point']), row['median'], row['mean'], row['p95'], row['p99'],
                        row['throughput'], row['first_call'], json.dumps(row)))
        return run


def load(path, target, kind, hardware):
    """Measurements of the target on this hardware, the oldest first."""
    found = []
    with _open(path) as db:
        runs = db.execute('select id, time, name, versions from runs where target = ? and kind = ? and hardware = ? '
                          'order by id', (target, kind, json.dumps(hardware, sort_keys=True))).fetchall()
        for run, time, name, versions in runs:
            rows = [json.loads(text) for text, in db.execute('select details from rows where run = ?', (run,))]
            found.append({'id': run, 'time': time, 'name': name, 'target': target, 'kind': kind, 'hardware': hardware,
                          'versions': json.loads(versions), 'rows': rows})
    return found


def arguments_of(text, path):
    """What the measurement was made with that --check names, {} if that is not known: TARGET and the options."""
    if text.endswith('.json'):
        return _read(text).get('arguments', {})
    with _open(path) as db:
        runs = db.execute('select id, name, arguments from runs order by id desc').fetchall()
    if not runs:
        raise Problem(f'the history {path} has no runs yet; make one: smelt bench file.py:make_model --save')
    for number, name, arguments in runs:
        if text in ('last', str(number), name):
            return json.loads(arguments)
    raise Problem(f'the history {path} has no run {text!r}')


def _read(path):
    """A measurement that --json wrote."""
    try:
        found = json.loads(Path(path).read_text())
        for row in found['rows']:
            row['label'] + '', row['point'].items(), row['median'] / row['high'] * row['low']
        found['kind'] + '', found['hardware'].items()
        return found
    except (OSError, ValueError) as error:
        raise Problem(f'the baseline {path} can not be read: {error}') from error
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise Problem(f'the baseline {path} is not what smelt bench --json writes ({type(error).__name__}: {error})') from error


def baseline(text, path, target, kind, hardware):
    """The measurement that --check names: a file of --json, or of the history 'last', a number or a name."""
    if text.endswith('.json'):
        found = _read(text)
        if found['kind'] != kind:
            raise Problem(f'the baseline {text} is of {found["kind"]}, and this is to measure {kind}')
        return found
    runs = load(path, target, kind, hardware)
    if not runs:
        raise Problem(f'the history {path} has no run of {target} ({kind}) on this machine; make one: '
                      f'smelt bench {target} --save')
    if text == 'last':
        return runs[-1]
    for run in reversed(runs):
        if text in (str(run['id']), run['name']):
            return run
    known = [run['name'] or str(run['id']) for run in runs[-8:]]
    raise Problem(f'the history has no run {text!r} of {target}; there are last, {", ".join(known)}')
