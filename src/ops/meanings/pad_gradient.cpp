// Gradients of mirrored and repeated pads: a pixel adds up the pixels it was read by, in the order
// of the output.
#include "ops/meanings/families.h"
#include "ops/meanings/windows.h"
#include "ops/rules/element.h"
#include "ops/rules/layout.h"

namespace smelt {
namespace {

// A pixel is added up from at most so many, most of which are beside a pad of no concern to it.
constexpr int64_t kMostReaders = 32;

enum class Pad : uint8_t { reflects, repeats };

// One dimension: pads on either side of an input.
struct Padded {
  int64_t before, after;
  Size input;
};

// (grad_output, self, padding): pairs from the last dimension on.
Padded padded_at(const NodeReader& q, size_t pair) {
  const std::vector<int64_t> pad = q.integers(2);
  return {pad[2 * pair], pad[2 * pair + 1], q.result().sizes[q.result().sizes.size() - 1 - pair]};
}

int64_t readers_in(const Padded& padded, Pad form) {
  if (form == Pad::repeats) return padded.before + 1 + padded.after;
  return (padded.before > 0) + 1 + (padded.after > 0);
}

// A pixel of the output, and whether it was read from the input's.
struct Reader {
  Index pixel;
  Condition reads;
};

std::vector<Reader> mirrored(ElementQuery& q, const Padded& padded, const Index& at) {
  std::vector<Reader> readers;
  const Size &input = padded.input, last = input - 1, output = input + padded.before + padded.after;
  if (padded.before > 0) {
    const Index pixel = Index(Size(padded.before)) - at;
    const Expr reads = is_at_least(q, pixel, 0) & is_at_least(q, at, 1);
    readers.push_back({clamped_index(q, pixel, output), {reads}});
  }
  readers.push_back({at + Index(Size(padded.before)), {}});
  if (padded.after > 0) {
    const Index pixel = Index(last * 2 + padded.before) - at;
    const Expr reads = is_below(q, pixel, output) & is_below(q, at, last);
    readers.push_back({clamped_index(q, pixel, output), {reads}});
  }
  return readers;
}

std::vector<Reader> repeated(ElementQuery& q, const Padded& padded, const Index& at) {
  std::vector<Reader> readers;
  const Expr first = is_below(q, at, 1), last = is_at_least(q, at, padded.input - 1);
  for (int64_t i = 0; i < padded.before; ++i) readers.push_back({Index(Size(i)), {first}});
  readers.push_back({at + Index(Size(padded.before)), {}});
  for (int64_t i = 0; i < padded.after; ++i)
    readers.push_back({Index(padded.input + padded.before + i), {last}});
  return readers;
}

// The sum over the last `pairs` dimensions, at a place whose dimensions before are known.
Expr summed(ElementQuery& q, Pad form, size_t pairs, Indices& place) {
  const DType wide = accumulate_of(q.result().dtype);
  if (pairs == 0) return q.load(q.value(0), place).to(wide);
  const Padded padded = padded_at(q, pairs - 1);
  const size_t d = place.size() - pairs;
  const Index at = q.at()[d];
  const std::vector<Reader> readers =
      form == Pad::reflects ? mirrored(q, padded, at) : repeated(q, padded, at);
  Expr total;
  for (const Reader& reader : readers) {
    place[d] = reader.pixel;
    Expr part = summed(q, form, pairs - 1, place);
    if (reader.reads.all.builder) part = select(reader.reads.all, part, 0.0);
    total = total.builder ? total + part : part;
  }
  return total;
}

template <Pad form, size_t pairs>
Expr gradient(ElementQuery& q) {
  Indices place = q.at();
  return summed(q, form, pairs, place);
}

template <Pad form, size_t pairs>
Decision allows_gradient(const NodeReader& q) {
  if (!all_certainly_positive(q.result().sizes)) return Decision::forbid("a pad around nothing");
  int64_t readers = 1;
  for (size_t pair = 0; pair < pairs; ++pair) {
    const Padded padded = padded_at(q, pair);
    if (padded.before < 0 || padded.after < 0) return Decision::forbid("pixels are cut off");
    readers *= readers_in(padded, form);
  }
  if (readers > kMostReaders) return Decision::forbid("a large pad");
  if (form == Pad::reflects && loops::is_half(q.result().dtype))
    return Decision::forbid("pixels of two bytes");
  if (pairs == 3 && !is_row_major(q.result()) && loops::is_half(q.result().dtype))
    return Decision::forbid("cubes whose channels come last");
  return Decision::allow();
}

template <Pad form, size_t pairs>
constexpr Meaning gradient_of(std::string_view name) {
  return elsewhere(Pattern::gather, name, gradient<form, pairs>, allows_gradient<form, pairs>,
                   kCompound);
}

constexpr Meaning kRows[] = {
    gradient_of<Pad::reflects, 1>("aten::reflection_pad1d_backward"),
    gradient_of<Pad::reflects, 2>("aten::reflection_pad2d_backward"),
    gradient_of<Pad::repeats, 1>("aten::replication_pad1d_backward"),
    gradient_of<Pad::repeats, 2>("aten::replication_pad2d_backward"),
    gradient_of<Pad::repeats, 3>("aten::replication_pad3d_backward"),
};

}  // namespace

std::span<const Meaning> pad_gradient_meanings() { return kRows; }

}  // namespace smelt
