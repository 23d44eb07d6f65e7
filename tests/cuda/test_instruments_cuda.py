"""The instruments on a GPU: each kernel counts once, memory and energy are those of the device, numbers are a stop-watch's."""
import json
import statistics
import time

import pytest
import torch
from torch import nn

import smelt
from smelt.instruments import command, doctor, energy, inspection, kernels

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA')

MODELS = '''
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def blocks(batch_size=32, device='cuda'):
    model = nn.Sequential(*[Block(1024) for _ in range(4)]).to(device)
    return {'model': model, 'inputs': torch.randn(batch_size, 128, 1024, device=device),
            'optimizer': torch.optim.AdamW(model.parameters())}


def pointwise(batch_size=4096, device='cuda'):
    return (lambda x: torch.softmax(x.sin() * 2 + 1, -1).tanh() * x), torch.randn(batch_size, 4096, device=device)
'''


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv('SMELT_HISTORY', str(tmp_path / 'history.sqlite'))
    torch.manual_seed(0)
    smelt.reset()


@pytest.fixture
def run(tmp_path, capsys):
    """A command on the models: what it prints, as JSON."""
    path = tmp_path / 'models_on_cuda.py'
    path.write_text(MODELS)

    def call(name, target, *more):
        capsys.readouterr()
        code = command.main([name, f'{path}:{target}', '--json', *map(str, more)])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)
    return call


def smelts(data):
    """Seconds of smelt's kernels, by the GPU's own rows."""
    return sum(row['seconds'] for row in data['timeline'] if row['on_device'] and row['name'].startswith('smelt_'))


# -- explain


@pytest.mark.parametrize('more', ((), ('--mode', 'reduce-overhead'), ('--train',)), ids=('inference', 'graphs', 'training'))
def test_kernel_time_counts_once(run, more):
    data = run('explain', 'blocks', *more)
    on_device = [row for row in data['timeline'] if row['on_device']]
    assert on_device and all(row['thread'].startswith('stream ') for row in on_device)
    assert not any(row['name'].startswith(('smelt::', 'call')) for row in on_device)  # the host's labels
    told = sum(row['seconds'] for row in data['kernels'])
    assert smelts(data) > 0 and abs(told / smelts(data) - 1) < 1e-6, (told, smelts(data))
    busy = data['device_seconds']
    assert smelts(data) <= busy * 1.0001 and 0 < busy <= data['profiled_seconds'] * 1.02
    # The kernels of the GPU, PyTorch's included, are the call, profiled and not.
    for call in (data['profiled_seconds'], data['compiled_seconds']):
        assert busy > 0.9 * call, (busy, data['profiled_seconds'], data['compiled_seconds'])


def test_parts_of_the_host_are_the_call(run):
    data = run('explain', 'blocks')
    whole = next(row for row in data['timeline'] if row['name'] == 'call')
    assert abs(sum(data['shares'].values()) / whole['seconds'] - 1) < 1e-6 and min(data['shares'].values()) >= 0


def test_bandwidth_of_a_large_kernel(run):
    data = run('explain', 'pointwise')
    assert 5e11 < data['bandwidth'] < 2e13
    largest = data['kernels'][0]
    assert largest['bytes'] >= 2 * 4096 * 4096 * 4 and 0.2 < largest['of_machine'] < 1.3, largest['of_machine']
    assert sum(row['seconds'] for row in data['kernels']) > 0.9 * data['device_seconds']


def test_kernels_of_one_name_share_no_time():
    def twice(x, y):
        return (x * 2).relu(), (y * 2).relu()
    with torch.no_grad():
        data = inspection.inspect(*smelt.explain(twice)(torch.randn(4096, 4096, device='cuda'),
                                                        torch.randn(64, 64, device='cuda'))._call)
    assert sum(row['seconds'] for row in data['kernels']) == pytest.approx(smelts(data))
    assert sum(row['runs'] for row in data['kernels']) == len(
        [row for row in data['timeline'] if row['on_device'] and row['name'].startswith('smelt_')])


