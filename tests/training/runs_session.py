"""One training, written as its author would: `model` and `step` compile, or give back what they got."""

import warnings

import torch

import smelt

FORMS = ("model", "step")


def copied(value):
    """Values as they are now, for a comparison at the end."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return (value.to_dense() if value.is_sparse else value).clone()
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [copied(item) for item in value]
    return value


class Session:
    """`form`: what is compiled, the models or the step; None for eager."""

    def __init__(self, form=None):
        self.form = form
        self.notes = []
        self.recompiles = []

    def model(self, module):
        return smelt.compile(module) if self.form == "model" else module

    def step(self, function):
        return smelt.compile(function) if self.form == "step" else function

    def note(self, *values):
        self.notes.append(copied(values))

    def train(self, step, batches, *subjects):
        """Calls the step with each batch; notes what it returns, and in the end the state of the subjects."""
        for i, batch in enumerate(batches):
            torch.manual_seed(i)
            before = smelt.stats()["recompiles"]
            self.note("loss", i, step(*batch))
            self.recompiles.append(smelt.stats()["recompiles"] - before)
        self.end(*subjects)

    def end(self, *subjects):
        """Parameters, buffers and gradients of modules, the state of optimizers and the like."""
        for subject in subjects:
            self.note(type(subject).__name__, subject.state_dict())
            if isinstance(subject, torch.nn.Module):
                self.note("gradients", {name: p.grad for name, p in subject.named_parameters()})


def play(run, form):
    """The session of a run, and the warnings that were given."""
    smelt.reset()
    session = Session(form)
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # they are small
    try:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            run(session)
    finally:
        torch.set_num_threads(threads)
    return session, [str(w.message) for w in given]
