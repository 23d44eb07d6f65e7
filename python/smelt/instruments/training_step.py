"""The training step that is measured, explained and verified. It is compiled as a program of the user's: smelt does not follow its
own modules, so this file is loaded under another name (contestants.py)."""


def make_training_step(model, args, kwargs, loss_of, optimizer, parameters):
    """A function without arguments: forward, backward and, with an optimizer, its step."""
    def train():
        if optimizer is None:
            for parameter in parameters:
                parameter.grad = None
        else:
            optimizer.zero_grad()
        loss = loss_of(model(*args, **kwargs))
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss
    return train


def mean_of_squares(result):
    """A loss for who gives none: of all floating-point results."""
    found = []
    _collect(result, found)
    if not found:
        raise TypeError('the model returns no floating-point tensor; give a loss, {"model": ..., "loss": ...}')
    return sum([tensor.float().square().mean() for tensor in found])


def _collect(value, found):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, found)
    elif hasattr(value, 'is_floating_point') and value.is_floating_point():
        found.append(value)
