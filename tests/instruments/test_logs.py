"""Logs go where they are wanted: to standard error, or to a logger of Python's."""
import logging
import warnings

import pytest
import torch

import smelt
from smelt import _compile


def breaks(x):
    x = x * 2
    print(end='')
    return x + 1


def test_a_logger(caplog, capfd):
    caplog.set_level(logging.INFO)
    smelt.set_log('breaks', logging.getLogger('service'))
    try:
        smelt.compile(breaks)(torch.ones(3))
    finally:
        smelt.set_log('')
    records = [record for record in caplog.records if record.name == 'service.breaks']
    assert len(records) == 1 and 'input or output (print)' in records[0].message
    assert capfd.readouterr().err == ''
    smelt.set_log('breaks')
    smelt.compile(lambda x: breaks(x))(torch.ones(3))
    smelt.set_log('')
    assert 'smelt[breaks]' in capfd.readouterr().err


def test_a_logger_that_raises_stops_nothing(monkeypatch, capfd):
    class Broken(logging.Handler):
        def handle(self, record):
            raise ValueError('no disk')
    logger = logging.getLogger('broken')
    logger.setLevel(logging.INFO)
    logger.addHandler(Broken())
    told = []
    monkeypatch.setattr('sys.unraisablehook', told.append)
    smelt.set_log('breaks', logger)
    try:
        assert torch.equal(smelt.compile(breaks)(torch.ones(3)), torch.full((3,), 3.0))
    finally:
        smelt.set_log('')
    assert told and told[0].exc_type is ValueError


def test_explain_tells_the_stance():
    fast = smelt.compile(torch.sin)
    with smelt.stance('eager', fast):
        assert "the stance is 'eager'" in str(smelt.explain(fast)(torch.ones(3)))
    assert 'stance' not in str(smelt.explain(fast)(torch.ones(3)))


def said(monkeypatch, *calls):
    """What compiling says in the places of these calls."""
    monkeypatch.setattr(_compile, '_said', set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        for call in calls:
            call()
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


def test_an_option_without_effect_is_said_once(monkeypatch):
    def compile():
        smelt.compile(breaks, backend='eager', options={'fusion': 'none', 'recompile_limit': 3})
    texts = said(monkeypatch, compile, compile)
    assert len(texts) == 1 and "options 'fusion' have no effect with another back end" in texts[0]
    assert said(monkeypatch, lambda: smelt.compile(breaks, options={'fusion': 'none'})) == []


@pytest.mark.parametrize('decorates', (False, True))
def test_a_mode_without_effect_where_the_model_is(monkeypatch, decorates):
    monkeypatch.setattr('torch.cuda.is_available', lambda: True)
    model = torch.nn.Linear(2, 2)

    def compile():
        if decorates:
            smelt.compile(mode='reduce-overhead')(model)
        else:
            smelt.compile(model, mode='reduce-overhead')
    texts = said(monkeypatch, compile, compile)
    assert len(texts) == 1 and 'nothing of its own on the CPU' in texts[0] and 'Linear' in texts[0]


def test_a_profile_has_ranges_and_kernels():
    from torch.profiler import ProfilerActivity, profile
    fast, x = smelt.compile(lambda x: (x.sin() * 2).sum()), torch.randn(100)
    fast(x), fast(x)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiled:
        fast(x)
    names = [event.name for event in profiled.events()]
    assert 'smelt::run' in names and any(name.startswith('smelt::sin') for name in names)
