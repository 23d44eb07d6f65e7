"""Kernels that look at the grad mode: oneDNN's LSTM keeps a workspace where gradients are on, and rounds in another
way. A run is as the recording was, whatever the mode around it."""
import pytest
import torch

import smelt


@pytest.fixture
def lstm():
    torch.manual_seed(0)
    return torch.nn.LSTM(32, 32, batch_first=True), torch.randn(4, 8, 32)


def test_inference_runs_as_without_gradients(lstm):
    module, x = lstm

    def forward(x):
        with torch.no_grad():
            return module(x)[0]

    graph = smelt.record(forward, x)
    expected = forward(x)
    assert torch.equal(graph.run(x), expected)  # the mode around it is on
    with torch.no_grad():
        assert torch.equal(graph.run(x), expected)


def test_training_runs_as_with_gradients(lstm):
    module, x = lstm
    weights = list(module.parameters())

    def step(x):
        return torch.autograd.grad(module(x)[0].sum(), weights)

    graph = smelt.record(step, x)
    expected = step(x)
    with torch.no_grad():
        for got, wanted in zip(graph.run(x), expected, strict=True):
            assert torch.equal(got, wanted)


def test_the_trait_is_in_the_text(lstm):
    module, x = lstm
    lines = [line for line in str(smelt.record(lambda x: module(x)[0], x)).splitlines() if 'rnn_layer' in line]
    assert lines == [] or all(line.endswith(' grad') for line in lines)
