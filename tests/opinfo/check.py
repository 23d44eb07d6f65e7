"""One case: each of its samples is run eagerly, recorded, and run from the recording; all must agree bit for bit.

A sample is checked in up to four ways: forward, gradient (torch.autograd.grad inside the recorded function), the
in-place variant, and the gradient through it.
"""

import random
import traceback
from dataclasses import dataclass, field

import smelt
import torch
from torch.utils._pytree import tree_leaves, tree_map

import cases

# What they return is not initialised.
SHAPE_ONLY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


class Mismatch(Exception):
    """The recording gave something else than eager."""


@dataclass
class Outcome:
    """What became of the samples of a case, counted per way of checking."""

    recorded: int = 0
    unsupported: int = 0  # eager raises, and so does the recording
    refused: list = field(default_factory=list)  # "way: reason"
    failed: list = field(default_factory=list)  # "way, sample: what"

    @property
    def status(self):
        if self.failed:
            return "failed"
        if self.refused:
            return "refused"
        return "recorded" if self.recorded else "unsupported"


# -- copies of arguments: the whole storage, so that strides, offsets and what lies beside a view survive


class Copier:
    """Copies tensors; those that share memory do so again."""

    def __init__(self):
        self.storages = {}
        self.tensors = {}

    def __call__(self, value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.tensors:
            self.tensors[id(value)] = self.copy(value).requires_grad_(value.requires_grad)
        return self.tensors[id(value)]

    def copy(self, tensor):
        plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and not tensor.is_quantized
        if not plain:
            return tensor.detach().clone()
        storage = tensor.detach().untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = storage.clone()
        copy = torch.empty(0, dtype=tensor.dtype)
        copy.set_(self.storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())
        copy = torch._conj(copy) if tensor.is_conj() else copy
        return torch._neg_view(copy) if tensor.is_neg() else copy


def copied(arguments, requires_grad=True):
    arguments = tree_map(Copier(), arguments)
    if not requires_grad:
        for leaf in tree_leaves(arguments):
            if isinstance(leaf, torch.Tensor):
                leaf.requires_grad_(False)
    return arguments


# -- comparison


def bits(tensor):
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    packed = torch.empty(tensor.numel(), dtype=tensor.dtype)
    packed.view(tensor.shape).copy_(tensor.detach())
    return packed.view(torch.uint8)


def describe(tensor):
    if tensor.layout != torch.strided:
        return f"{tensor.dtype} {list(tensor.shape)} {tensor.layout}"
    marks = " conj" * tensor.is_conj() + " neg" * tensor.is_neg()
    return f"{tensor.dtype} {list(tensor.shape)} strides {list(tensor.stride())}{marks}"


def difference(eager, run):
    same = (eager == run) | ((eager != eager) & (run != run))
    wrong = (~same).sum().item()
    try:
        largest = (eager.to(torch.complex128) - run.to(torch.complex128)).abs().max().item()
    except RuntimeError:
        largest = "?"
    return f"{wrong} of {same.numel()} elements differ, at most by {largest}"


def compare(what, eager, run, values):
    if isinstance(eager, torch.Tensor) and isinstance(run, torch.Tensor):
        if describe(eager) != describe(run):
            raise Mismatch(f"{what}: eager {describe(eager)}, run {describe(run)}")
        if values and not torch.equal(bits(eager), bits(run)):
            raise Mismatch(f"{what}, {describe(eager)}: {difference(eager.detach(), run.detach())}")
    elif type(eager) is not type(run):
        raise Mismatch(f"{what}: eager {type(eager).__name__}, run {type(run).__name__}")
    elif isinstance(eager, (list, tuple)):
        if len(eager) != len(run):
            raise Mismatch(f"{what}: eager has {len(eager)} parts, run {len(run)}")
        for i, (a, b) in enumerate(zip(eager, run)):
            compare(f"{what}[{i}]", a, b, values)
    elif isinstance(eager, dict):
        compare(f"{what} keys", list(eager), list(run), values)
        for key in eager:
            compare(f"{what}[{key!r}]", eager[key], run[key], values)
    elif values and eager != run and not (eager != eager and run != run):
        raise Mismatch(f"{what}: eager {eager!r}, run {run!r}")


def sharing(arguments, results):
    """Which of the tensors are one and the same and which share memory, as comparable data."""
    tensors = [t for t in tree_leaves((arguments, results)) if isinstance(t, torch.Tensor)]
    first_object, first_storage, pattern = {}, {}, []
    for i, tensor in enumerate(tensors):
        object_of = first_object.setdefault(id(tensor), i)
        memory_of, offset = i, 0
        if tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > 0:
            memory_of = first_storage.setdefault(tensor.untyped_storage()._cdata, i)
            offset = tensor.storage_offset() - tensors[memory_of].storage_offset()
        pattern.append((object_of, memory_of, offset))
    return pattern


# -- running


def seeded(function, *arguments):
    torch.manual_seed(1)
    random.seed(1)
    return function(*arguments)


def attempt(function, *arguments):
    """(result, None) or (None, exception)."""
    try:
        return seeded(function, *arguments), None
    except Exception as error:
        return None, error


class Case:
    def __init__(self, op, dtype, verbose=False):
        self.op, self.dtype, self.verbose = op, dtype, verbose
        self.values = op.name not in SHAPE_ONLY
        self.outcome = Outcome()

    def run(self):
        samples, error = attempt(cases.samples_of, self.op, self.dtype)
        if error is not None:
            self.outcome.unsupported += 1
            return self.outcome
        for index, sample in enumerate(samples):
            self.check_sample(index, (sample.input, tuple(sample.args), dict(sample.kwargs)), sample)
        if self.dtype is torch.float32:
            for index, sample in enumerate(attempt(cases.error_samples_of, self.op)[0] or []):
                arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
                self.check("error", index, self.forward, copied(arguments, requires_grad=False))
        return self.outcome

    def check_sample(self, index, arguments, sample):
        self.check("forward", index, self.forward, copied(arguments, requires_grad=False))
        gradient = cases.has_gradient(self.op, self.dtype)
        if gradient:
            self.check_gradient("gradient", index, self.forward, arguments, sample)
        if self.op.inplace_variant is None or sample.broadcasts_input:
            return
        self.check("in-place", index, self.inplace, copied(arguments, requires_grad=False))
        if gradient and self.op.supports_inplace_autograd:
            self.check_gradient("in-place gradient", index, self.inplace_on_copy, arguments, sample)

    def forward(self, input, args, kwargs):
        return self.op.op(input, *args, **kwargs)

    def inplace(self, input, args, kwargs):
        return self.op.inplace_variant(input, *args, **kwargs)

    def inplace_on_copy(self, input, args, kwargs):
        return self.op.inplace_variant(tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, input), *args, **kwargs)

    def check_gradient(self, way, index, function, arguments, sample):
        process = sample.output_process_fn_grad or (lambda x: x)

        def outputs_of(*arguments):
            leaves = tree_leaves(process(function(*arguments)))
            return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

        outputs, error = attempt(outputs_of, *copied(arguments))
        wanted = any(isinstance(t, torch.Tensor) and t.requires_grad for t in tree_leaves(arguments))
        if error is not None or not outputs or not wanted:
            return
        generator = torch.Generator().manual_seed(7)
        cotangents = [self.cotangent(output, generator) for output in outputs]

        def gradient(cotangents, *arguments):
            inputs = [t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
            outputs = outputs_of(*arguments)
            return outputs, torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)

        self.check(way, index, gradient, (cotangents, *copied(arguments)))

    @staticmethod
    def cotangent(output, generator):
        values = torch.rand(output.shape, generator=generator, dtype=torch.float64) + 0.5
        values = values.to(output.dtype)
        return values if output.layout == torch.strided else values.to_sparse()

    def check(self, way, index, function, arguments):
        """One recording against eager; what came out goes into the outcome."""
        failed = None
        try:
            self.compare_with_eager(function, arguments)
        except smelt.RecordError as error:
            self.outcome.refused.append(f"{way}: {reason_of(error)}")
        except Mismatch as error:
            failed = str(error)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
        if failed is not None:
            self.outcome.failed.append(f"{way}, sample {index}: {failed}")
        if self.verbose:
            self.show(way, index, function, arguments)

    def compare_with_eager(self, function, arguments):
        ours, theirs = copied(arguments), copied(arguments)
        eager, expected_error = attempt(function, *theirs)
        torch.manual_seed(1)
        before = torch.get_rng_state()
        graph, error = attempt(smelt.record, function, *ours)
        if not torch.equal(torch.get_rng_state(), before):
            raise Mismatch("record() changed the random state")
        compare("an argument, by record()", arguments, ours, True)
        run = None
        if error is None:
            run, error = attempt(graph.run, *ours)
            if isinstance(error, smelt.RecordError):
                raise Mismatch(f"run() raised a RecordError: {error}")
        if expected_error is not None:
            if error is None:
                raise Mismatch(f"eager raised {type(expected_error).__name__}: {expected_error}; the recording did not")
            if isinstance(error, smelt.InternalError):
                raise error
            self.outcome.unsupported += 1
            return
        if error is not None:
            raise error
        self.compare_results(function, arguments, (theirs, eager), (ours, run))
        self.outcome.recorded += 1

    def compare_results(self, function, arguments, eager, run):
        try:
            compare("result", eager[1], run[1], self.values)
            compare("argument", eager[0], run[0], self.values)
            if sharing(*eager) != sharing(*run):
                raise Mismatch(f"memory is shared as {sharing(*run)}, in eager as {sharing(*eager)}")
        except Mismatch:
            again = copied(arguments)
            result = seeded(function, *again)
            try:
                compare("result", eager[1], result, self.values)
                compare("argument", eager[0], again, self.values)
            except Mismatch as error:
                raise Mismatch(f"eager is not deterministic: {error}") from None
            raise

    def show(self, way, index, function, arguments):
        print(f"--- {way}, sample {index}: {shown(arguments)}")
        try:
            self.compare_with_eager(function, copied(arguments))
            print(smelt.record(function, *copied(arguments)))
        except Exception:
            traceback.print_exc()


def reason_of(error):
    """The sentence without the user's line."""
    return str(error).split(" (at ")[0]


def shown(value):
    if isinstance(value, torch.Tensor):
        return describe(value) + " requires grad" * value.requires_grad
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(shown, value)) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
    return repr(value)
