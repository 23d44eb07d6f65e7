#include "loops/random/random_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "loops/interpret.h"
#include "loops/random/random_contents.h"
#include "loops/random/random_index.h"
#include "loops/random/random_values.h"

namespace smelt::loops {
namespace {

constexpr int64_t kMaxPoints = 3000;

const std::vector<int64_t> kExtents = {1, 2, 3, 4, 6, 7, 8, 12, 16, 33, 64, 100};
const std::vector<DType> kTypes = {DType::f32, DType::f32,  DType::f32, DType::f32, DType::f64,
                                   DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16,
                                   DType::i8,  DType::u8,   DType::b8};

class Generator {
 public:
  Generator(uint64_t seed, bool symbolic)
      : random_(seed),
        symbolic_(symbolic),
        builder_(result_.kernel),
        values_(builder_, random_, seed % 5 == 4),
        places_(builder_, random_) {}

  RandomCase run() {
    Kernel& kernel = result_.kernel;
    kernel.name = "random";
    make_dims();
    kernel.ordered = random_.chance(10);
    int stages = kernel.inner.empty() ? 1 : static_cast<int>(random_.between(1, 4));
    for (int i = 0; i < stages; ++i) make_stage(i + 1 == stages);
    for (int32_t i = 0; i < kernel.params; ++i) make_param(i);
    result_.sizes = evaluate(size_params(kernel), result_.symbols);
    for (size_t i = 0; i < kernel.buffers.size(); ++i) {
      const Buffer& buffer = kernel.buffers[i];
      bool scratch = buffer.kind == Buffer::Kind::scratch;
      int64_t elements = scratch ? 0 : buffer.elements.evaluate(result_.symbols);
      result_.buffers.push_back(random_bytes(buffer.dtype, elements, contents_[i], random_));
    }
    kernel.verify();
    return std::move(result_);
  }

 private:
  struct Written {
    int32_t buffer;
    Index index;
    RandomValue value;  // what is known of what was written
    bool inner;
  };

  int dims() const {
    const Kernel& kernel = result_.kernel;
    return inner_ ? kernel.dims() : static_cast<int>(kernel.outer.size());
  }

  void make_dims() {
    int64_t points = 1;
    auto extents = [&](int64_t count) {
      Sizes sizes;
      for (int64_t i = 0; i < count; ++i) {
        int64_t extent = random_.chance(2) ? 0 : random_.one_of(kExtents);
        if (points * extent > kMaxPoints) extent = random_.between(1, 2);
        points *= std::max<int64_t>(extent, 1);
        sizes.push_back(make_size(extent));
      }
      return sizes;
    };
    result_.kernel.outer = extents(random_.between(0, 3));
    if (random_.chance(65)) result_.kernel.inner = extents(random_.between(1, 2));
    inner_points_ = product(result_.kernel.inner).evaluate(result_.symbols);
  }

  // A symbol now and then, where it may be one: symbols are at least 2.
  Size make_size(int64_t extent) {
    if (!symbolic_ || extent < 2 || random_.chance(30)) return extent;
    if (extent % 4 == 0 && extent > 4 && random_.chance(30)) {
      result_.symbols.push_back(extent / 4);
      return Size::symbol(static_cast<int>(result_.symbols.size()) - 1) * 4;
    }
    result_.symbols.push_back(extent);
    return Size::symbol(static_cast<int>(result_.symbols.size()) - 1);
  }

  int32_t add_buffer(DType dtype, Buffer::Kind kind, const Size& elements, Contents contents) {
    contents_.push_back(contents);
    return builder_.add_buffer(dtype, kind, elements);
  }

  // A parameter is of one dtype: its eight bytes are a double or an integer.
  void make_param(int32_t slot) {
    bool floating = true;
    for (const Inst& inst : result_.kernel.insts) {
      if (inst.op == Op::param && inst.slot == slot) floating = is_floating(inst.dtype);
    }
    int64_t number = random_.between(-20, 20);
    result_.params.push_back(floating ? std::bit_cast<uint64_t>(static_cast<double>(number) / 8)
                                      : static_cast<uint64_t>(number));
  }

