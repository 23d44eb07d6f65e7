"""One case: each of its samples is run eagerly, recorded, and run from the recording; all must agree bit for bit.

Every sample is checked forward, in its gradient (torch.autograd.grad inside the recorded function), in the in-place
variant and in the gradient through that. The first one also as out= and in its second derivative, the last one also with
noncontiguous tensors. What eager raises an error for, the recording must raise one for as well.
"""

import random
import traceback
from dataclasses import dataclass, field

import opinfo_cases as cases
import smelt
import torch
from torch.utils._pytree import tree_leaves, tree_map

# What they return is not initialised.
SHAPE_ONLY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
# Gradients for which eager chooses a formula by the tensors' contents (is there a zero?) or by their kind. What is
# written down is PyTorch's general formula: equal up to rounding, not always in strides or in the memory shared (that
# of a product of one factor is the incoming gradient itself, which eager returns only where the factor is zero).
GENERAL_FORMULA = {"prod", "cumprod", "masked.prod", "masked.cumprod", "ormqr"}


class Mismatch(Exception):
    """The recording gave something else than eager."""


@dataclass
class Outcome:
    """What became of the samples of a case, counted over all ways of checking."""

    recorded: int = 0
    unsupported: int = 0  # eager raises, and so does the recording
    refused: list = field(default_factory=list)  # "way: reason"
    failed: list = field(default_factory=list)  # "way, sample: what"

    @property
    def status(self):
        """By forward and gradient; the other ways are reported where they are refused, but do not count."""
        if self.failed:
            return "failed"
        if any(reason.split(": ")[0] in ("forward", "gradient") for reason in self.refused):
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
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        copy.set_(self.storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())
        copy = torch._conj(copy) if tensor.is_conj() else copy
        return torch._neg_view(copy) if tensor.is_neg() else copy


def copied(arguments, requires_grad=True):
    arguments = tree_map(Copier(), arguments)
    if not requires_grad:
        for leaf in filter(is_tensor, tree_leaves(arguments)):
            leaf.requires_grad_(False)
    return arguments


def is_tensor(value):
    return isinstance(value, torch.Tensor)


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
    marks = " conj" * tensor.is_conj() + " neg" * tensor.is_neg() + " meta" * tensor.is_meta
    return f"{tensor.dtype} {list(tensor.shape)} strides {list(tensor.stride())}{marks}"


def difference(eager, run):
    same = (eager == run) | ((eager != eager) & (run != run))
    largest = (eager.to(torch.complex128) - run.to(torch.complex128)).abs().max().item()
    return f"{(~same).sum().item()} of {same.numel()} elements differ, at most by {largest}"


def compare_tensors(what, eager, run, exactness):
    if exactness == "close":
        try:
            torch.testing.assert_close(run, eager, equal_nan=True)
        except AssertionError as error:
            raise Mismatch(f"{what}: {error}") from None
        return
    if describe(eager) != describe(run):
        raise Mismatch(f"{what}: eager {describe(eager)}, run {describe(run)}")
    if exactness == "bits" and not eager.is_meta and not torch.equal(bits(eager), bits(run)):
        raise Mismatch(f"{what}, {describe(eager)}: {difference(eager.detach(), run.detach())}")


def compare(what, eager, run, exactness="bits"):
    """`exactness`: bits, close or shape."""
    if is_tensor(eager) and is_tensor(run):
        compare_tensors(what, eager, run, exactness)
    elif type(eager) is not type(run):
        raise Mismatch(f"{what}: eager {type(eager).__name__}, run {type(run).__name__}")
    elif isinstance(eager, (list, tuple)):
        if len(eager) != len(run):
            raise Mismatch(f"{what}: eager has {len(eager)} parts, run {len(run)}")
        for i, (a, b) in enumerate(zip(eager, run)):
            compare(f"{what}[{i}]", a, b, exactness)
    elif isinstance(eager, dict):
        compare(f"{what} keys", list(eager), list(run), exactness)
        for key in eager:
            compare(f"{what}[{key!r}]", eager[key], run[key], exactness)
    elif exactness != "shape" and eager != run and not (eager != eager and run != run):
        raise Mismatch(f"{what}: eager {eager!r}, run {run!r}")


