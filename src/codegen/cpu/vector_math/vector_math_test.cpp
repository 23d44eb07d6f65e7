// Each function against the C library in a wider type: random bit patterns of all numbers, the
// ranges where people use it, and special values; the largest error in units of the last place must
// stay within the bounds of vector_math_test_rows.h. Scalars and vectors of all widths must give
// the same bits. SMELT_PRINT_ULPS=1 prints what was measured.
#include "codegen/cpu/vector_math/vector_math.h"

#include <gtest/gtest.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "codegen/cpu/machine/host_target.h"
#include "codegen/cpu/vector_math/vector_math_test_rows.h"

namespace smelt {
namespace {

using loops::Op;
using vector_math::test::Row;

// f(x, y, out, n): out[i] = op(x[i], y[i]) for vectors of `width` lanes (0: a scalar). `registers`:
// the bits of the widest registers; 0: as LLVM likes.
void write_loop(llvm::Module& module, const std::string& name, Op op, bool wide, unsigned width,
                int registers) {
  llvm::LLVMContext& context = module.getContext();
  llvm::IRBuilder<> ir(context);
  llvm::Type* scalar = wide ? ir.getDoubleTy() : ir.getFloatTy();
  llvm::Type* type = width ? llvm::FixedVectorType::get(scalar, width) : scalar;
  auto* function = llvm::Function::Create(
      llvm::FunctionType::get(
          ir.getVoidTy(), {ir.getPtrTy(), ir.getPtrTy(), ir.getPtrTy(), ir.getInt64Ty()}, false),
      llvm::Function::ExternalLinkage, name, module);
  if (registers) {
    function->addFnAttr("prefer-vector-width", std::to_string(registers));
    function->addFnAttr("min-legal-vector-width", std::to_string(registers));
  }
  auto* entry = llvm::BasicBlock::Create(context, "entry", function);
  auto* body = llvm::BasicBlock::Create(context, "body", function);
  auto* done = llvm::BasicBlock::Create(context, "done", function);
  ir.SetInsertPoint(entry);
  ir.CreateBr(body);
  ir.SetInsertPoint(body);
  auto* i = ir.CreatePHI(ir.getInt64Ty(), 2);
  i->addIncoming(ir.getInt64(0), entry);
  auto at = [&](unsigned argument) { return ir.CreateGEP(scalar, function->getArg(argument), i); };
  const llvm::Align align(wide ? 8 : 4);
  auto* x = ir.CreateAlignedLoad(type, at(0), align);
  auto* y = ir.CreateAlignedLoad(type, at(1), align);
  ir.CreateAlignedStore(emit_math(ir, op, x, y), at(2), align);
  auto* next = ir.CreateAdd(i, ir.getInt64(width ? width : 1));
  i->addIncoming(next, ir.GetInsertBlock());
  ir.CreateCondBr(ir.CreateICmpSLT(next, function->getArg(3)), body, done);
  ir.SetInsertPoint(done);
  ir.CreateRetVoid();
}

template <class T>
class Compiled {
 public:
  // `cpu`: that processor's instructions, not all that the host has.
  Compiled(Op op, unsigned width, const char* cpu = nullptr) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto target = llvm::cantFail(llvm::orc::JITTargetMachineBuilder::detectHost());
    if (cpu) {
      target.setCPU(cpu);
      target.getFeatures() = llvm::SubtargetFeatures();
    }
    target.setCodeGenOptLevel(llvm::CodeGenOptLevel::Less);
    jit_ = llvm::cantFail(
        llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(target)).create());
    auto context = std::make_unique<llvm::LLVMContext>();
    auto module = std::make_unique<llvm::Module>("math", *context);
    module->setDataLayout(jit_->getDataLayout());
    const int registers = cpu ? 0 : smelt::cpu::host_target().vector_bits;
    write_loop(*module, "loop", op, std::is_same_v<T, double>, width, registers);
    EXPECT_FALSE(llvm::verifyModule(*module, &llvm::errs()));
    llvm::cantFail(
        jit_->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))));
    run_ = llvm::cantFail(jit_->lookup("loop")).toPtr<void (*)(const T*, const T*, T*, int64_t)>();
  }

  // The sizes are multiples of 16.
  std::vector<T> operator()(const std::vector<T>& x, const std::vector<T>& y) const {
    std::vector<T> out(x.size());
    run_(x.data(), y.data(), out.data(), static_cast<int64_t>(x.size()));
    return out;
  }

 private:
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  void (*run_)(const T*, const T*, T*, int64_t) = nullptr;
};

