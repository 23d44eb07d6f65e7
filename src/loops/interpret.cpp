#include "loops/interpret.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "loops/philox.h"
#include "loops/scalar.h"

namespace smelt::loops {
namespace {

template <class T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void write_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

Scalar read_element(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::f64: return {read_as<double>(at), 0};
    case DType::f32: return {read_as<float>(at), 0};
    case DType::f16: return {from_f16_bits(read_as<uint16_t>(at)), 0};
    case DType::bf16: return {from_bf16_bits(read_as<uint16_t>(at)), 0};
    case DType::i64: return {0, read_as<int64_t>(at)};
    case DType::i32: return {0, read_as<int32_t>(at)};
    case DType::i16: return {0, read_as<int16_t>(at)};
    case DType::i8: return {0, read_as<int8_t>(at)};
    case DType::u8: return {0, read_as<uint8_t>(at)};
    case DType::b8: return {0, read_as<uint8_t>(at) != 0};
    default: SMELT_CHECK(false, "a kernel has no such dtype");
  }
}

void write_element(std::byte* at, DType dtype, const Scalar& value) {
  switch (dtype) {
    case DType::f64: return write_as(at, value.number);
    case DType::f32: return write_as(at, static_cast<float>(value.number));
    case DType::f16: return write_as(at, f16_bits(static_cast<float>(value.number)));
    case DType::bf16: return write_as(at, bf16_bits(static_cast<float>(value.number)));
    case DType::i64: return write_as(at, value.integer);
    case DType::i32: return write_as(at, static_cast<int32_t>(value.integer));
    case DType::i16: return write_as(at, static_cast<int16_t>(value.integer));
    case DType::i8:
    case DType::u8:
    case DType::b8: return write_as(at, static_cast<uint8_t>(value.integer));
    default: SMELT_CHECK(false, "a kernel has no such dtype");
  }
}

// Two numbers of a dtype as one; those of half precision are combined in f32 and rounded once.
Scalar combined(Op op, DType dtype, const Scalar& a, const Scalar& b) {
  if (is_half(dtype)) return {round_to(dtype, compute(op, DType::f32, a, b)->number), 0};
  return *compute(op, dtype, a, b);
}

float normal(uint64_t key, uint64_t stream, uint64_t place) {
  const std::array<uint32_t, 4> words = philox(key, stream, place / 4);
  const uint64_t first = place % 4 / 2 * 2;
  const double radius = std::sqrt(-2 * std::log((words[first] + 0.5) * 0x1p-32));
  const double angle = (words[first + 1] + 0.5) * 0x1p-32 * 6.283185307179586;
  return static_cast<float>(radius * (place % 2 == 0 ? std::sin(angle) : std::cos(angle)));
}

// What a reduction has found so far.
struct Reducing {
  Scalar value;
  int64_t position = 0;
  bool empty = true;
};

// Among floating values a NaN is before everything.
bool is_before(DType dtype, Reduction reduction, const Scalar& a, const Scalar& b) {
  bool least = reduction == Reduction::argmin;
  if (!is_floating(dtype)) return least ? a.integer < b.integer : a.integer > b.integer;
  if (std::isnan(b.number)) return false;
  if (std::isnan(a.number)) return true;
  return least ? a.number < b.number : a.number > b.number;
}

Scalar lowest(DType dtype) {
  switch (dtype) {
    case DType::i64: return {0, std::numeric_limits<int64_t>::min()};
    case DType::i32: return {0, std::numeric_limits<int32_t>::min()};
    case DType::i16: return {0, std::numeric_limits<int16_t>::min()};
    case DType::i8: return {0, std::numeric_limits<int8_t>::min()};
    case DType::u8:
    case DType::b8: return {0, 0};
    default: return {-INFINITY, 0};
  }
}

Scalar highest(DType dtype) {
  switch (dtype) {
    case DType::i64: return {0, std::numeric_limits<int64_t>::max()};
    case DType::i32: return {0, std::numeric_limits<int32_t>::max()};
    case DType::i16: return {0, std::numeric_limits<int16_t>::max()};
    case DType::i8: return {0, std::numeric_limits<int8_t>::max()};
    case DType::u8: return {0, std::numeric_limits<uint8_t>::max()};
    case DType::b8: return {0, 1};
    default: return {INFINITY, 0};
  }
}

// What comes out where there is nothing to combine.
Scalar of_nothing(DType dtype, Reduction reduction) {
  switch (reduction) {
    case Reduction::product:
    case Reduction::all: return {1, 1};
    case Reduction::min: return highest(dtype);
    case Reduction::max: return lowest(dtype);
    default: return {0, 0};
  }
}

void combine(Reducing& so_far, const Scalar& value, DType dtype, Reduction reduction,
             int64_t position) {
  switch (reduction) {
    case Reduction::sum: so_far.value = *compute(Op::add, dtype, so_far.value, value); break;
    case Reduction::product: so_far.value = *compute(Op::mul, dtype, so_far.value, value); break;
    case Reduction::min: so_far.value = *compute(Op::min, dtype, so_far.value, value); break;
    case Reduction::max: so_far.value = *compute(Op::max, dtype, so_far.value, value); break;
    case Reduction::any: so_far.value.integer |= value.integer; break;
    case Reduction::all: so_far.value.integer &= value.integer; break;
    case Reduction::argmin:
    case Reduction::argmax:
      if (!so_far.empty && !is_before(dtype, reduction, value, so_far.value)) break;
      so_far.value = value;
      so_far.position = position;
  }
  so_far.empty = false;
}

class Interpreter {
 public:
  Interpreter(const Kernel& kernel, const Call& call)
      : kernel_(kernel),
        call_(call),
        size_params_(size_params(kernel)),
        values_(kernel.insts.size()),
        reducing_(kernel.insts.size()),
        at_(kernel.dims(), 0) {
    SMELT_CHECK(call.buffers.size() == kernel.buffers.size(), "a pointer for each buffer");
    SMELT_CHECK(call.sizes.size() == size_params_.size(), "a number for each unknown size");
    SMELT_CHECK(call.params.size() >= static_cast<size_t>(kernel.params), "all parameters");
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      const Buffer& buffer = kernel.buffers[i];
      memory_.push_back(static_cast<std::byte*>(call.buffers[i]));
      if (buffer.kind != Buffer::Kind::scratch) continue;
      scratch_.emplace_back(size(buffer.elements) * bytes_of(buffer.dtype));
      memory_.back() = scratch_.back().data();
    }
  }

