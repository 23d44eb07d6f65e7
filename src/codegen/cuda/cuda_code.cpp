#include "codegen/cuda/cuda_code.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/on_threads.h"

namespace smelt::cuda {
namespace {

constexpr std::string_view kMagic = "smelt cuda 1\n";

void put(std::string& to, const std::string& part) {
  to += std::to_string(part.size()) + "\n" + part;
}

std::string take(std::string_view& from) {
  const size_t end = from.find('\n');
  if (end == from.npos) throw Error("this is no kernel for CUDA; compile it again");
  const size_t size = std::stoull(std::string(from.substr(0, end)));
  from.remove_prefix(end + 1);
  if (size > from.size()) throw Error("this kernel for CUDA is cut off; compile it again");
  std::string part(from.substr(0, size));
  from.remove_prefix(size);
  return part;
}

// What decides the code: everything but the name.
std::string key_of(const Source& source, const std::string& architecture) {
  std::string key = architecture + "\n" + source.facts.str() + source.text;
  const std::string& name = source.facts.entry;
  for (size_t at = key.find(name); at != key.npos; at = key.find(name, at))
    key.replace(at, name.size(), "@");
  return key;
}

// What is compiled, and still held by someone.
class CompiledKernels {
 public:
  std::shared_ptr<const std::string> find(const std::string& key) {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.lock();
  }

  void add(const std::string& key, const std::shared_ptr<const std::string>& code) {
    std::lock_guard lock(mutex_);
    if (entries_.size() >= next_sweep_) {
      std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
      next_sweep_ = std::max<size_t>(256, 2 * entries_.size());
    }
    entries_[key] = code;
  }

  // Leaked: threads may compile while the process ends.
  static CompiledKernels& process() {
    static CompiledKernels* const cache = new CompiledKernels;
    return *cache;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const std::string>> entries_;
  size_t next_sweep_ = 256;
};

}  // namespace

std::string CudaCode::pack() const {
  std::string packed(kMagic);
  put(packed, facts.str());
  put(packed, text);
  put(packed, machine_code);
  return packed;
}

CudaCode CudaCode::unpack(std::string_view packed) {
  if (!packed.starts_with(kMagic)) throw Error("this is no kernel for CUDA; compile it again");
  packed.remove_prefix(kMagic.size());
  CudaCode code;
  code.facts = Facts::parse(take(packed));
  code.text = take(packed);
  code.machine_code = take(packed);
  return code;
}

bool needs_long_index(const Facts& facts) {
  return std::ranges::any_of(
      facts.reach, [](const Size& size) { return size.is_known() && size.known() >= kShortIndex; });
}

std::shared_ptr<const std::string> compile_once(const std::string& text, const Variant& variant) {
  const std::string key = variant.architecture + (variant.contract ? " contract\n" : "\n") + text;
  if (auto known = CompiledKernels::process().find(key)) return known;
  auto code = std::make_shared<const std::string>(compile_text(text, variant));
  CompiledKernels::process().add(key, code);
  return code;
}

std::vector<std::shared_ptr<const std::string>> compile_kernels(
    std::span<const loops::Kernel* const> kernels, bool contract, const std::string& architecture,
    const PlanOptions& options) {
  std::vector<std::shared_ptr<const std::string>> codes(kernels.size());
  std::vector<Source> sources;
  std::vector<std::string> keys;
  std::vector<size_t> to_do;
  std::unordered_map<std::string, size_t> first;
  for (size_t i = 0; i < kernels.size(); ++i) {
    sources.push_back(write_source(*kernels[i], contract, options));
    keys.push_back(key_of(sources[i], architecture));
    codes[i] = CompiledKernels::process().find(keys[i]);
    if (!codes[i] && first.try_emplace(keys[i], i).second) to_do.push_back(i);
  }
  on_threads(to_do.size(), [&](size_t number) {
    const size_t i = to_do[number];
    CudaCode code{std::move(sources[i].facts), std::move(sources[i].text), ""};
    const Variant variant{.architecture = architecture,
                          .contract = contract,
                          .unaligned = false,
                          .long_index = needs_long_index(code.facts)};
    code.machine_code = compile_text(code.text, variant);
    codes[i] = std::make_shared<const std::string>(code.pack());
    CompiledKernels::process().add(keys[i], codes[i]);
  });
  for (size_t i = 0; i < kernels.size(); ++i)
    if (!codes[i]) codes[i] = codes[first.at(keys[i])];
  return codes;
}

}  // namespace smelt::cuda
