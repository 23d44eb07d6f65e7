"""smelt explain and the page of smelt.explain, the latter in a real browser."""
import json
import os
import re
import shutil
import subprocess

import pytest
import torch

import smelt
from smelt.instruments import inspection, page

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason='there is no chromium (Debian: apt-get install chromium)')


def helper(y):
    return y * 2 + 1


def branching(x, w):
    y = torch.tanh(x @ w) * 2
    print(end='')
    if y.sum() > 100000:
        y = helper(y)
    return torch.softmax(y, -1)


@pytest.fixture
def data():
    with torch.no_grad():
        report = smelt.explain(branching)(torch.randn(64, 64), torch.randn(64, 64))
        return inspection.inspect(*report._call)


def test_what_is_told(data):
    assert data['graph_count'] >= 2 and data['break_count'] == 2
    states = {line['number'] - branching.__code__.co_firstlineno: line['state']
              for file in data['sources'] for function in file['functions'] if function['name'] == 'branching'
              for line in function['lines']}
    assert states == {0: '', 1: 'compiled', 2: 'break', 3: 'break', 4: '', 5: 'compiled'}
    kernels = {row['name']: row for row in data['kernels']}
    assert any('tanh' in name for name in kernels)
    kernel = next(row for name, row in kernels.items() if 'tanh' in name)
    assert kernel['bytes'] == 2 * 64 * 64 * 4 and kernel['flops'] == 2 * 64 * 64 and kernel['code'].startswith('kernel ')
    assert kernel['runs'] == 1 and kernel['bandwidth'] > 0
    assert {row['stage'] for row in data['stages']} >= {'passes', 'schedule', 'codegen'}
    assert any(row['name'] == 'smelt::run' for row in data['timeline']) and data['memory']
    assert any('aten::' in node['op'] for nodes in data['graphs'] for node in nodes)
    assert any('torch.where' in row['text'] for row in data['advice'])


def test_boundaries_of_kernels_have_a_reason():
    def two_kernels(x):
        y = (x * 2).relu()
        return y + y.t()
    with torch.no_grad():
        data = inspection.inspect(*smelt.explain(two_kernels)(torch.randn(300, 300))._call)
    assert [(row['before'], row['after']) for row in data['boundaries']] == [('mul_relu', 'add')]
    assert 'from elsewhere' in data['boundaries'][0]['why']


def test_kernels_that_are_launched_together_are_all_told():
    def three_kernels(x):
        y = (x * 2).relu()
        return y.sum(0), y.sum(1), y.sum()
    with torch.no_grad():
        data = inspection.inspect(*smelt.explain(three_kernels)(torch.randn(300, 300))._call)
    assert len(data['kernels']) >= 3 and all(row['runs'] == 1 and row['seconds'] > 0 for row in data['kernels'])


def test_the_parts_of_a_call_make_the_call():
    spans = [('call', 0, 100, 0), ('smelt::run', 10, 50, 1), ('smelt::a+b', 12, 20, 2), ('aten::addmm', 35, 20, 2),
             ('aten::empty', 36, 2, 3), ('other', 70, 20, 1)]
    timeline = [{'name': name, 'start': start, 'seconds': seconds, 'depth': depth, 'thread': 1, 'on_device': False}
                for name, start, seconds, depth in spans]
    assert inspection.shares_of(timeline) == {'kernels': 20, 'pytorch': 20, 'between': 10, 'python': 50}


def test_it_changes_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = smelt.explain(model)(torch.randn(3, 4))
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    report._inspect()
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert not torch.equal(before['1.running_mean'], kept['1.running_mean'])  # by the call of explain itself


def test_log_goes_back_to_stderr(capfd, data):
    smelt.set_log('perf')
    smelt.compile(lambda x: x.cos())(torch.ones(3))
    smelt.set_log('')
    assert 'smelt[perf]' in capfd.readouterr().err


def test_command(models, smelt_command, tmp_path):
    html, trace = tmp_path / 'report.html', tmp_path / 'trace.json'
    code, out, err = smelt_command('explain', f'{models}:make_model', '--html', html, '--trace', trace)
    assert code == 0, err
    assert 'Net: 1 graph' in out and 'kernel' in out and 'times: eager' in out
    events = json.loads(trace.read_text())['traceEvents']
    assert {'name', 'ph', 'ts', 'dur', 'pid', 'tid'} <= set(events[0]) and any(e['name'] == 'smelt::run' for e in events)
    assert html.read_text().startswith('<!doctype html>')
    code, out, _ = smelt_command('explain', f'{models}:make_training', '--train', '--json')
    assert code == 0 and json.loads(out)['graph_count'] >= 1
    code, out, _ = smelt_command('explain', f'{models}:breaks', '--inputs', 'torch.ones(3)')
    assert code == 0 and 'advice' in out and 'remedy' in out
    code, _, err = smelt_command('explain', f'{models}:make_model', '--html', tmp_path / 'no' / 'folder.html')
    assert code == 2 and 'can not be written' in err