template <class T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;
template <class T>
using BitsOf = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;

// The distance of `got` from the true value, in units of the last place there. Infinity counts as
// the number after the largest; NaN and the sign of 0 must be right.
template <class T>
double ulps(T got, Wider<T> truth) {
  using Limits = std::numeric_limits<T>;
  const T rounded = static_cast<T>(truth);
  if (std::isnan(got) || std::isnan(rounded)) {
    return std::isnan(got) && std::isnan(rounded) ? 0 : HUGE_VAL;
  }
  if (rounded == 0 && got == 0) return std::signbit(got) == std::signbit(rounded) ? 0 : HUGE_VAL;
  const Wider<T> past = std::ldexp(Wider<T>(1), Limits::max_exponent);
  if (std::isinf(got) && std::isinf(rounded)) return got == rounded ? 0 : HUGE_VAL;
  auto finite = [&](Wider<T> v) { return std::isinf(v) ? std::copysign(past, v) : v; };
  int exponent = 0;
  std::frexp(finite(truth), &exponent);
  exponent = std::clamp(exponent, Limits::min_exponent, Limits::max_exponent);
  const Wider<T> unit = std::ldexp(Wider<T>(1), exponent - Limits::digits);
  return static_cast<double>(std::abs(finite(got) - finite(truth)) / unit);
}

template <class T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {0,
                           Limits::denorm_min(),
                           3 * Limits::denorm_min(),
                           Limits::min(),
                           Limits::min() / 2,
                           Limits::max(),
                           Limits::infinity(),
                           Limits::quiet_NaN()};
  for (double v : {0.25,
                   0.5,
                   0.7071067811865476,
                   0.75,
                   0.8,
                   1.0,
                   1.4142135623730951,
                   1.5,
                   2.0,
                   2.5,
                   3.0,
                   3.5,
                   4.0,
                   9.0,
                   10.0,
                   17.0,
                   18.0,
                   20.0,
                   27.3,
                   28.0,
                   33.0,
                   38.0,
                   87.3,
                   88.0,
                   88.72284,
                   89.0,
                   89.4,
                   100.0,
                   103.9,
                   104.0,
                   126.0,
                   127.0,
                   128.0,
                   149.0,
                   150.0,
                   708.4,
                   709.78,
                   710.0,
                   710.47,
                   745.1,
                   746.0,
                   1022.0,
                   1024.0,
                   1074.0,
                   1075.0,
                   131072.0,
                   8388608.0,
                   16777216.0,
                   16777217.0,
                   67108864.0,
                   4503599627370496.0,
                   9007199254740993.0,
                   1e22,
                   1e30,
                   1e-5,
                   1e-10,
                   1e-20,
                   3.141592653589793,
                   1.5707963267948966}) {
    const T t = static_cast<T>(v);
    values.insert(values.end(),
                  {t, std::nextafter(t, Limits::infinity()), std::nextafter(t, T(0))});
  }
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

// Pairs of arguments; functions of one look at x only.
template <class T>
struct Samples {
  std::vector<T> x, y;
  void add(T a, T b) {
    x.push_back(a);
    y.push_back(b);
  }
};