  bool run() {
    each_point(0, kernel_.outer.size(), [this](int64_t) {
      for (const Stage& stage : kernel_.stages) run_stage(stage);
    });
    return ok_;
  }

 private:
  int64_t size(const Size& size) const {
    if (size.is_known()) return size.known();
    auto place = std::find(size_params_.begin(), size_params_.end(), size);
    SMELT_CHECK(place != size_params_.end(), size.str() + " is no size of the kernel");
    return call_.sizes[place - size_params_.begin()];
  }

  // Calls visit(flat position) for each point of the dimensions [first, last), row by row.
  template <class Visit>
  void each_point(size_t first, size_t last, const Visit& visit) {
    int64_t points = 1;
    for (size_t d = first; d < last; ++d) points *= size(kernel_.extent(static_cast<int>(d)));
    for (int64_t flat = 0; flat < points; ++flat) {
      int64_t rest = flat;
      for (size_t d = last; d-- > first;) {
        int64_t extent = size(kernel_.extent(static_cast<int>(d)));
        at_[d] = rest % extent;
        rest /= extent;
      }
      visit(flat);
    }
  }

  void run_stage(const Stage& stage) {
    if (!stage.inner) return run_insts(stage, 0);
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel_.insts[v];
      if (inst.op == Op::reduce || inst.op == Op::scan)
        reducing_[v] = {of_nothing(inst.dtype, inst.reduction), 0, true};
    }
    each_point(kernel_.outer.size(), kernel_.dims(), [&](int64_t flat) { run_insts(stage, flat); });
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel_.insts[v];
      if (inst.op != Op::reduce) continue;
      values_[v] = reducing_[v].value;
      if (gives_position(inst.reduction)) values_[v] = {0, reducing_[v].position};
    }
  }

  void run_insts(const Stage& stage, int64_t flat) {
    for (Val v = stage.begin; v < stage.end; ++v) {
      const Inst& inst = kernel_.insts[v];
      if (inst.op == Op::reduce || inst.op == Op::scan) {
        Val argument = inst.args[0];
        combine(reducing_[v], values_[argument], kernel_.insts[argument].dtype, inst.reduction,
                flat);
        if (inst.op == Op::scan) values_[v] = reducing_[v].value;
      } else {
        values_[v] = result_of(inst);
      }
    }
  }

  Scalar argument(const Inst& inst, int i) const {
    return inst.args[i] < 0 ? Scalar{} : values_[inst.args[i]];
  }

  Scalar result_of(const Inst& inst) {
    Scalar a = argument(inst, 0);
    switch (inst.op) {
      case Op::constant:
        return is_floating(inst.dtype) ? Scalar{round_to(inst.dtype, inst.number), 0}
                                       : Scalar{0, wrap_to(inst.dtype, inst.integer)};
      case Op::param: return param(inst);
      case Op::index: return {0, position(inst.index)};
      case Op::load: return read_element(element(inst), inst.dtype);
      case Op::store: write_element(element(inst), inst.dtype, a); return {};
      case Op::accumulate: {
        std::byte* at = element(inst);
        const Scalar old = read_element(at, inst.dtype);
        write_element(at, inst.dtype, combined(op_of(inst.reduction), inst.dtype, old, a));
        return {};
      }
      case Op::check: {
        bool inside = a.integer >= 0 && a.integer < size(inst.bound);
        ok_ &= inside;
        return {0, inside ? a.integer : 0};
      }
      case Op::cast: return convert(a, kernel_.insts[inst.args[0]].dtype, inst.dtype);
      case Op::random_bits:
        return {0, philox_word(a.integer, argument(inst, 1).integer, argument(inst, 2).integer)};
      case Op::random_normal:
        return {normal(a.integer, argument(inst, 1).integer, argument(inst, 2).integer), 0};
      case Op::select: return a.integer ? argument(inst, 1) : argument(inst, 2);
      default: break;
    }
    std::optional<Scalar> result =
        compute(inst.op, kernel_.insts[inst.args[0]].dtype, a, argument(inst, 1));
    ok_ &= result.has_value();
    return result.value_or(Scalar{});
  }

  Scalar param(const Inst& inst) const {
    uint64_t bits = call_.params[inst.slot];
    return is_floating(inst.dtype) ? make_scalar(inst.dtype, std::bit_cast<double>(bits))
                                   : make_scalar(inst.dtype, static_cast<int64_t>(bits));
  }

  int64_t position(const Index& index) const {
    auto sum = static_cast<uint64_t>(size(index.constant()));
    for (const Term& term : index.terms())
      sum += static_cast<uint64_t>(size(term.stride)) * static_cast<uint64_t>(position(term.atom));
    return static_cast<int64_t>(sum);
  }

  int64_t position(const Atom& atom) const {
    if (atom.kind == Atom::Kind::dim) return at_[atom.id];
    if (atom.kind == Atom::Kind::value) return values_[atom.id].integer;
    Size inner = position(*atom.inner), divisor = size(atom.divisor);
    return (atom.kind == Atom::Kind::quotient ? floor_div(inner, divisor) : modulo(inner, divisor))
        .known();
  }

  std::byte* element(const Inst& inst) const {
    const Buffer& buffer = kernel_.buffers[inst.slot];
    int64_t at = position(inst.index);
    SMELT_CHECK(
        at >= 0 && (!buffer.elements.is_known() || at < buffer.elements.known()),
        "element " + std::to_string(at) + " of b" + std::to_string(inst.slot) + " does not exist");
    return memory_[inst.slot] + at * bytes_of(buffer.dtype);
  }

  const Kernel& kernel_;
  const Call& call_;
  Sizes size_params_;
  std::vector<std::byte*> memory_;  // of each buffer
  std::vector<std::vector<std::byte>> scratch_;
  std::vector<Scalar> values_;
  std::vector<Reducing> reducing_;
  std::vector<int64_t> at_;  // the current point
  bool ok_ = true;
};

}  // namespace

bool interpret(const Kernel& kernel, const Call& call) { return Interpreter(kernel, call).run(); }

std::vector<int64_t> evaluate(const Sizes& sizes, std::span<const int64_t> symbols) {
  std::vector<int64_t> values;
  values.reserve(sizes.size());
  for (const Size& size : sizes) values.push_back(size.evaluate(symbols));
  return values;
}

}  // namespace smelt::loops