  void make_stage(bool last) {
    bool has_inner = !result_.kernel.inner.empty();
    inner_ = has_inner && (random_.chance(70) || (last && !seen_inner_));
    seen_inner_ |= inner_;
    for (Written& written : new_writes_) written_.push_back(written);
    new_writes_.clear();
    values_.begin_stage(inner_);
    for (int64_t i = random_.between(values_.empty() ? 1 : 0, 3); i > 0; --i) load();
    if (random_.chance(20)) load_indirectly();
    if (random_.chance(20)) use_index();
    if (random_.chance(15)) use_param();
    if (!written_.empty() && random_.chance(60)) load_written();
    if (inner_ && random_.chance(15)) values_.scan(inner_points_);
    for (int64_t i = random_.between(1, 10); i > 0; --i) values_.compute();
    if (inner_ && (!last || random_.chance(30))) {
      for (int64_t i = random_.between(1, 2); i > 0; --i) values_.reduce(inner_points_);
    }
    if (last || random_.chance(30)) store();
    if (!last && has_inner && random_.chance(40)) store_to_scratch();
    if (random_.chance(10) || (last && result_.kernel.ordered)) accumulate();
  }

  RandomValue loaded(int32_t buffer, const Index& index) {
    DType dtype = result_.kernel.buffers[buffer].dtype;
    Expr expr{&builder_, builder_.load(buffer, index)};
    if (is_floating(dtype)) return {expr, 4, -3, true};
    double most = std::ldexp(1.0, 8 * bytes_of(dtype));
    return {expr, contents_[buffer].wild ? most : dtype == DType::b8 ? 1.0 : 50.0, 0, true};
  }

  void load() {
    Index index = places_.any(dims());
    Contents contents{.wild = random_.chance(8)};
    int32_t buffer =
        add_buffer(random_.one_of(kTypes), Buffer::Kind::input, places_.elements(index), contents);
    values_.add(loaded(buffer, index));
  }

  // table[ids[...], rest]
  void load_indirectly() {
    values_.add(loaded_at(add_buffer(random_.one_of(kTypes), Buffer::Kind::input, 1, {})));
  }

  RandomValue loaded_at(int32_t table) {
    Index place = indirect(table);
    return loaded(table, place);
  }

  // A checked position in the buffer, whose size becomes what is needed.
  Index indirect(int32_t table) {
    int64_t rows = random_.one_of(kExtents);
    Index ids = places_.any(dims());
    DType dtype = random_.one_of<DType>({DType::i64, DType::i64, DType::i32, DType::u8});
    Contents contents{.bound = rows, .broken = random_.chance(2)};
    int32_t buffer = add_buffer(dtype, Buffer::Kind::input, places_.elements(ids), contents);
    Val id = builder_.cast(builder_.load(buffer, ids), DType::i64);
    Index row = builder_.as_index(builder_.check(id, rows));
    Index rest = random_.chance(60) ? places_.any(dims()) : Index(0);
    Size width = places_.elements(rest);
    result_.kernel.buffers[table].elements = width * rows;
    return row * width + rest;
  }

  void use_index() {
    Index index = places_.any(dims()) - Index(random_.below(3));
    // Its range is the range of a buffer with it.
    double most = static_cast<double>(places_.elements(index).evaluate(result_.symbols)) + 3;
    values_.add({{&builder_, builder_.index(index)}, most, 0, true});
  }

  void use_param() {
    int32_t slot = result_.kernel.params;
    DType dtype =
        random_.one_of<DType>({DType::f32, DType::f64, DType::i64, DType::i32, DType::b8});
    bool floating = is_floating(dtype);
    values_.add({{&builder_, builder_.param(slot, dtype)}, 20, floating ? -3 : 0, true});
  }

