"""f-strings with tensors in them: text for an error that is not raised costs nothing; other uses are eager's."""
import pytest
import torch

import smelt


def check(condition, message):
    def text():
        return message

    torch._check_tensor_all_with(ValueError, condition, text)


def checked(x):
    count = (x > 0).sum()
    check(count < 4, f'{count} of {x.shape[0]} in {x * 2!r}')
    return (x + 1) * 2


def test_message_of_a_check_that_holds():
    compiled = smelt.compile(checked, fullgraph=True)
    for _ in range(3):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), checked(x))
    assert smelt.stats()['graphs'] == 1


def test_message_of_one_that_does_not():
    compiled = smelt.compile(checked)
    for value in (-1.0, -1.0, 1.0, -1.0, 1.0):
        x = torch.full((5,), value)
        if value < 0:
            torch.testing.assert_close(compiled(x), checked(x))
            continue
        with pytest.raises(ValueError) as expected:
            checked(x)
        with pytest.raises(ValueError) as raised:
            compiled(x)
        assert str(raised.value) == str(expected.value)


LOG = []


class Box:
    pass


def boxed(x):
    box = Box()
    box.text = f'{(x > 1).sum()}'
    return x + 1 if box.text == '3' else x


def by_name(x):
    box = Box()
    setattr(box, f'a{(x > 1).sum()}', 3)
    return x + getattr(box, 'a3', 7)


def logged(x):
    LOG.append(f'n{(x > 1).sum()}')
    return x + len(LOG[-1] + LOG[-1])


def matched(x):
    match f'{(x > 1).sum()}':
        case '3': return x + 1
        case _: return x


def digits(x):
    total = 0
    for digit in f'{(x > 1).sum()}':
        total += int(digit)
    return x * total


USES = {
    'returned': lambda x: f'{x.sum():.3f}',
    'joined': lambda x: (x + 1, f'{x.sum():.1f}' + 'b'),
    'length': lambda x: x * len(f'{(x > 1).sum() + 8}'),
    'compared': lambda x: x * 2 if f'{(x > 1).sum()}' == '3' else x,
    'key': lambda x: {f'{(x > 1).sum()}': x + 1}.get('3', x),
    'item': lambda x: x * int(f'{(x > 1).sum()}'[0]),
    'contains': lambda x: x + ('3' in f'n{(x > 1).sum()}'),
    'method': lambda x: x + f'n{(x > 1).sum()}'.endswith('3'),
    'formatted again': lambda x: (x + 1, f'<{f"{x.sum():.2f}":>10}>', '%s' % f'{x[0]}', str(f'{x[0]}')),
    'in a list': lambda x: x + ('3' in [f'{(x > 1).sum()}', 'a']),
    'in a dict': lambda x: x + 1 if {'k': f'{(x > 1).sum()}'}['k'] == '3' else x,
    'in a set': lambda x: x + 1 if {f'{(x > 1).sum()}'} == {'3'} else x,
    'sorted': lambda x: x + 1 if sorted([f'{(x > 1).sum()}', '2'])[0] == '2' else x,
    'largest': lambda x: x + 1 if max(f'{(x > 1).sum()}', '2') == '2' else x,
    'in a join': lambda x: x + 1 if ''.join([f'{(x > 1).sum()}', '2']) == '32' else x,
    'converted': lambda x: x * float(f'{x.sum():.2f}'),
    'attribute': boxed,
    'name of an attribute': by_name,
    'kept': logged,
    'matched': matched,
    'iterated': digits,
}


@pytest.mark.parametrize('name', USES)
def test_what_looks_at_it(name):
    function = USES[name]
    compiled = smelt.compile(function)
    for i in range(5):
        x = torch.arange(3.0) + i - 1
        assert repr(compiled(x)) == repr(function(x))