def sharing(arguments, results):
    """Which of the tensors are one and the same and which share memory, as comparable data."""
    tensors = list(filter(is_tensor, tree_leaves((arguments, results))))
    first_object, first_storage, pattern = {}, {}, []
    for i, tensor in enumerate(tensors):
        object_of = first_object.setdefault(id(tensor), i)
        memory_of, offset = i, 0
        if tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > 0:
            memory_of = first_storage.setdefault(tensor.untyped_storage()._cdata, i)
            offset = tensor.storage_offset() - tensors[memory_of].storage_offset()
        pattern.append((object_of, memory_of, offset))
    return pattern


def compare_results(eager, run, exactness):
    """Both are (arguments, results), after the call."""
    compare("result", eager[1], run[1], exactness)
    compare("argument", eager[0], run[0], exactness)
    if exactness != "close" and sharing(*eager) != sharing(*run):
        raise Mismatch(f"memory is shared as {sharing(*run)}, in eager as {sharing(*eager)}")


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


def arguments_of(sample):
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def cotangent_of(output, generator):
    values = (torch.rand(output.shape, generator=generator, dtype=torch.float64) + 0.5).to(output.dtype)
    return values if output.layout == torch.strided else values.to_sparse()


def gradient_of(outputs_of):
    """The function (cotangents, *arguments) -> outputs and gradients, where outputs_of(*arguments) has the outputs."""

    def gradient(cotangents, *arguments):
        inputs = [leaf for leaf in tree_leaves(arguments) if is_tensor(leaf) and leaf.requires_grad]
        outputs = outputs_of(*arguments)
        return outputs, torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)

    return gradient


