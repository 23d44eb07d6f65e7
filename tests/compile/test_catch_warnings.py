"""warnings.catch_warnings, simplefilter and filterwarnings are followed: one graph, and each call warns as eager does."""

import warnings

import pytest
import torch

import smelt


def ignored(x):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        warnings.warn('hidden')
        y = x.sin() + 1
    return y * 2


def by_action(x):
    y = x + 1
    with warnings.catch_warnings(action='ignore', category=UserWarning):
        warnings.warn('hidden')
    warnings.warn('seen')
    return y


def filtered(x):
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', message='hid.*')
        warnings.warn('hidden')
        warnings.warn('seen')
        return x * 2


def nested(x):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        with warnings.catch_warnings():
            warnings.simplefilter('always')
            warnings.warn('seen')
            x = x * 2
        warnings.warn('hidden')
    return x


def only_entered(x):
    with warnings.catch_warnings():
        return x * 2


PROGRAMS = [ignored, by_action, filtered, nested, only_entered]


def messages(program, x):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter('always')
        before = list(warnings.filters)
        result = program(x)
        assert warnings.filters == before
    return result, [str(warning.message) for warning in found]


@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_each_call_warns_alike(program):
    compiled = smelt.compile(program)
    for _ in range(4):
        x = torch.randn(4)
        ours, theirs = messages(compiled, x), messages(program, x)
        torch.testing.assert_close(ours[0], theirs[0])
        assert ours[1] == theirs[1]


@pytest.mark.parametrize('program', [ignored, only_entered], ids=lambda program: program.__name__)
def test_one_graph(program):
    compiled = smelt.compile(program, fullgraph=True)
    for _ in range(3):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x), program(x))
    assert smelt.stats()['graph_breaks'] == 0 and smelt.stats()['segments'] == 1


def test_filters_from_outside():
    """A filter that was set between two calls is the one that counts."""
    def program(x):
        y = x + 1
        warnings.warn('told')
        return y

    compiled = smelt.compile(program)
    x = torch.randn(4)
    for action, count in (('always', 1), ('ignore', 0), ('always', 1), ('error', None), ('ignore', 0)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(action)
            if count is None:
                with pytest.raises(UserWarning):
                    compiled(x)
            else:
                compiled(x)
                assert len(found) == count


def test_warnings_that_are_recorded():
    def program(x):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter('always')
            warnings.warn('kept')
            y = x * (len(found) + 1)
        return y, len(found)

    compiled = smelt.compile(program)
    for _ in range(3):
        x = torch.randn(4)
        ours, theirs = compiled(x), program(x)
        torch.testing.assert_close(ours[0], theirs[0])
        assert ours[1] == theirs[1] == 1
