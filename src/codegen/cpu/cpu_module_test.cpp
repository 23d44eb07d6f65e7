// Kernels written by hand, one for each thing that the code generator does in a way of its own.
#include "codegen/cpu/cpu_module.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "codegen/cpu/against_interpreter_test.h"
#include "loops/builder.h"

namespace smelt::cpu {
namespace {

using loops::Buffer;
using loops::Builder;
using loops::Expr;
using loops::Index;
using loops::Kernel;
using loops::Reduction;
using loops::Val;

// A kernel being written, with short words for what tests say often.
struct Draft {
  Kernel kernel;
  Builder builder{kernel};

  Draft(Sizes outer, Sizes inner) {
    kernel.name = "test";
    kernel.outer = std::move(outer);
    kernel.inner = std::move(inner);
  }
  int32_t input(DType dtype, Size elements) {
    return builder.add_buffer(dtype, Buffer::Kind::input, std::move(elements));
  }
  int32_t output(DType dtype, Size elements) {
    return builder.add_buffer(dtype, Buffer::Kind::output, std::move(elements));
  }
  int32_t updated(DType dtype, Size elements) {
    return builder.add_buffer(dtype, Buffer::Kind::updated, std::move(elements));
  }
  int32_t scratch(DType dtype, Size elements) {
    return builder.add_buffer(dtype, Buffer::Kind::scratch, std::move(elements));
  }
  void stage(bool inner) { builder.begin_stage(inner); }
  Expr load(int32_t buffer, const Index& at) { return {&builder, builder.load(buffer, at)}; }
  void store(int32_t buffer, const Index& at, Expr value) {
    builder.store(buffer, at, value.value);
  }
  Expr reduce(Reduction reduction, Expr value) {
    return {&builder, builder.reduce(reduction, value.value)};
  }
  std::string run(const std::vector<int64_t>& symbols = {}, bool special = false) {
    return compare_all(kernel, symbols, 1, special);
  }
};

Index i(int dim) { return Index::dim(dim); }

std::vector<std::byte> bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

TEST(CpuModule, Pointwise) {
  for (const int64_t n : {1, 15, 16, 17, 64, 100, 5000}) {
    Draft d({n}, {});
    const int32_t a = d.input(DType::f32, n), b = d.input(DType::f32, n),
                  out = d.output(DType::f32, n);
    d.stage(false);
    d.store(out, i(0), d.load(a, i(0)) * d.load(b, i(0)) + 0.25);
    EXPECT_EQ(d.run({}, true), "") << n;
  }
}

TEST(CpuModule, NoDimensions) {
  Draft d({}, {});
  const int32_t a = d.input(DType::f32, 1), out = d.output(DType::f32, 1);
  d.stage(false);
  d.store(out, 0, d.load(a, 0) + 1);
  EXPECT_EQ(d.run(), "");
}

TEST(CpuModule, Empty) {
  Draft d({4, 0}, {});
  const int32_t out = d.output(DType::f32, 0);
  d.stage(false);
  d.store(out, i(0) * 0 + i(1), Expr{&d.builder, d.builder.constant(DType::f32, 1.0)});
  EXPECT_EQ(d.run(), "");
}

TEST(CpuModule, BroadcastStridedTransposed) {
  Draft d({37, 70}, {});
  const int32_t row = d.input(DType::f32, 70), column = d.input(DType::f32, 37);
  const int32_t strided = d.input(DType::f32, 37 * 140), turned = d.input(DType::f32, 37 * 70);
  const int32_t out = d.output(DType::f32, 37 * 70), turned_out = d.output(DType::bf16, 37 * 70);
  d.stage(false);
  const Expr sum = d.load(row, i(1)) + d.load(column, i(0)) +
                   d.load(strided, i(0) * 140 + i(1) * 2) + d.load(turned, i(1) * 37 + i(0));
  d.store(out, i(0) * 70 + i(1), sum);
  d.store(turned_out, i(1) * 37 + i(0), sum.to(DType::bf16));
  EXPECT_EQ(d.run(), "");
}

TEST(CpuModule, EveryCast) {
  const DType dtypes[] = {DType::b8,  DType::u8,   DType::i8,  DType::i16, DType::i32,
                          DType::i64, DType::bf16, DType::f16, DType::f32, DType::f64};
  for (const DType from : dtypes) {
    Draft d({77}, {});
    const int32_t in = d.input(from, 77);
    d.stage(false);
    for (const DType to : dtypes) d.store(d.output(to, 77), i(0), d.load(in, i(0)).to(to));
    EXPECT_EQ(d.run(), "") << name_of(from);
  }
}

TEST(CpuModule, EveryArithmeticOp) {
  using loops::Op;
  for (const DType dtype : {DType::b8, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64,
                            DType::f32, DType::f64}) {
    Draft d({53}, {});
    const int32_t a = d.input(dtype, 53), b = d.input(dtype, 53);
    d.stage(false);
    for (int number = static_cast<int>(Op::add); number <= static_cast<int>(Op::sigmoid);
         ++number) {
      const Op op = static_cast<Op>(number);
      const loops::OpFacts& facts = loops::facts_of(op);
      if (op == Op::select || !loops::accepts(op, dtype)) continue;
      const Val result =
          d.builder.op(op, d.load(a, i(0)).value, facts.arguments > 1 ? d.load(b, i(0)).value : -1);
      d.builder.store(d.output(d.builder.dtype(result), 53), i(0), result);
    }
    EXPECT_EQ(d.run(), "") << name_of(dtype);
    EXPECT_EQ(d.run({}, is_floating(dtype)), "") << name_of(dtype);
  }
}

TEST(CpuModule, RowReductions) {
  for (const DType dtype : {DType::i32, DType::i64, DType::u8, DType::f32, DType::f64}) {
    for (const int64_t n : {1, 5, 16, 100, 300}) {
      Draft d({7}, {n});
      const int32_t in = d.input(dtype, 7 * n);
      std::vector<Expr> results;
      d.stage(true);
      const Expr x = d.load(in, i(0) * n + i(1));
      for (const Reduction reduction : {Reduction::sum, Reduction::product, Reduction::min,
                                        Reduction::max, Reduction::argmin, Reduction::argmax})
        results.push_back(d.reduce(reduction, x));
      const Expr flag = x.to(DType::b8);
      results.push_back(d.reduce(Reduction::any, flag));
      results.push_back(d.reduce(Reduction::all, flag));
      d.stage(false);
      for (const Expr& result : results) d.store(d.output(result.dtype(), 7), i(0), result);
      EXPECT_EQ(d.run({}, dtype == DType::f32 && n == 100), "") << name_of(dtype) << n;
    }
  }
}

TEST(CpuModule, ColumnReductions) {
  for (const DType dtype : {DType::i32, DType::f32, DType::f64}) {
    for (const int64_t n : {3, 50, 130}) {
      Draft d({n}, {40});
      const int32_t in = d.input(dtype, 40 * n);
      std::vector<Expr> results;
      d.stage(true);
      const Expr x = d.load(in, i(1) * n + i(0));
      for (const Reduction reduction : {Reduction::sum, Reduction::product, Reduction::min,
                                        Reduction::max, Reduction::argmin, Reduction::argmax})
        results.push_back(d.reduce(reduction, x));
      d.stage(false);
      for (const Expr& result : results) d.store(d.output(result.dtype(), n), i(0), result);
      EXPECT_EQ(d.run({}, dtype == DType::f32), "") << name_of(dtype) << n;
    }
  }
}

TEST(CpuModule, ReductionOverTwoDimensionsAndOfNothing) {
  for (const int64_t n : {0, 9, 33}) {
    Draft d({3}, {4, n});
    const int32_t in = d.input(DType::f32, 3 * 4 * n), out = d.output(DType::f32, 3),
                  position = d.output(DType::i64, 3);
    d.stage(true);
    const Expr x = d.load(in, i(0) * (4 * n) + i(1) * n + i(2));
    const Expr sum = d.reduce(Reduction::sum, x), most = d.reduce(Reduction::argmax, x);
    d.stage(false);
    d.store(out, i(0), sum);
    d.store(position, i(0), most);
    EXPECT_EQ(d.run(), "") << n;
  }
}

TEST(CpuModule, SoftmaxWithScratch) {
  for (const bool columns : {false, true}) {
    Draft d({6}, {100});
    const Index at = columns ? i(1) * 6 + i(0) : i(0) * 100 + i(1);
    const int32_t in = d.input(DType::f32, 600), out = d.output(DType::f32, 600),
                  kept = d.scratch(DType::f32, 100);
    d.stage(true);
    const Expr most = d.reduce(Reduction::max, d.load(in, at));
    d.stage(true);
    const Expr power = exp(d.load(in, at) - most);
    d.store(kept, i(1), power);
    const Expr sum = d.reduce(Reduction::sum, power);
    d.stage(false);
    const Expr factor = 1.0 / sum;
    d.stage(true);
    d.store(out, at, d.load(kept, i(1)) * factor);
    EXPECT_EQ(d.run(), "") << columns;
  }
}

TEST(CpuModule, ScratchOfUnknownSize) {
  const Size n = Size::symbol(0);
  for (const bool columns : {false, true}) {
    Draft d({6}, {n});
    const Index at = columns ? i(1) * 6 + i(0) : i(0) * n + i(1);
    const int32_t in = d.input(DType::f32, n * 6), out = d.output(DType::f32, n * 6);
    const int32_t kept = d.scratch(DType::f32, n);
    d.stage(true);
    const Expr doubled = d.load(in, at) * 2.0;
    d.store(kept, i(1), doubled);
    const Expr most = d.reduce(Reduction::max, doubled);
    d.stage(true);
    d.store(out, at, d.load(kept, i(1)) - most);
    EXPECT_EQ(d.run({100}), "") << columns;
  }
}

TEST(CpuModule, GatherAndCheck) {
  for (const int64_t bound : {8, 3}) {
    Draft d({20, 35}, {});
    const int32_t rows = d.input(DType::i64, 20), table = d.input(DType::f32, 8 * 35);
    const int32_t columns = d.input(DType::i64, 35), out = d.output(DType::f32, 700),
                  other = d.output(DType::f32, 700);
    d.stage(false);
    auto place = [&](int32_t from, const Index& at) {
      const Expr number = d.load(from, at) + d.load(from, at).like(5);
      return d.builder.as_index(d.builder.check(min(number, number.like(7)).value, bound));
    };
    d.store(out, i(0) * 35 + i(1), d.load(table, place(rows, i(0)) * 35 + i(1)));
    d.store(other, i(0) * 35 + i(1), d.load(table, place(columns, i(1)) * 35 + i(1)));
    EXPECT_EQ(d.run(), "") << bound;
  }
}

TEST(CpuModule, DivisionByZeroIsReported) {
  Draft d({40}, {});
  const int32_t a = d.input(DType::i32, 40), b = d.input(DType::i32, 40),
                out = d.output(DType::i32, 40);
  d.stage(false);
  const Expr divisor = d.load(b, i(0));
  d.store(out, i(0), d.load(a, i(0)) / divisor);
  std::mt19937_64 random(1);
  KernelData data = random_data(d.kernel, {}, random);
  const loops::Kernel* const one[] = {&d.kernel};
  const auto module = compile_cpu(one, {});
  std::vector<void*> buffers;
  for (auto& bytes : data.buffers) buffers.push_back(bytes.data());
  auto* divisors = reinterpret_cast<int32_t*>(buffers[1]);
  for (int at = 0; at < 40; ++at) divisors[at] = -1;
  EXPECT_TRUE(module->kernel(0).run(buffers.data(), nullptr, nullptr, 0,
                                    module->kernel(0).units.known(), nullptr));
  divisors[39] = 0;
  EXPECT_FALSE(module->kernel(0).run(buffers.data(), nullptr, nullptr, 0,
                                     module->kernel(0).units.known(), nullptr));
}

TEST(CpuModule, UnknownSizes) {
  const Size n = Size::symbol(0), m = Size::symbol(1);
  Draft d({n}, {m});
  const int32_t in = d.input(DType::f32, n * m), out = d.output(DType::f32, n * m),
                bias = d.input(DType::f32, m);
  d.stage(true);
  const Expr sum = d.reduce(Reduction::sum, d.load(in, i(0) * m + i(1)) * d.load(bias, i(1)));
  d.stage(true);
  d.store(out, i(0) * m + i(1), d.load(in, i(0) * m + i(1)) - sum);
  for (const auto& [rows, columns] : {std::pair{5, 77}, {2, 2}, {200, 3}, {3, 5000}})
    EXPECT_EQ(d.run({rows, columns}), "") << rows << " " << columns;

  Draft p({n, m}, {});
  const int32_t a = p.input(DType::f64, n * m), b = p.input(DType::f64, n),
                c = p.output(DType::f64, n * m);
  p.stage(false);
  p.store(c, i(0) * m + i(1), p.load(a, i(0) * m + i(1)) + p.load(b, i(0)));
  for (const auto& [rows, columns] : {std::pair{5, 77}, {2, 2}, {300, 3}, {3, 9000}})
    EXPECT_EQ(p.run({rows, columns}), "") << rows << " " << columns;
}

TEST(CpuModule, UnknownSizesThatAreZero) {
  const Size n = Size::symbol(0), m = n - 2;
  Draft d({n}, {m});
  const int32_t in = d.input(DType::f32, n * m), first = d.input(DType::f32, m),
                out = d.output(DType::f32, n);
  d.stage(true);
  const Expr sum = d.reduce(Reduction::sum, d.load(in, i(0) * m + i(1)) + d.load(first, 0));
  d.stage(false);
  d.store(out, i(0), sum);
  for (const int64_t value : {2, 3, 30}) EXPECT_EQ(d.run({value}), "") << value;

  Draft p({m, n}, {});
  const int32_t a = p.input(DType::f32, n * m), b = p.output(DType::f32, n * m);
  p.stage(false);
  p.store(b, i(0) * n + i(1), p.load(a, i(0) * n + i(1)) + 1);
  for (const int64_t value : {2, 3, 30}) EXPECT_EQ(p.run({value}), "") << value;
}

TEST(CpuModule, AccumulateMeetsAtOnePlace) {
  for (const bool ordered : {false, true}) {
    Draft d({50, 20}, {});
    d.kernel.ordered = true;
    const int32_t rows = d.input(DType::i64, 50), in = d.input(DType::f32, 1000);
    const int32_t sums = d.updated(DType::f32, 20 * 20), all = d.updated(DType::f32, 60);
    d.stage(false);
    const Index row = d.builder.as_index((d.load(rows, i(0)) + d.load(rows, i(0)).like(5)).value);
    const Expr x = d.load(in, i(0) * 20 + i(1));
    d.builder.accumulate(sums, row * 20 + i(1), x.value);
    if (ordered) d.builder.accumulate(all, row * 2, x.value);
    EXPECT_EQ(d.run(), "");
  }
}

TEST(CpuModule, IndexValuesAndQuotients) {
  Draft d({6, 50}, {});
  const int32_t out = d.output(DType::i64, 300), mask = d.output(DType::b8, 300),
                in = d.input(DType::f32, 300), turned = d.output(DType::f32, 300);
  d.stage(false);
  const Index flat = i(0) * 50 + i(1);
  const loops::Extents extents = d.builder.extents();
  const Index shuffled = quotient(flat, 7, extents) + remainder(flat, 7, extents) * 43;
  d.store(out, flat, Expr{&d.builder, d.builder.index(shuffled)});
  d.store(mask, flat,
          Expr{&d.builder, d.builder.index(i(1))} < Expr{&d.builder, d.builder.index(i(0) * 9)});
  d.store(turned, flat, d.load(in, remainder(flat * 7, 300, extents)));
  EXPECT_EQ(d.run(), "");
}

// With all additions in a row the result would be off by percents.
TEST(CpuModule, LongSumsStayAccurate) {
  constexpr int64_t kRows = 1 << 22;
  for (const bool columns : {false, true}) {
    const int64_t n = columns ? 16 : 1;
    Draft d({n}, {kRows});
    const int32_t in = d.input(DType::f32, columns ? n : kRows), out = d.output(DType::f32, n);
    d.stage(true);
    const Expr sum = d.reduce(Reduction::sum, d.load(in, columns ? i(0) : i(1)));
    d.stage(false);
    d.store(out, i(0), sum);
    const std::vector<float> values(columns ? n : kRows, 0.1F);
    std::vector<float> sums(n);
    KernelData data;
    data.buffers = {bytes_of(values), bytes_of(sums)};
    std::mt19937_64 random(1);
    for (const int64_t slice_points : {int64_t{0}, kRows * n}) {
      const CpuOptions options{.slice_points = slice_points};
      EXPECT_TRUE(run_compiled(d.kernel, data, options, {}, random));
      std::memcpy(sums.data(), data.buffers[1].data(), data.buffers[1].size());
      for (const float found : sums) EXPECT_NEAR(found / (0.1 * kRows), 1, 1e-5);
    }
  }
}

// Sums, places of maxima, and every element doubled, of three rows.
Kernel three_rows(int64_t columns) {
  Draft d({3}, {columns});
  const int32_t in = d.input(DType::f32, 3 * columns), sums = d.output(DType::f32, 3),
                places = d.output(DType::i64, 3), doubled = d.output(DType::f32, 3 * columns);
  d.stage(true);
  const Expr element = d.load(in, i(0) * columns + i(1));
  d.store(doubled, i(0) * columns + i(1), element * 2);
  const Expr sum = d.reduce(Reduction::sum, element), place = d.reduce(Reduction::argmax, element);
  d.stage(false);
  d.store(sums, i(0), sum + 1);
  d.store(places, i(0), place);
  return d.kernel;
}

// Threads share the slices; whichever way they do, the result is the same to the bit.
TEST(CpuModule, ReductionsToFewResultsAreDoneInSlices) {
  EXPECT_EQ(compare_all(three_rows(1003)), "");
  const Kernel kernel = three_rows(100'003);
  const Kernel* const one[] = {&kernel};
  const auto module = compile_cpu(one, {});
  EXPECT_EQ(module->kernel(0).units.known(), 27) << "three results, nine slices each";
  EXPECT_EQ(module->kernel(0).finish_units, 3);
  EXPECT_EQ(compile_cpu(one, {.slice_points = 300'009})->kernel(0).finish, nullptr);
  std::mt19937_64 random(1);
  const KernelData data = random_data(kernel, {}, random);
  KernelData first = data;
  run_compiled(kernel, first, {}, {}, random);
  for (int i = 0; i < 5; ++i) {
    KernelData again = data;
    run_compiled(kernel, again, {}, {}, random);
    EXPECT_EQ(again.buffers, first.buffers);
  }
}

// A second pass over the points needs what all slices have found.
TEST(CpuModule, SeveralPassesAreNotSliced) {
  Draft d({1}, {100'000});
  const int32_t in = d.input(DType::f32, 100'000), out = d.output(DType::f32, 100'000);
  d.stage(true);
  const Expr most = d.reduce(Reduction::max, d.load(in, i(1)));
  d.stage(true);
  d.store(out, i(1), d.load(in, i(1)) - most);
  const Kernel* const one[] = {&d.kernel};
  EXPECT_EQ(compile_cpu(one, {})->kernel(0).finish, nullptr);
  EXPECT_EQ(d.run(), "");
}

TEST(CpuModule, LargeResultsAreWrittenPastTheCaches) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8}) {
    Draft d({5, 1001}, {});  // rows begin anywhere
    const int32_t in = d.input(dtype, 5005), row = d.input(dtype, 1001),
                  out = d.output(dtype, 5005), other = d.output(DType::f32, 5005);
    d.stage(false);
    const Index at = i(0) * 1001 + i(1);
    const Expr sum = d.load(in, at).to(DType::f32) + d.load(row, i(1)).to(DType::f32);
    d.store(out, at, sum.to(dtype));
    d.store(other, at, sum);
    EXPECT_EQ(d.run(), "");
    const Kernel* const one[] = {&d.kernel};
    const auto past = [&](const CpuOptions& options) {
      return compile_cpu(one, options)->assembly().find("movnt") != std::string::npos;
    };
    EXPECT_TRUE(past({.stream_bytes = 5005}));
    EXPECT_FALSE(past({}));
  }
}

TEST(CpuModule, LargeInputsAreFetchedAhead) {
  Draft d({40}, {1000});
  const int32_t in = d.input(DType::f32, 40'000), out = d.output(DType::f32, 40'000);
  const Index at = i(0) * 1000 + i(1);
  d.stage(true);
  const Expr most = d.reduce(Reduction::max, d.load(in, at));
  d.stage(true);
  d.store(out, at, d.load(in, at) - most);
  EXPECT_EQ(d.run(), "");
  const Kernel* const one[] = {&d.kernel};
  // The next row, when this one is read for the last time.
  const auto ahead = [&](const CpuOptions& options) {
    return compile_cpu(one, options)->assembly().find("prefetcht0\t4000(") != std::string::npos;
  };
  EXPECT_TRUE(ahead({.stream_bytes = 100'000}));
  EXPECT_FALSE(ahead({}));
}

// A value that is rounded to bf16 and used on is not taken apart and put together again.
TEST(CpuModule, RoundsToBf16InRegisters) {
  Draft d({320}, {});
  const int32_t in = d.input(DType::f32, 320), out = d.output(DType::f32, 320);
  d.stage(false);
  const Expr once = d.load(in, i(0)).to(DType::bf16).to(DType::f32);
  d.store(out, i(0), (once * once).to(DType::bf16).to(DType::f32) + once);
  EXPECT_EQ(d.run(), "");
  const Kernel* const one[] = {&d.kernel};
  EXPECT_EQ(compile_cpu(one, {})->assembly().find("pmovzxwd"), std::string::npos);
}

// An output in the memory of an input is in the caches already.
TEST(CpuModule, LargeResultsInPlace) {
  Draft d({5000}, {});
  const int32_t in = d.input(DType::f32, 5000), out = d.output(DType::f32, 5000);
  d.stage(false);
  d.store(out, i(0), d.load(in, i(0)) * 2);
  const Kernel* const one[] = {&d.kernel};
  const auto module = compile_cpu(one, {.stream_bytes = 1});
  std::vector<float> values(5000, 1.5F);
  void* const buffers[] = {values.data(), values.data()};
  EXPECT_TRUE(module->kernel(0).run(buffers, nullptr, nullptr, 0, module->kernel(0).units.known(),
                                    nullptr));
  EXPECT_EQ(values, std::vector<float>(5000, 3.0F));
}

TEST(CpuModule, ManyThreadsCompile) {
  std::vector<Kernel> kernels;
  for (int64_t n = 100; n < 130; ++n) {
    Draft d({n}, {});
    const int32_t a = d.input(DType::f32, n), out = d.output(DType::f32, n);
    d.stage(false);
    d.store(out, i(0), d.load(a, i(0)) * 2);
    kernels.push_back(d.kernel);
  }
  std::vector<const Kernel*> all;
  for (const Kernel& kernel : kernels) all.push_back(&kernel);
  auto work = [&] {
    const auto module = compile_cpu(all, {});
    for (size_t k = 0; k < kernels.size(); ++k) {
      std::vector<float> in(130, 1.5F), out(130, 0);
      void* const buffers[] = {in.data(), out.data()};
      EXPECT_TRUE(module->kernel(k).run(buffers, nullptr, nullptr, 0, 1, nullptr));
      EXPECT_EQ(out[99], 3);
      EXPECT_EQ(out[100 + k - 1], 3);
      EXPECT_EQ(out[100 + k], 0);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

TEST(CpuModule, EqualKernelsAreCompiledOnce) {
  auto make = [](const char* name) {
    Draft d({100}, {});
    d.kernel.name = name;
    const int32_t a = d.input(DType::f32, 100), out = d.output(DType::f32, 100);
    d.stage(false);
    d.store(out, i(0), d.load(a, i(0)) * 3 + 1);
    return d.kernel;
  };
  const Kernel one = make("one"), two = make("two");
  const Kernel* const both[] = {&one, &two};
  const auto module = compile_cpu(both, {});
  EXPECT_EQ(module->kernel(0).run, module->kernel(1).run);
  EXPECT_EQ(compile_cpu(std::span(both).first(1), {})->kernel(0).run, module->kernel(0).run);
  EXPECT_NE(compile_cpu(std::span(both).first(1), {.contract = false})->kernel(0).run,
            module->kernel(0).run);
  EXPECT_NE(module->assembly().find("ret"), std::string::npos);
}

// Several share an object then, and what they call in it.
TEST(CpuModule, CodeIsMadeWhenItIsLoaded) {
  constexpr int64_t kFirst = 200, kCount = 20;
  std::vector<Kernel> kernels;
  for (int64_t n = kFirst; n < kFirst + kCount; ++n) {
    Draft d({n}, {});
    const int32_t a = d.input(DType::f32, n), out = d.output(DType::f32, n);
    d.stage(false);
    d.store(out, i(0), sin(d.load(a, i(0))) + 2);
    kernels.push_back(d.kernel);
  }
  std::vector<const Kernel*> all;
  for (const Kernel& kernel : kernels) all.push_back(&kernel);
  all.push_back(&kernels[3]);
  const std::vector<KernelImage> images = make_cpu_images(all, {}, /*later=*/true);
  for (const KernelImage& image : images) EXPECT_TRUE(image.unmade && !image.code);
  const auto work = [&] {
    const auto loaded = load_cpu_images(images);
    for (size_t k = 0; k < images.size(); ++k) {
      const UnitKernel& kernel = static_cast<const CpuCode&>(*loaded[k]).kernel();
      const auto n = static_cast<size_t>(k < kCount ? kFirst + k : kFirst + 3);
      std::vector<float> in(n, 0), out(n + 1, 0);
      void* const buffers[] = {in.data(), out.data()};
      EXPECT_TRUE(kernel.run(buffers, nullptr, nullptr, 0, kernel.units.known(), nullptr));
      EXPECT_EQ(out, [&] {
        std::vector<float> wanted(n, 2);
        wanted.push_back(0);
        return wanted;
      }());
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  // One that is wanted at once is the one that is there.
  const auto loaded = load_cpu_images(images);
  const auto module = compile_cpu(all, {});
  for (size_t k = 0; k < images.size(); ++k)
    EXPECT_EQ(module->kernel(k).run, static_cast<const CpuCode&>(*loaded[k]).kernel().run);
}

TEST(CpuModule, Refusals) {
  Draft d({10}, {});
  d.kernel.buffers.push_back({DType::c64, Buffer::Kind::input, 10});
  EXPECT_EQ(can_compile_cpu(d.kernel).reason(), "c64 is not supported");
}

}  // namespace
}  // namespace smelt::cpu
