// Pads, nearest-neighbour upsampling and pixel shuffles: images read at computed pixels.
#include "ops/meanings/families.h"
#include "ops/meanings/interpolation.h"
#include "ops/rules/element.h"

namespace smelt {
namespace {

// constant_pad_nd(self, pad, value): pairs from the last dimension on; negative ones cut.
Expr constant_pad(ElementQuery& q) {
  const TensorType& self = q.type(0);
  const DType dtype = q.result().dtype, between = accumulate_of(dtype);
  const Sizes pad = q.sizes(1);
  Indices place = q.at();
  Expr inside;
  for (size_t i = 0; 2 * i < pad.size(); ++i) {
    const size_t d = place.size() - 1 - i;
    const bool grows = !pad[2 * i].is(0) || !pad[2 * i + 1].is(0);
    if (!grows) continue;
    const Index index = place[d] - Index(pad[2 * i]);
    Expr here = is_below(q, index, self.sizes[d]);
    if (!pad[2 * i].is(0)) here = here & is_at_least(q, index, 0);
    inside = inside.builder ? inside & here : here;
    place[d] = clamped_index(q, index, self.sizes[d]);
  }
  const Expr loaded = q.load(q.value(0), place);
  if (!inside.builder) return loaded;
  q.set_compute_dtype(dtype);
  return select(inside, loaded.to(between), q.operand(2).to(between));
}

Decision allows_constant_pad(const NodeReader& q) {
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("a pad around nothing");
  const bool fraction =
      is_unknown_number(q, 2) ? is_floating(q.type(2).dtype) : q.arg(2).is<double>();
  if (fraction && !is_floating(q.result().dtype)) return Decision::forbid("a fraction of integers");
  return Decision::allow();
}

// The places of an image are its last `pad.size() / 2` dimensions.
template <Index (*place_of)(ElementQuery&, const Index&, const Size&)>
Expr mirror_pad(ElementQuery& q) {
  const Sizes pad = q.sizes(1);
  Indices place = q.at();
  for (size_t i = 0; 2 * i < pad.size(); ++i) {
    const size_t d = place.size() - 1 - i;
    if (pad[2 * i].is(0) && pad[2 * i + 1].is(0)) continue;
    place[d] = place_of(q, place[d] - Index(pad[2 * i]), q.type(0).sizes[d]);
  }
  return q.load(q.value(0), place);
}

// |x| mirrors at the low end, last - |last - x| at the high one.
Index reflected(ElementQuery& q, const Index& index, const Size& size) {
  const Expr last = q.index_value(Index(size - 1));
  const Expr place = last - abs(last - abs(q.index_value(index)));
  return q.builder().as_index(place.value);
}

// upsample_nearest*(self, output_size, scales...)
template <Nearest form>
Expr upsample_nearest(ElementQuery& q) {
  Indices place = q.at();
  for (size_t d = 2; d < place.size(); ++d) {
    const Expr pixel = nearest_pixel(q, form, place[d], q.type(0).sizes[d].known(),
                                     q.result().sizes[d].known(), q.number(d, 0));
    place[d] = q.builder().as_index(pixel.value);
  }
  return q.load(q.value(0), place);
}

Decision allows_upsample(const NodeReader& q) {
  for (int d = 2; d < q.result().rank(); ++d) {
    if (!q.type(0).sizes[d].is_known() || !q.result().sizes[d].is_known())
      return Decision::forbid("the sizes of the image are not known");
  }
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("an empty image");
  return Decision::allow();
}

// pixel_shuffle(self, factor): channel (c, i, j) becomes pixel (i, j) of a block.
Expr pixel_shuffle(ElementQuery& q) {
  const Size factor = q.size_at(1);
  const loops::Extents extents = q.extents();
  Indices place = q.at();
  Index& x = place[place.size() - 1];
  Index& y = place[place.size() - 2];
  Index& channel = place[place.size() - 3];
  channel = channel * (factor * factor) + remainder(y, factor, extents) * factor +
            remainder(x, factor, extents);
  x = quotient(x, factor, extents);
  y = quotient(y, factor, extents);
  return q.load(q.value(0), place);
}

Expr pixel_unshuffle(ElementQuery& q) {
  const Size factor = q.size_at(1);
  const loops::Extents extents = q.extents();
  Indices place = q.at();
  Index& x = place[place.size() - 1];
  Index& y = place[place.size() - 2];
  Index& channel = place[place.size() - 3];
  x = x * factor + remainder(channel, factor, extents);
  y = y * factor + remainder(quotient(channel, factor, extents), factor, extents);
  channel = quotient(channel, factor * factor, extents);
  return q.load(q.value(0), place);
}

Decision allows_shuffle(const NodeReader& q) {
  if (!is_certainly_positive(q.size_at(1))) return Decision::forbid("no factor");
  return Decision::allow();
}

// Rows of f16 and bf16 would be gathered one by one.
Decision allows_mirror_pad(const NodeReader& q) {
  if (!all_certainly_positive(q.type(0).sizes)) return Decision::forbid("a pad around nothing");
  if (q.result().strides.back().is(1) && loops::is_half(q.result().dtype))
    return Decision::forbid("pixels of two bytes");
  return Decision::allow();
}

constexpr Meaning gathering(std::string_view name, ElementRule rule,
                            Decision (*allows)(const NodeReader&), int cost = 3) {
  return elsewhere(Pattern::gather, name, rule, allows, cost);
}

constexpr ElementRule kClassic = upsample_nearest<Nearest::classic>;
constexpr ElementRule kExact = upsample_nearest<Nearest::exact>;

constexpr Meaning kRows[] = {
    with_numbers(gathering("aten::constant_pad_nd", constant_pad, allows_constant_pad), {2}),
    gathering("aten::reflection_pad1d", mirror_pad<reflected>, allows_mirror_pad),
    gathering("aten::reflection_pad2d", mirror_pad<reflected>, allows_mirror_pad),
    gathering("aten::reflection_pad3d", mirror_pad<reflected>, allows_mirror_pad),
    gathering("aten::replication_pad1d", mirror_pad<clamped_index>, allows_mirror_pad),
    gathering("aten::replication_pad2d", mirror_pad<clamped_index>, allows_mirror_pad),
    gathering("aten::replication_pad3d", mirror_pad<clamped_index>, allows_mirror_pad),
    gathering("aten::_upsample_nearest_exact1d", kExact, allows_upsample),
    gathering("aten::_upsample_nearest_exact2d", kExact, allows_upsample),
    gathering("aten::_upsample_nearest_exact3d", kExact, allows_upsample),
    gathering("aten::upsample_nearest1d", kClassic, allows_upsample),
    gathering("aten::upsample_nearest2d", kClassic, allows_upsample),
    gathering("aten::upsample_nearest3d", kClassic, allows_upsample),
    elsewhere(Pattern::view, "aten::pixel_shuffle", pixel_shuffle, allows_shuffle),
    elsewhere(Pattern::view, "aten::pixel_unshuffle", pixel_unshuffle, allows_shuffle),
};

}  // namespace

std::span<const Meaning> pad_meanings() { return kRows; }

}  // namespace smelt
