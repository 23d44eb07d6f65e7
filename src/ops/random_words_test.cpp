// Which random word an element of a tensor gets: as PyTorch's kernels deal them out.
#include <gtest/gtest.h>

#include "loops/philox.h"
#include "ops/run_node_test.h"

namespace smelt {
namespace {

constexpr int64_t kSeed = 77, kPlace = 5, kThreads = 256;

// Of a thread that takes `vector` neighbours at a time, or single elements a grid apart.
uint32_t word_of(int64_t element, int64_t vector) {
  int64_t thread, word;
  if (vector == 1) {
    const int64_t turn = element / (4 * kThreads), rest = element % (4 * kThreads);
    thread = rest % kThreads;
    word = 4 * turn + rest / kThreads;
  } else {
    const int64_t turn = element / (vector * kThreads), rest = element % (vector * kThreads);
    const int64_t inside = rest % vector, calls = vector >= 4 ? vector / 4 : 1;
    thread = rest / vector;
    word = 4 * (turn * calls + inside / 4) + inside % 4;
  }
  return loops::philox_word(kSeed, thread, 4 * kPlace + word);
}

std::string line(const std::string& type, const std::string& op, int64_t vector) {
  return "%0: " + type + " = smelt::" + op + "(77, 5, [8, 10, 64], [640, 1, 10], " +
         std::to_string(vector) + ", 256, cpu)";
}

TEST(RandomWords, ElementsGetTheirOwn) {
  for (const int64_t vector : {1, 2, 4, 8}) {
    const Numbers bits = run_line({}, line("i64[8, 10, 64]{640, 1, 10}", "random_bits", vector));
    const Numbers uniform =
        run_line({}, line("f32[8, 10, 64]{640, 1, 10}", "random_uniform", vector));
    ASSERT_EQ(bits.size(), 5120u);
    for (int64_t i = 0; i < 5120; ++i) {
      ASSERT_EQ(bits[i], word_of(i, vector)) << i << " of " << vector;
      ASSERT_EQ(uniform[i], static_cast<float>(word_of(i, vector)) * 0x1p-32f + 0x1p-33f);
    }
  }
}

}  // namespace
}  // namespace smelt
