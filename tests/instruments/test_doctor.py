"""smelt doctor: what is here, what is missing, with a remedy."""
import json

import pytest

from smelt.instruments import doctor


def test_a_machine_that_is_well(smelt_command):
    code, out, err = smelt_command('doctor')
    assert code == 0, out + err
    for name in ('Python', 'PyTorch', 'processor', 'LLVM', 'GPU', 'smoke test'):
        assert name in out


def test_json(smelt_command):
    code, out, _ = smelt_command('doctor', '--json', '--no-smoke')
    rows = {row['name']: row for row in json.loads(out)}
    assert code == 0 and 'smoke test' not in rows and rows['Python']['state'] == 'ok'


def finding(name):
    return next(row for row in doctor.examine(smoke=name == 'smoke test') if row.name == name)


@pytest.mark.parametrize('wanted, target, state, said, remedy', (
    ('none', 'none', doctor.NOTE, 'SMELT_CPU_TARGET=none', 'unset SMELT_CPU_TARGET'),
    ('', 'none', doctor.NOTE, 'has no AVX2', 'use a processor with AVX2'),
    ('avx1024', 'avx512', doctor.NOTE, 'machine code for avx512, though SMELT_CPU_TARGET=avx1024', 'avx2 or none'),
    ('avx2', 'avx2', doctor.GOOD, 'machine code for avx2 (SMELT_CPU_TARGET=avx2)', '')))
def test_targets_that_are_asked_for(monkeypatch, wanted, target, state, said, remedy):
    monkeypatch.setattr(doctor._built_for, 'LLVM', '19.1', raising=False)
    monkeypatch.setattr(doctor._native, 'cpu_target', lambda: target)
    monkeypatch.setenv('SMELT_CPU_TARGET', wanted)
    found = finding('LLVM')
    assert found.state == state and said in found.text and remedy in found.remedy, found


def test_without_llvm(monkeypatch, smelt_command):
    monkeypatch.setattr(doctor._built_for, 'LLVM', '', raising=False)
    monkeypatch.setattr(doctor._native, 'cpu_target', lambda: 'none')
    assert finding('LLVM').state == doctor.BAD and 'llvm-19-dev' in finding('LLVM').remedy
    code, out, _ = smelt_command('doctor', '--no-smoke')
    assert code == 1 and 'missing' in out and '->' in out


def test_another_python(monkeypatch):
    monkeypatch.setattr(doctor._compile, 'other_python', lambda: 'smelt.compile follows Python 3.11 and 3.12; this is 3.13')
    assert finding('Python').state == doctor.BAD and '3.13' in finding('Python').text


def test_switched_off(monkeypatch):
    monkeypatch.setenv('SMELT_DISABLE', '1')
    assert finding('switches').state == doctor.NOTE and finding('smoke test').state == doctor.NOTE


@pytest.mark.parametrize('cuda', (None, '13.0'))
def test_no_gpu_has_a_remedy(monkeypatch, cuda):
    monkeypatch.setattr(doctor.torch.cuda, 'is_available', lambda: False)
    monkeypatch.setattr(doctor.torch.version, 'cuda', cuda)
    found = finding('GPU')
    assert found.state == doctor.NOTE and ('nvidia-smi' if cuda else 'install a PyTorch with CUDA') in found.remedy


def test_a_smoke_test_that_fails(monkeypatch, smelt_command):
    def broken(model):
        raise RuntimeError('no kernels today')
    monkeypatch.setattr(doctor._compile, 'compile', broken)
    code, out, _ = smelt_command('doctor')
    assert code == 1 and 'no kernels today' in out and 'please report it' in out


def test_a_library_that_is_missing():
    found = doctor._library('Nothing', 'no_such_library_anywhere', 'products use it', 'install it')
    assert found.state == doctor.NOTE and found.remedy == 'install it' and 'products use it' in found.text
    found = doctor._library('Nothing', 'no_such_library_anywhere', 'products use it', 'install it', is_needed=False)
    assert found.state == doctor.GOOD and 'without a GPU not needed' in found.text


def test_everything_is_listed_with_or_without_a_gpu():
    rows = {row.name: row for row in doctor.examine(smoke=False)}
    assert {'Python', 'PyTorch', 'processor', 'LLVM', 'NVRTC', 'cuBLASLt', 'cuDNN'} <= set(rows)
    assert any(name.startswith('GPU') for name in rows)
    assert all(row.remedy or row.state == doctor.GOOD for row in rows.values() if row.name != 'compiler')


def test_a_gpu_that_is_too_old(monkeypatch):
    class Old:
        name, major, minor, total_memory = 'Tesla K80', 3, 7, 12 << 30
    monkeypatch.setattr(doctor.torch.cuda, 'get_device_properties', lambda index: Old)
    found = doctor._one_gpu(0)
    assert found.state == doctor.NOTE and 'sm_37' in found.text and 'sm_70' in found.remedy
