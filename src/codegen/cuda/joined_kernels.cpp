#include "codegen/cuda/joined_kernels.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "codegen/cuda/joined_source.h"
#include "diagnostics/log.h"

namespace smelt::cuda {
namespace {

constexpr int kRunsBefore = 1;
constexpr size_t kMostBodies = 12;    // of a part: each is compiled
constexpr int64_t kFewBlocks = 2048;  // a kernel of more fills the device by itself
constexpr int64_t kThreadRatio = 4;   // between kernels of a part

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Its scratch is dealt out to the blocks that run at the same time: that is a grid of its own.
bool can_join(const Started& one) {
  return one.start.blocks > 0 && one.kernel->code().facts.scratch_bytes.empty();
}

}  // namespace

std::vector<std::vector<size_t>> choose_parts(std::span<const Started> batch) {
  std::unordered_map<const void*, int> times;
  for (const Started& one : batch) ++times[one.kernel->identity()];
  struct Part {
    std::vector<size_t> members;
    std::vector<const void*> bodies;
    size_t words = 0;
    int64_t least = 0, most = 0;  // threads
    Variant variant;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < batch.size(); ++i) {
    const CudaKernel& kernel = *batch[i].kernel;
    const void* const body = kernel.identity();
    if (!can_join(batch[i]) || (times[body] == 1 && batch[i].start.blocks > kFewBlocks)) continue;
    const Facts& facts = kernel.code().facts;
    const size_t words = batch[i].start.arguments.size() + 3;
    const auto fits = [&](const Part& part) {
      const bool is_known = std::ranges::find(part.bodies, body) != part.bodies.end();
      return part.words + words <= kMostWords && (is_known || part.bodies.size() < kMostBodies) &&
             std::max(part.most, facts.threads) <=
                 kThreadRatio * std::min(part.least, facts.threads) &&
             part.variant.architecture == kernel.architecture() &&
             part.variant.contract == facts.contract;
    };
    auto part = std::ranges::find_if(parts, fits);
    if (part == parts.end()) {
      part = parts.insert(parts.end(), Part());
      part->least = part->most = facts.threads;
      part->variant = {.architecture = kernel.architecture(), .contract = facts.contract};
    }
    part->members.push_back(i);
    part->words += words;
    part->least = std::min(part->least, facts.threads);
    part->most = std::max(part->most, facts.threads);
    if (std::ranges::find(part->bodies, body) == part->bodies.end()) part->bodies.push_back(body);
  }
  std::vector<std::vector<size_t>> chosen;
  for (Part& part : parts)
    if (part.members.size() > 1) chosen.push_back(std::move(part.members));
  return chosen;
}

namespace {

// One function of a joined kernel, in a context.
class JoinedFunction {
 public:
  JoinedFunction(std::span<const Body> all, std::vector<size_t> bodies, Half half,
                 const CudaKernel& like)
      : context_(like.context()), bodies_(std::move(bodies)) {
    const JoinedSource source = write_joined(all, bodies_, half);
    const Variant variant{.architecture = like.architecture(),
                          .contract = like.code().facts.contract};
    const std::shared_ptr<const std::string> code = compile_once(source.text, variant);
    const WithContext current(context_);
    check_driver(driver().cuModuleLoadData(&module_, code->data()), "cuModuleLoadData");
    entry_ = source.entry;
    check_driver(driver().cuModuleGetFunction(&function_, module_, entry_.c_str()),
                 "cuModuleGetFunction");
    threads_ = source.threads;
  }
  ~JoinedFunction() {
    CuContext current = nullptr;  // at the end of the process the driver may be gone before
    if (!module_ || driver().cuCtxGetCurrent(&current) != 0) return;
    if (driver().cuCtxPushCurrent(context_) != 0) return;
    driver().cuModuleUnload(module_);
    driver().cuCtxPopCurrent(&current);
  }
  JoinedFunction(const JoinedFunction&) = delete;
  JoinedFunction& operator=(const JoinedFunction&) = delete;

  size_t members() const { return bodies_.size(); }

  // A member's blocks: `x` by `y`.
  struct Member {
    const std::vector<uint64_t>* arguments;
    int64_t x, y;
  };
  void launch(std::span<const Member> members, CuStream stream) const {
    std::vector<uint64_t> words(members.size());
    uint64_t blocks = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      words[i] = member_word(blocks, bodies_[i], words.size());
      words.push_back(static_cast<uint64_t>(members[i].x));
      words.insert(words.end(), members[i].arguments->begin(), members[i].arguments->end());
      blocks += static_cast<uint64_t>(members[i].x * members[i].y);
    }
    ensure_context(context_);
    void* parameter = words.data();
    check_driver(driver().cuLaunchKernel(function_, static_cast<unsigned>(blocks), 1, 1,
                                         static_cast<unsigned>(threads_), 1, 1, 0, stream,
                                         &parameter, nullptr),
                 entry_.c_str());
  }

