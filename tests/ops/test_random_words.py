"""Random numbers of a state, as ops of PyTorch's compute them where kernels can't (src/ops/random_words_test.cpp has kernels)."""
import pytest
import torch

import smelt  # noqa: F401  which makes the ops known

CPU = torch.device("cpu")


def philox(seed, stream, block):
    words = [block & 0xFFFFFFFF, block >> 32, stream & 0xFFFFFFFF, stream >> 32]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [(b >> 32) ^ words[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ words[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words


def word_of(element, seed, place, vector, threads):
    """As ATen's kernels deal out what their threads draw: so many neighbours at a time, or one a grid apart."""
    if vector == 1:
        turn, rest = divmod(element, 4 * threads)
        lane, thread = divmod(rest, threads)
        return philox(seed, thread, place + turn)[lane]
    turn, rest = divmod(element, vector * threads)
    thread, inside = divmod(rest, vector)
    call = turn * (vector // 4) + inside // 4 if vector >= 4 else turn
    return philox(seed, thread, place + call)[inside % 4]


def test_the_words_of_a_known_state():
    assert philox(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    bits = torch.ops.smelt.random_bits(0, 0, [4], [1], 4, 256, CPU)
    assert bits.tolist() == philox(0, 0, 0)


@pytest.mark.parametrize("vector", [1, 2, 4, 8])
@pytest.mark.parametrize("size, stride", [([40, 64], [64, 1]), ([8, 10, 32], [320, 1, 10])])
def test_elements_get_their_words(vector, size, stride):
    seed, place, threads = 0x123456789ABCDEF0, (1 << 33) + 7, 256
    bits = torch.ops.smelt.random_bits(seed, place, size, stride, vector, threads, CPU)
    assert bits.stride() == tuple(stride)
    flat = torch.as_strided(bits, [bits.numel()], [1]).tolist()
    assert flat == [word_of(i, seed, place, vector, threads) for i in range(bits.numel())]


def test_uniform_numbers_are_above_zero_and_at_most_one():
    numbers = torch.ops.smelt.random_uniform(5, 0, [1 << 20], [1], 1, 1 << 18, CPU)
    assert 0 < numbers.min() < 1e-4 and 0.9999 < numbers.max() <= 1 and abs(numbers.mean() - 0.5) < 1e-3
    normal = torch.ops.smelt.random_normal(5, 0, [1 << 20], [1], 1, 1 << 18, CPU)
    assert abs(normal.mean()) < 5e-3 and abs(normal.std() - 1) < 5e-3