def test_the_page_needs_no_network(data):
    text = page.page_of(data)
    assert not re.search(r'(src|href)=["\']?(https?:)?//', text) and '@import' not in text and 'fetch(' not in text


def test_text_of_users_can_not_end_the_script(data):
    text = page.page_of(data | {'text': '</script><script>alert(1)</script>', 'name': '<b>x'})
    assert '</script><script>alert' not in text and '<title>&lt;b>x' in text


def browser(path, *options):
    """(the document after its scripts, what the console said)."""
    done = subprocess.run([CHROMIUM, '--headless=new', '--no-sandbox', '--disable-gpu', '--enable-logging=stderr',
                           '--virtual-time-budget=5000', '--dump-dom', '--user-data-dir=' + str(path.parent / 'profile'),
                           *options, path.as_uri()],
                          capture_output=True, text=True, timeout=240, env={**os.environ, 'HOME': str(path.parent)})
    console = [line for line in done.stderr.splitlines() if 'CONSOLE' in line]
    return done.stdout, console


def with_script(text, script):
    return text.replace('</body>', f'<script>{script}</script></body>')


USE = '''
const field = document.querySelector('input[type=search]'), seen = document.documentElement.dataset;
field.value = 'tanh'; field.dispatchEvent(new Event('input'));
seen.found = document.querySelectorAll('.node.found').length;
seen.shown = [...document.querySelectorAll('.node')].filter(node => node.style.display !== 'none').length;
field.value = ''; field.dispatchEvent(new Event('input'));
seen.all = [...document.querySelectorAll('.node')].filter(node => node.style.display !== 'none').length;
const box = document.getElementById('kernels');
seen.closed = box.offsetHeight;
box.querySelector('summary').click();
seen.opened = box.offsetHeight;
document.querySelector('.node').click();
seen.chosen = document.querySelectorAll('.node.chosen').length;
document.querySelector('canvas').dispatchEvent(new WheelEvent('wheel', {deltaY: -300, clientX: 50, clientY: 50, cancelable: true}));
seen.background = getComputedStyle(document.body).backgroundColor;
'''


def values_of(document):
    return dict(re.findall(r'data-(\w+)="([^"]*)"', re.search(r'<html[^>]*>', document)[0]))


@needs_browser
@pytest.mark.slow
def test_in_a_browser(data, tmp_path):
    path = tmp_path / 'report.html'
    path.write_text(with_script(page.page_of(data), USE))
    document, console = browser(path)
    seen = values_of(document)
    assert console == [] and seen['ready'] == 'yes'
    assert int(seen['found']) >= 1 and seen['found'] == seen['shown'] and int(seen['all']) > int(seen['shown'])
    assert int(seen['opened']) > int(seen['closed']) and seen['chosen'] == '1'
    assert 'branching' in document and 'class="line break"' in document and 'class="line compiled"' in document
    assert seen['background'] == 'rgb(251, 251, 252)'
    dark = values_of(browser(path, '--blink-settings=preferredColorScheme=0')[0])
    assert dark['background'] == 'rgb(20, 23, 28)'


@needs_browser
@pytest.mark.slow
def test_at_the_width_of_a_phone(data, tmp_path):
    tell = "setTimeout(() => parent.postMessage(document.documentElement.scrollWidth, '*'), 500);"
    (tmp_path / 'report.html').write_text(with_script(page.page_of(data), tell))
    frame = tmp_path / 'frame.html'
    frame.write_text('<!doctype html><html><body><iframe src="report.html" width="360" height="740"></iframe><script>'
                     'onmessage = e => { document.documentElement.dataset.width = e.data; }</script></body></html>')
    document, console = browser(frame)
    assert console == [] and int(values_of(document)['width']) <= 360


@needs_browser
@pytest.mark.slow
def test_five_thousand_nodes(data, tmp_path):
    nodes = [{'id': f'%{i}', 'names': [f'%{i}'], 'op': f'aten::op{i % 50}', 'type': 'f32[8, 8]', 'part': 'forward',
              'inputs': [f'%{i - 1 - i % 7}'] if i > 7 else []} for i in range(5000)]
    path = tmp_path / 'report.html'
    path.write_text(with_script(page.page_of(data | {'graphs': [nodes]}), USE.replace('tanh', 'op17(')))
    document, console = browser(path)
    seen = values_of(document)
    assert console == [] and seen['ready'] == 'yes' and seen['found'] == '100' and seen['all'] == '5000'
