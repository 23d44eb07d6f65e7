"""Random ops on tensors that are not contiguous: which element gets which number depends on the layout."""
import pytest
import torch

import smelt

LAYOUTS = {
    'transposed': lambda: torch.zeros(5, 4).t(),
    'channels_last': lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    'every_other': lambda: torch.zeros(6, 8)[:, ::2],
    'transposed_part': lambda: torch.zeros(6, 8)[1:5].t(),
    'contiguous': lambda: torch.zeros(4, 5),
}
FILLS = {
    'bernoulli': lambda x: x.bernoulli_(0.3),
    'bernoulli_tensor': lambda x: x.bernoulli_(torch.full_like(x, 0.3)),
    'uniform': lambda x: x.uniform_(),
    'normal': lambda x: x.normal_(),
    'exponential': lambda x: x.exponential_(),
    'geometric': lambda x: x.geometric_(0.3),
    'cauchy': lambda x: x.cauchy_(),
    'log_normal': lambda x: x.log_normal_(),
    'random': lambda x: x.random_(100),
    'dropout': lambda x: torch.nn.functional.dropout(x + 1, 0.5),
    'dropout_inplace': lambda x: torch.nn.functional.dropout(x + 1, 0.5, inplace=True),
    'feature_dropout': lambda x: torch.nn.functional.dropout1d(x + 1, 0.5) if x.dim() == 2 else x,
    'alpha_dropout': lambda x: torch.nn.functional.alpha_dropout(x + 1, 0.5),
    'rand_like': torch.rand_like,
    'bernoulli_functional': lambda x: torch.bernoulli(x + 0.3),
}


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('fill', FILLS)
def test_equals_eager(fill, layout):
    def function(x):
        return FILLS[fill](torch.empty_like(x).zero_())

    x = LAYOUTS[layout]()
    graph = smelt.record(function, x)
    torch.manual_seed(3)
    expected = function(x)
    torch.manual_seed(3)
    got = graph.run(x)
    assert got.stride() == expected.stride()
    assert torch.equal(got, expected)


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('fill', [name for name in FILLS if name not in ('rand_like', 'bernoulli_functional')])
def test_fills_an_argument(fill, layout):
    def function(x):
        FILLS[fill](x)

    expected, got = LAYOUTS[layout](), LAYOUTS[layout]()
    if fill == 'normal' and layout == 'every_other':
        with pytest.raises(smelt.RecordError, match='gaps'):
            smelt.record(function, got)
        return
    graph = smelt.record(function, got)
    torch.manual_seed(3)
    function(expected)
    torch.manual_seed(3)
    graph.run(got)
    assert torch.equal(got, expected)
