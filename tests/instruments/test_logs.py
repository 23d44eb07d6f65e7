"""Logs go where they are wanted: to standard error, or to a logger of Python's."""
import logging

import torch

import smelt


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
