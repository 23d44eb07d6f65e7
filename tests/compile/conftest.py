import pytest
import torch

import smelt


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Every test starts with the same seed and nothing compiled."""
    monkeypatch.delenv('SMELT_DISABLE', raising=False)
    torch.manual_seed(0)
    smelt.reset()


@pytest.fixture(params=(1, 2))
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
