// Random numbers of a generator's state, as PyTorch's kernels give them to the elements of a
// tensor on a GPU.
//
// A thread draws four words at a time from a stream of its own. Where the kernel is one of
// TensorIterator's (vector is 1), the four go to elements as far apart as there are threads. A
// dropout gives the words to `vector` elements next to each other: with 8 a thread takes two times
// four, with 2 half of the four are lost. Elements are counted as they lie in memory.
#include "ops/meanings/families.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

// A word's place in a block, and the last digits of a place, are constants where a thread computes
// neighbours: then the block is computed once.
template <loops::Op op>
Expr drawn(ElementQuery& q) {
  q.set_compute_dtype(DType::i64);
  const Expr seed = q.operand(0), place = q.operand(1);
  const loops::Extents extents = q.extents();
  const Index element = loops::linear(q.at(), q.sizes(3));
  const int64_t vector = q.integer(4), threads = q.integer(5);
  const int64_t words = vector == 2 ? 4 : vector;  // of a thread in one turn
  const Index stream =
      loops::remainder(loops::quotient(element, vector, extents), threads, extents);
  const Index word = loops::quotient(element, vector * threads, extents) * words +
                     loops::remainder(element, vector, extents);
  const Expr at = place * 4 + q.index_value(word);
  loops::Builder& builder = q.builder();
  return {&builder, builder.random(op, seed.value, q.index_value(stream).value, at.value)};
}

// In (0, 1], as curand rounds it.
Expr uniform(ElementQuery& q) {
  return drawn<loops::Op::random_bits>(q).to(DType::f32) * 0x1p-32 + 0x1p-33;
}

constexpr int kDraws = 60;

constexpr Meaning row(std::string_view name, ElementRule rule) {
  return with_numbers(elsewhere(Pattern::factory, name, rule, nullptr, kDraws), {0, 1});
}

constexpr Meaning kRows[] = {
    row("smelt::random_bits", drawn<loops::Op::random_bits>),
    row("smelt::random_normal", drawn<loops::Op::random_normal>),
    row("smelt::random_uniform", uniform),
};

}  // namespace

std::span<const Meaning> random_meanings() { return kRows; }

}  // namespace smelt