class Case:
    def __init__(self, op, dtype, verbose=False):
        self.op, self.dtype, self.verbose = op, dtype, verbose
        self.differentiable = cases.has_gradient(op, dtype)
        self.outcome = Outcome()

    def run(self):
        samples, error = attempt(cases.samples_of, self.op, self.dtype)
        if error is not None:
            self.outcome.unsupported += 1
            return self.outcome
        for index, sample in enumerate(samples):
            self.check_sample(index, sample)
        if samples:
            self.check_out(0, samples[0])
            self.check_second_derivative(0, samples[0])
            self.check_noncontiguous(len(samples) - 1, samples[-1])
        if self.dtype is torch.float32:
            for index, sample in enumerate(attempt(cases.error_samples_of, self.op)[0] or []):
                self.check("error", index, self.forward, copied(arguments_of(sample), requires_grad=False))
        return self.outcome

    # -- the ways of checking

    def check_sample(self, index, sample):
        arguments = arguments_of(sample)
        self.check("forward", index, self.forward, copied(arguments, requires_grad=False))
        self.check_gradient("gradient", index, self.forward, sample)
        if self.op.inplace_variant is None or sample.broadcasts_input:
            return
        self.check("in-place", index, self.inplace, copied(arguments, requires_grad=False), self.out_of_place)
        if self.op.supports_inplace_autograd:
            self.check_gradient("in-place gradient", index, self.inplace_on_copy, sample, self.forward)

    def check_noncontiguous(self, index, sample):
        sample, error = attempt(sample.noncontiguous)
        if error is None:
            self.check("noncontiguous", index, self.forward, copied(arguments_of(sample), requires_grad=False))
            self.check_gradient("noncontiguous gradient", index, self.forward, sample)

    def check_out(self, index, sample):
        arguments = copied(arguments_of(sample), requires_grad=False)
        result, error = attempt(self.forward, *copied(arguments))
        if not self.op.supports_out or error is not None or not all(map(is_tensor, tree_leaves(result))):
            return

        def write_out(out, input, args, kwargs):
            return self.op.op(input, *args, out=out, **kwargs)

        self.check("out", index, write_out, (tree_map(torch.zeros_like, result), *arguments))

    def check_second_derivative(self, index, sample):
        if not self.op.supports_gradgrad or self.dtype not in (torch.float32, torch.float64):
            return

        def first_derivative(*arguments):
            outputs = self.differentiable_outputs(self.forward, sample)(*arguments)
            inputs = [leaf for leaf in tree_leaves(arguments) if is_tensor(leaf) and leaf.requires_grad]
            ones = [torch.ones_like(output) for output in outputs]
            return torch.autograd.grad(outputs, inputs, ones, allow_unused=True, create_graph=True)

        self.check_gradient("second derivative", index, first_derivative, sample)

    def check_gradient(self, way, index, function, sample, substitute=None):
        arguments = arguments_of(sample)
        wanted = any(is_tensor(leaf) and leaf.requires_grad for leaf in tree_leaves(arguments))
        if not self.differentiable or not wanted:
            return
        outputs_of = self.differentiable_outputs(function, sample)
        outputs, error = attempt(outputs_of, *copied(arguments))
        if error is not None or not outputs:
            return
        generator = torch.Generator().manual_seed(7)
        cotangents = [cotangent_of(output, generator) for output in outputs]
        if substitute is not None:
            substitute = gradient_of(self.differentiable_outputs(substitute, sample))
        self.check(way, index, gradient_of(outputs_of), (cotangents, *copied(arguments)), substitute)

    @staticmethod
    def differentiable_outputs(function, sample):
        process = sample.output_process_fn_grad or (lambda x: x)

        def outputs_of(*arguments):
            leaves = tree_leaves(process(function(*arguments)))
            return [leaf for leaf in leaves if is_tensor(leaf) and leaf.requires_grad]

        return outputs_of

    # -- the op in its variants, as functions of (input, args, kwargs)

    def forward(self, input, args, kwargs):
        return self.op.op(input, *args, **kwargs)

    def inplace(self, input, args, kwargs):
        return self.op.inplace_variant(input, *args, **kwargs)

    def inplace_on_copy(self, input, args, kwargs):
        return self.inplace(tree_map(lambda leaf: leaf.clone() if is_tensor(leaf) else leaf, input), args, kwargs)

    def out_of_place(self, input, args, kwargs):
        """What the in-place variant is written down as."""
        result = self.forward(input, args, kwargs)
        for target, value in zip(tree_leaves(input), tree_leaves(result)):
            target.copy_(value)
        return input

    # -- one recording

    def check(self, way, index, function, arguments, substitute=None):
        """One recording against eager; what came out goes into the outcome.

        `substitute` computes the same out of place: PyTorch's own in-place ops differ from the others in the last bit
        of some complex numbers, and what is written down are the others.
        """
        exactness = "shape" if self.op.name in SHAPE_ONLY else "bits"
        if self.op.name in GENERAL_FORMULA and way not in ("forward", "in-place", "noncontiguous", "out"):
            exactness = "close"
        failed = None
        try:
            self.compare_with_eager(function, arguments, exactness, substitute)
        except smelt.RecordError as error:
            self.outcome.refused.append(f"{way}: {reason_of(error)}")
        except Mismatch as error:
            failed = str(error)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
        if failed is not None:
            self.outcome.failed.append(f"{way}, sample {index}: {failed}")
        if self.verbose:
            show(way, index, function, arguments, failed)

    def compare_with_eager(self, function, arguments, exactness, substitute):
        ours, theirs = copied(arguments), copied(arguments)
        eager, expected_error = attempt(function, *theirs)
        torch.manual_seed(1)
        before = torch.get_rng_state()
        graph, error = attempt(smelt.record, function, *ours)
        if not torch.equal(torch.get_rng_state(), before):
            raise Mismatch("record() changed the random state")
        compare("an argument, by record()", arguments, ours)
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
        try:
            compare_results((theirs, eager), (ours, run), exactness)
        except Mismatch:
            if substitute is None:
                raise
            expected = copied(arguments)
            compare_results((expected, seeded(substitute, *expected)), (ours, run), exactness)
        self.outcome.recorded += 1


# -- for people


def reason_of(error):
    """The sentence without the user's line."""
    return str(error).split(" (at ")[0]


def shown(value):
    if is_tensor(value):
        return describe(value) + " requires grad" * value.requires_grad
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(shown, value)) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
    return repr(value)


def show(way, index, function, arguments, failed):
    print(f"--- {way}, sample {index}: {shown(arguments)}")
    try:
        graph = seeded(smelt.record, function, *copied(arguments))
        print(graph)
        seeded(graph.run, *copied(arguments))
    except Exception:
        traceback.print_exc()
    if failed is not None:
        print("FAILED:", failed)
