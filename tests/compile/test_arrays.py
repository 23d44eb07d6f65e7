"""Tensors made of numpy's arrays: each call makes its own of what is in the array then."""

import numpy as np
import pytest
import torch

import smelt


def shared(x, array):
    return x * torch.from_numpy(array)


def copied(x, array):
    return x + torch.tensor(array)


def converted(x, array):
    return x - torch.as_tensor(array, dtype=torch.float64)


def returned(x, array):
    return x.sin(), torch.tensor(array), torch.from_numpy(array)


def written(x, array):
    torch.from_numpy(array).add_(1)
    return x * 2


def of_an_attribute(x, array):
    return x * torch.from_numpy(HOLDER.array)


class HOLDER:
    array = np.arange(4, dtype=np.float32)


PROGRAMS = [shared, copied, converted, returned, written, of_an_attribute]


@pytest.mark.parametrize('program', PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_in_the_array_counts(program):
    compiled = smelt.compile(program, fullgraph=True)
    ours = np.arange(4, dtype=np.float32)
    theirs = ours.copy()
    for step in range(5):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, ours), program(x, theirs))
        np.testing.assert_array_equal(ours, theirs)
        ours[step % 4] = theirs[step % 4] = 10.0 * step
        HOLDER.array[step % 4] = step
    assert smelt.stats()['graph_breaks'] == 0


@pytest.mark.parametrize('program', PROGRAMS[:3], ids=lambda program: program.__name__)
def test_other_arrays(program):
    compiled = smelt.compile(program)
    for make in (np.float32, np.float64, np.float32, np.int64):
        for size in (4, 1, 4):
            x, array = torch.randn(4), np.ones(size, dtype=make)
            torch.testing.assert_close(compiled(x, array), program(x, array))


def test_memory_is_shared_or_not_as_ever():
    compiled = smelt.compile(returned)
    array = np.arange(4, dtype=np.float32)
    for _ in range(3):
        _, own, view = compiled(torch.randn(4), array)
        own.add_(100)
        assert array.max() < 100
        view.mul_(2)
        assert view.data_ptr() == torch.from_numpy(array).data_ptr()
    assert array[3] == 24


def test_arrays_that_the_code_makes():
    def program(x):
        array = np.arange(4, dtype=np.float32) * 2
        return x * torch.from_numpy(array)

    compiled = smelt.compile(program)
    for _ in range(3):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x), program(x))