 private:
  CuContext context_;
  const std::vector<size_t> bodies_;  // by member
  CuModule module_ = nullptr;
  CuFunction function_ = nullptr;
  std::string entry_;
  int64_t threads_ = 1;
};

// Members that run as one kernel; those whose reductions are cut into slices have a second one.
struct JoinedPart {
  std::vector<size_t> members;  // of the batch
  std::unique_ptr<const JoinedFunction> main, finish;
  std::vector<size_t> sliced;  // of the members
};

JoinedPart make_part(std::span<const Started> batch, const std::vector<size_t>& members) {
  JoinedPart part;
  part.members = members;
  std::vector<const void*> known;
  std::vector<Body> all, sliced_all;
  std::vector<size_t> bodies, sliced_bodies;
  std::unordered_map<size_t, size_t> sliced_of;  // by body
  for (size_t i = 0; i < members.size(); ++i) {
    const CudaKernel& kernel = *batch[members[i]].kernel;
    const Body body{&kernel.code().facts, &kernel.code().text};
    const auto place = std::ranges::find(known, kernel.identity());
    bodies.push_back(static_cast<size_t>(place - known.begin()));
    if (place == known.end()) {
      known.push_back(kernel.identity());
      all.push_back(body);
    }
    if (kernel.code().facts.slices == 1) continue;
    part.sliced.push_back(i);
    const auto [of, is_new] = sliced_of.try_emplace(bodies.back(), sliced_all.size());
    if (is_new) sliced_all.push_back(body);
    sliced_bodies.push_back(of->second);
  }
  const CudaKernel& like = *batch[members[0]].kernel;
  part.main = std::make_unique<JoinedFunction>(all, bodies, Half::main, like);
  if (!sliced_all.empty())
    part.finish = std::make_unique<JoinedFunction>(sliced_all, sliced_bodies, Half::finish, like);
  return part;
}

void launch_part(const JoinedPart& part, std::span<Started> batch, Host& host) {
  const Device& device = batch[part.members[0]].kernel->device();
  int64_t bytes = 0;
  constexpr int64_t kAlign = 256;
  for (const size_t i : part.members) bytes += round_up(batch[i].start.workspace_bytes, kAlign);
  std::shared_ptr<void> memory;
  if (bytes > 0) memory = host.device_memory(device, static_cast<size_t>(bytes));
  auto workspace = reinterpret_cast<uintptr_t>(memory.get());
  std::vector<JoinedFunction::Member> members;
  for (const size_t i : part.members) {
    Start& start = batch[i].start;
    if (start.workspace_bytes > 0) {
      start.arguments.push_back(workspace);
      workspace += static_cast<uintptr_t>(round_up(start.workspace_bytes, kAlign));
    }
    members.push_back({&start.arguments, start.blocks, batch[i].kernel->code().facts.slices});
  }
  auto* const stream = static_cast<CuStream>(host.stream(device));
  part.main->launch(members, stream);
  if (!part.finish) return;
  std::vector<JoinedFunction::Member> finished;
  for (const size_t i : part.sliced) {
    const Started& one = batch[part.members[i]];
    const int64_t each = one.kernel->code().facts.finish_each;
    finished.push_back({&one.start.arguments, (one.start.points + each - 1) / each, 1});
  }
  part.finish->launch(finished, stream);
}

}  // namespace

struct JoinedKernels::Batch {
  std::vector<JoinedPart> parts;
  std::vector<size_t> alone;
};

JoinedKernels::JoinedKernels() = default;
JoinedKernels::~JoinedKernels() = default;

std::shared_ptr<const JoinedKernels::Batch> JoinedKernels::find(std::span<const Started> batch,
                                                                bool may_make) {
  std::vector<uint64_t> key;
  key.reserve(batch.size());
  for (const Started& one : batch) key.push_back(one.kernel->number());
  std::lock_guard lock(mutex_);
  Seen& seen = seen_[key];
  if (seen.made || !may_make) return seen.made;
  if (seen.runs++ < kRunsBefore) return nullptr;
  auto made = std::make_shared<Batch>();
  std::vector<bool> is_joined(batch.size(), false);
  for (const std::vector<size_t>& members : choose_parts(batch)) {
    try {
      made->parts.push_back(make_part(batch, members));
    } catch (const InternalError& error) {  // a text too large for the compiler
      if (log_enabled(Log::perf))
        log(Log::perf, std::string("kernels are not joined: ") + error.what());
      continue;
    }
    for (const size_t i : members) is_joined[i] = true;
  }
  for (size_t i = 0; i < batch.size(); ++i)
    if (!is_joined[i]) made->alone.push_back(i);
  seen.made = made;
  return made;
}

void JoinedKernels::launch(std::span<Started> batch, Host& host) {
  const auto is_usual = [](const Started& one) {
    return !one.start.unaligned && !one.start.long_index && one.start.blocks > 0;
  };
  // Nothing is loaded while someone captures a CUDA graph.
  int capturing = 0;
  auto* const stream = static_cast<CuStream>(host.stream(batch[0].kernel->device()));
  const bool may_make = driver().cuStreamIsCapturing(stream, &capturing) == 0 && capturing == 0;
  const std::shared_ptr<const Batch> made =
      std::ranges::all_of(batch, is_usual) ? find(batch, may_make) : nullptr;
  if (!made) {
    for (Started& one : batch) one.kernel->launch(std::move(one.start), host);
    return;
  }
  for (const JoinedPart& part : made->parts) launch_part(part, batch, host);
  for (const size_t i : made->alone) batch[i].kernel->launch(std::move(batch[i].start), host);
}

}  // namespace smelt::cuda