  // An earlier stage wrote it, at this outer point; what a store among all dimensions wrote is read
  // at any inner point.
  void load_written() {
    const Written& written = random_.one_of(written_);
    if (written.inner && !inner_) return;
    Index index = written.index;
    if (written.inner && random_.chance(30)) index = flipped(index);
    RandomValue value = written.value;
    value.expr = {&builder_, builder_.load(written.buffer, index)};
    values_.add(value);
  }

  Index flipped(const Index& index) const {
    const Kernel& kernel = result_.kernel;
    Indices at;
    for (int d = 0; d < kernel.dims(); ++d) {
      bool inner = d >= static_cast<int>(kernel.outer.size());
      at.push_back(inner ? Index(kernel.extent(d) - 1) - Index::dim(d) : Index::dim(d));
    }
    return index.substitute(at);
  }

  // A value that may be written as this dtype.
  RandomValue to_write(DType dtype, bool exact) {
    if (!is_floating(dtype)) return values_.of(dtype, true);
    RandomValue value = values_.of(is_half(dtype) ? DType::f32 : dtype, exact);
    return is_half(dtype) ? values_.scaled(value, 4096) : value;
  }

  void store() {
    for (int64_t i = random_.between(1, 2); i > 0; --i) {
      DType dtype = random_.one_of(kTypes);
      bool updated = random_.chance(15);
      Index index = places_.distinct(dims());
      int32_t buffer = add_buffer(dtype, updated ? Buffer::Kind::updated : Buffer::Kind::output,
                                  places_.elements(index), {});
      if (updated) values_.add(loaded(buffer, index));
      write(buffer, index);
    }
  }

  void write(int32_t buffer, const Index& index) {
    DType dtype = result_.kernel.buffers[buffer].dtype;
    // What is read again is read as it was rounded.
    bool exact = is_half(dtype) && random_.chance(50);
    RandomValue value = to_write(dtype, exact);
    builder_.store(buffer, index, value.expr.value);
    if (is_half(dtype) && !value.exact) return;
    new_writes_.push_back({buffer, index, value, inner_});
  }

  void store_to_scratch() {
    const Kernel& kernel = result_.kernel;
    if (!all_known(kernel.inner)) return;
    Index index =
        inner_ ? places_.distinct(static_cast<int>(kernel.outer.size()), kernel.dims()) : Index(0);
    write(add_buffer(random_.one_of(kTypes), Buffer::Kind::scratch, places_.elements(index), {}),
          index);
  }

  void accumulate() {
    DType dtype = random_.one_of(kTypes);
    int32_t buffer = add_buffer(dtype, Buffer::Kind::updated, 1, {});
    Index index;
    if (result_.kernel.ordered && random_.chance(50)) {
      index = indirect(buffer);
    } else {
      index = result_.kernel.ordered ? places_.any(dims()) : places_.distinct(dims());
      result_.kernel.buffers[buffer].elements = places_.elements(index);
    }
    const auto how = random_.one_of(std::vector{Reduction::sum, Reduction::sum, Reduction::product,
                                                Reduction::min, Reduction::max});
    RandomValue value = to_write(dtype, is_half(dtype));
    // Products of many factors leave the range in which results can be compared.
    if (how == Reduction::product && is_floating(dtype)) value = values_.scaled(value, 1);
    builder_.accumulate(buffer, index, value.expr.value, how);
  }

  Random random_;
  bool symbolic_;
  RandomCase result_;
  Builder builder_;
  RandomValues values_;
  RandomIndex places_;
  std::vector<Contents> contents_;
  std::vector<Written> written_, new_writes_;
  int64_t inner_points_ = 1;
  bool inner_ = false, seen_inner_ = false;
};

}  // namespace

RandomCase random_case(uint64_t seed) { return Generator(seed, false).run(); }
RandomCase random_symbolic_case(uint64_t seed) { return Generator(seed, true).run(); }

}  // namespace smelt::loops