template <class T>
Samples<T> samples(size_t random) {
  Samples<T> all;
  const std::vector<T> special = special_values<T>();
  for (T a : special)
    for (T b : special) all.add(a, b);
  std::mt19937_64 bits(7);
  std::uniform_real_distribution<double> unit(-1, 1);
  auto pattern = [&] { return std::bit_cast<T>(static_cast<BitsOf<T>>(bits())); };
  auto uniform = [&](double scale) { return static_cast<T>(scale * unit(bits)); };
  auto near = [&](double center) { return static_cast<T>(center * (1 + 1e-3 * unit(bits))); };
  for (size_t i = 0; i < random; ++i) all.add(pattern(), pattern());
  for (size_t i = 0; i < random / 16; ++i) {
    for (double scale : {1.0, 2.0, 10.0, 30.0, 110.0, 750.0, 1e5}) {
      all.add(uniform(scale), uniform(scale));
    }
    all.add(near(1), uniform(1e4));
    all.add(near(-1), near(1));
    // Close to multiples of pi/2; whole numbers; powers of any size that are no overflow.
    all.add(static_cast<T>(1.5707963267948966 * std::trunc(uniform(40000))), uniform(1));
    all.add(std::trunc(uniform(40)), std::trunc(uniform(40)));
    const T base = std::abs(pattern());
    const double exponents = std::numeric_limits<T>::max_exponent * 1.2;
    all.add(base, static_cast<T>(uniform(exponents) / std::log2(base)));
  }
  while (all.x.size() % 16) all.add(1, 1);
  return all;
}

template <class T>
const Samples<T>& the_samples() {
  static const Samples<T> all = samples<T>(std::is_same_v<T, float> ? 1 << 20 : 1 << 17);
  return all;
}

bool host_has_avx2() {
  const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features.lookup("avx2") && features.lookup("fma");
}

template <class T>
size_t differences(const std::vector<T>& a, const std::vector<T>& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = std::bit_cast<BitsOf<T>>(a[i]) == std::bit_cast<BitsOf<T>>(b[i]);
    count += !same && !(std::isnan(a[i]) && std::isnan(b[i]));
  }
  return count;
}

template <class T>
class VectorMath : public testing::TestWithParam<Row> {
 public:
  void check() {
    const Row& row = GetParam();
    const Samples<T>& in = the_samples<T>();
    const double bound = std::is_same_v<T, float> ? row.ulps_f32 : row.ulps_f64;
    const std::vector<T> scalar = Compiled<T>(row.op, 0)(in.x, in.y);
    double worst = 0;
    size_t where = 0, wrong = 0;
    for (size_t i = 0; i < scalar.size(); ++i) {
      const double error = ulps<T>(scalar[i], row.truth(Wider<T>(in.x[i]), Wider<T>(in.y[i])));
      wrong += error > bound;
      if (error > worst) {
        worst = error;
        where = i;
      }
    }
    if (std::getenv("SMELT_PRINT_ULPS")) {
      std::printf("%-10s %s %8.3f at %.9g, %.9g\n", row.name(), sizeof(T) == 4 ? "f32" : "f64",
                  worst, double(in.x[where]), double(in.y[where]));
    }
    EXPECT_EQ(wrong, 0u) << row.name() << ": " << worst << " ulps at " << double(in.x[where])
                         << ", " << double(in.y[where]) << ": " << double(scalar[where]);
    for (unsigned width : {1, 4, 8, 16}) {
      EXPECT_EQ(differences(scalar, Compiled<T>(row.op, width)(in.x, in.y)), 0u)
          << row.name() << " with " << width << " lanes";
    }
    if (host_has_avx2()) {
      EXPECT_EQ(differences(scalar, Compiled<T>(row.op, 8, "x86-64-v3")(in.x, in.y)), 0u)
          << row.name() << " with AVX2";
    }
  }
};

class VectorMathF32 : public VectorMath<float> {};
class VectorMathF64 : public VectorMath<double> {};
TEST_P(VectorMathF32, StaysWithinItsBound) { check(); }
TEST_P(VectorMathF64, StaysWithinItsBound) { check(); }

std::string name_of_row(const testing::TestParamInfo<Row>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(All, VectorMathF32, testing::ValuesIn(vector_math::test::rows()),
                         name_of_row);
INSTANTIATE_TEST_SUITE_P(All, VectorMathF64, testing::ValuesIn(vector_math::test::rows()),
                         name_of_row);

TEST(VectorMath, RsqrtIsTheQuotientBitForBit) {
  const Samples<float>& in = the_samples<float>();
  const std::vector<float> got = Compiled<float>(Op::rsqrt, 8)(in.x, in.y);
  size_t different = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const float want = 1.0f / std::sqrt(in.x[i]);
    different += !(got[i] == want || (std::isnan(got[i]) && std::isnan(want)));
  }
  EXPECT_EQ(different, 0u);
}

}  // namespace
}  // namespace smelt