def test_memory_over_time_is_the_devices(run, tmp_path):
    data = run('explain', 'pointwise', '--trace', tmp_path / 'trace.json', '--html', tmp_path / 'page.html')
    assert max(live for _, live in data['memory']['cuda']) >= 4096 * 4096 * 4
    events = json.loads((tmp_path / 'trace.json').read_text())['traceEvents']
    assert any(event.get('args', {}).get('name', '').startswith('GPU, stream') for event in events)
    assert any(event['ph'] == 'C' and 'cuda' in event['name'] for event in events)


def test_advice_for_a_gpu_that_waits():
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(30)]).cuda()
    with torch.no_grad():
        data = inspection.inspect(*smelt.explain(model)(torch.randn(4, 32, device='cuda'))._call)
    assert any('reduce-overhead' in row['text'] for row in data['advice'])


# -- bench


def test_energy_and_memory(run):
    data = run('bench', 'pointwise', '--rounds', 50)
    assert 'cuda' not in data['energy_not_available'], data['energy_not_available']
    for row in data['rows']:
        watts = row['energy']['cuda'] / row['median']
        assert 20 < watts < 2000, watts
        assert row['memory']['cuda'] >= 4096 * 4096 * 4
    eager, compiled = data['rows']
    assert compiled['memory']['cuda'] < eager['memory']['cuda'] and data['hardware']['gpus']
    assert data['versions']['cuda'] and data['versions']['driver']


def test_energy_of_more_work_is_more(run):
    small, large = (run('bench', 'pointwise', '--rounds', 10, '--no-memory', '--batch-sizes', size)['rows'][0]['energy']['cuda']
                    for size in (2048, 8192))
    assert 2 < large / small < 8, large / small


def test_the_meter_is_of_pytorchs_gpu():
    meter = energy.Nvml()
    assert meter.problem == ''
    meter.start()
    x = torch.randn(4096, 4096, device='cuda')
    end = time.perf_counter() + 1.0
    while time.perf_counter() < end:
        x @ x
        torch.cuda.synchronize()
    assert 20 < meter.joules() < 2000


@pytest.mark.parametrize('name', ('blocks', 'pointwise'))
def test_bench_agrees_with_a_stop_watch(run, name):
    def watch(count=200):
        space = {}
        exec(MODELS, space)
        made = space[name]()
        model, x = (made['model'], made['inputs']) if isinstance(made, dict) else made
        fast, took = smelt.compile(model), []
        with torch.no_grad():
            for number in range(count + 20):
                torch.cuda.synchronize()
                start = time.perf_counter()
                fast(x)
                torch.cuda.synchronize()
                took.append(time.perf_counter() - start)
        return statistics.median(took[20:])
    before = watch()
    told = run('bench', name, '--no-memory', '--no-energy', '--rounds', 200)['rows'][1]['median']
    after = watch()
    assert 0.95 * min(before, after) <= told <= 1.05 * max(before, after), (before, told, after)


def test_where_and_training(run):
    assert len(run('bench', 'blocks', '--rounds', 10, '--train', '--no-energy')['rows']) == 2
    assert any(row['name'] == '0.up' for row in run('bench', 'blocks', '--where', '--seconds', 1)['rows'])


# -- verify, doctor


def test_verify(run):
    found = run('verify', 'blocks', '--batch-size', 2)
    assert found['ok'] and found['gradients']
    assert run('verify', 'blocks', '--batch-size', 2, '--train')['ok']


def test_doctor():
    found = {row.name: row for row in doctor.examine()}
    for name in ('GPU 0', 'NVRTC', 'cuBLASLt', 'cuDNN', 'smoke test', 'smoke test on the GPU'):
        assert found[name].state == doctor.GOOD, found[name]


def test_measured_bandwidth_is_measured():
    assert 5e11 < kernels.measured_bandwidth('cuda', 1 << 29) < 2e13
