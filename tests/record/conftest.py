import pytest
import torch

import smelt


def switches():
    return (
        str(torch._C._dispatch_tls_local_include_set()),
        str(torch._C._dispatch_tls_local_exclude_set()),
        torch._C._functionalization_reapply_views_tls(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        smelt._native.is_recording(),
    )


@pytest.fixture(autouse=True)
def restored():
    """Every test starts with the same seed, and nothing is left switched on by it."""
    torch.manual_seed(0)
    before = switches()
    yield
    assert switches() == before
