import pytest
import torch

import smelt
from smelt.instruments import command


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Every test starts with the same seed, nothing compiled and a history of its own."""
    monkeypatch.delenv('SMELT_DISABLE', raising=False)
    monkeypatch.setenv('SMELT_HISTORY', str(tmp_path / 'history.sqlite'))
    torch.manual_seed(0)
    smelt.reset()


@pytest.fixture
def one_thread():
    """Of PyTorch's: several wait for each other, on a machine that does other things most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def smelt_command(capsys):
    """Runs a command in this process: (exit code, stdout, stderr)."""
    def run(*arguments):
        capsys.readouterr()
        code = command.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err
    return run


MODELS = '''
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32))
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return torch.softmax(self.head(self.body(x)) * 2 + 1, -1)


def make_model(batch_size=8):
    return Net(), torch.randn(batch_size, 16)


def make_training(batch_size=8):
    net = Net()
    return {'model': net, 'inputs': torch.randn(batch_size, 16), 'loss': lambda out: out.square().mean(),
            'optimizer': torch.optim.AdamW(net.parameters())}


def make_wide(batch_size=2, width=4):
    return nn.Linear(width, width), torch.randn(batch_size, width)


def make_step():
    net, optimizer_of = Net(), torch.optim.SGD

    return {'model': net, 'inputs': {'x': torch.randn(4, 16)}, 'optimizer': optimizer_of(net.parameters(), lr=0.1)}


def chain(x):
    return x.sin().exp() * 2


def breaks(x):
    y = x * 2
    print(end='')
    if y.sum() > 0:
        y = y + 1
    return y.tanh()


def make_broken():
    raise ValueError('no weights')


def make_calls_that_raise():
    return (lambda x: x @ x), torch.randn(3, 4)


def make_on_a_gpu():
    return nn.Linear(3, 3).cuda(), torch.randn(3, 3)


def make_exits():
    raise SystemExit('no licence')


class Exits(nn.Module):
    def forward(self, x):
        raise SystemExit(4)


def make_that_exits():
    return Exits(), torch.ones(3)


def make_long_message():
    raise RuntimeError('first line\\nsecond line')


def make_silent():
    assert NUMBER == 4


class Rounded(nn.Linear):
    def forward(self, x):
        return super().forward(x).long()


def make_whole_numbers():
    return Rounded(3, 3), torch.ones(3)


class Prints(nn.Module):
    def forward(self, x):
        print('from the model')
        return x.sin()


def make_that_prints():
    return Prints(), torch.ones(3)


def make_script():
    return torch.jit.script(nn.Linear(3, 3)), torch.ones(2, 3)


def make_needs_more(width):
    return nn.Linear(width, width), torch.ones(width)


def make_nothing():
    return 3


NUMBER = 3
'''


@pytest.fixture
def models(tmp_path):
    """The path of a file with models."""
    path = tmp_path / 'models_of_tests.py'
    path.write_text(MODELS)
    return path
