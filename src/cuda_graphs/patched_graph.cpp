#include "cuda_graphs/patched_graph.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace smelt::cuda_graphs {
namespace {

constexpr size_t kWord = sizeof(uint64_t);

size_t words_for(size_t bytes) { return (bytes + kWord - 1) / kWord; }

std::string name_of(const KernelParams& params) {
  const char* name = nullptr;
  if (params.func != nullptr)
    graph_driver()->function_name(&name, params.func);
  else
    graph_driver()->kernel_name(&name, params.kern);
  return name ? name : "a kernel";
}

// The sizes of a kernel's parameters.
std::vector<size_t> param_sizes(const KernelParams& params) {
  std::vector<size_t> sizes;
  for (;;) {
    size_t offset = 0, bytes = 0;
    const Status status =
        params.func != nullptr
            ? graph_driver()->function_param(params.func, sizes.size(), &offset, &bytes)
            : graph_driver()->kernel_param(params.kern, sizes.size(), &offset, &bytes);
    if (status != 0) return sizes;
    sizes.push_back(bytes);
  }
}

// The parameters of a kernel, copied: one behind the other, each from a word on.
struct KernelCopy {
  KernelParams params{};
  std::vector<uint64_t> words;
  std::vector<size_t> sizes;    // of the parameters; of packed ones the whole
  std::vector<void*> pointers;  // what `params` leads to
  size_t packed_bytes = 0;
  void* extra[5] = {};

  bool is_packed() const { return params.params == nullptr && params.extra != nullptr; }
};

void read_packed(KernelCopy& copy, void* const* extra) {
  const void* buffer = nullptr;
  for (; reinterpret_cast<uintptr_t>(extra[0]) != kExtraEnd; extra += 2) {
    if (reinterpret_cast<uintptr_t>(extra[0]) == kExtraPointer) buffer = extra[1];
    if (reinterpret_cast<uintptr_t>(extra[0]) == kExtraBytes)
      copy.packed_bytes = *static_cast<const size_t*>(extra[1]);
  }
  copy.sizes = {copy.packed_bytes};
  copy.words.resize(words_for(copy.packed_bytes));
  std::memcpy(copy.words.data(), buffer, copy.packed_bytes);
}

KernelCopy read_kernel(Node node) {
  KernelCopy copy;
  check(graph_driver()->kernel_params(node, &copy.params), "cuGraphKernelNodeGetParams");
  if (copy.is_packed()) {
    read_packed(copy, copy.params.extra);
    return copy;
  }
  copy.sizes = param_sizes(copy.params);
  for (size_t i = 0; i < copy.sizes.size(); ++i) {
    const size_t first = copy.words.size();
    copy.words.resize(first + words_for(copy.sizes[i]));
    std::memcpy(copy.words.data() + first, copy.params.params[i], copy.sizes[i]);
  }
  return copy;
}

// Its parameters are where the copy has them from now on.
void point_at_copy(KernelCopy& copy) {
  if (copy.is_packed()) {
    copy.extra[0] = reinterpret_cast<void*>(kExtraPointer);
    copy.extra[1] = copy.words.data();
    copy.extra[2] = reinterpret_cast<void*>(kExtraBytes);
    copy.extra[3] = &copy.packed_bytes;
    copy.extra[4] = reinterpret_cast<void*>(kExtraEnd);
    copy.params.extra = copy.extra;
    return;
  }
  uint64_t* next = copy.words.data();
  for (const size_t bytes : copy.sizes) {
    copy.pointers.push_back(next);
    next += words_for(bytes);
  }
  copy.params.params = copy.pointers.data();
}

std::string describe(const KernelCopy& kernel) {
  std::string text = name_of(kernel.params);
  for (const unsigned* size : {kernel.params.grid, kernel.params.block})
    for (int i = 0; i < 3; ++i) text += (i ? "x" : " ") + std::to_string(size[i]);
  text += " " + std::to_string(kernel.params.shared_bytes);
  for (const size_t bytes : kernel.sizes) text += " " + std::to_string(bytes);
  return text;
}

// A copy or a fill on the device has one or two words.
enum : size_t { kMemsetDst = 0, kMemcpySrc = 0, kMemcpyDst = 1 };

bool is_on_device(const MemcpyParams::Side& side) {
  constexpr int kMemoryTypeAttribute = 2;
  if (side.memory_type == kDeviceMemory) return true;
  if (side.memory_type == kHostMemory || side.array != nullptr) return false;
  unsigned type = 0;
  return graph_driver()->pointer_attribute(&type, kMemoryTypeAttribute, side.device) == 0 &&
         type == kDeviceMemory;
}

int type_of(Node node) {
  int type = -1;
  check(graph_driver()->node_type(node, &type), "cuGraphNodeGetType");
  return type;
}

std::vector<Node> nodes_of(Graph graph) {
  size_t count = 0;
  check(graph_driver()->graph_nodes(graph, nullptr, &count), "cuGraphGetNodes");
  std::vector<Node> nodes(count);
  if (count > 0) check(graph_driver()->graph_nodes(graph, nodes.data(), &count), "cuGraphGetNodes");
  nodes.resize(count);
  return nodes;
}

Decision read_node(Node node, CapturedNode& read) {
  switch (const int type = type_of(node)) {
    case kKernelNode: {
      KernelCopy kernel = read_kernel(node);
      read.what = describe(kernel);
      read.words = std::move(kernel.words);
      return Decision::allow();
    }
    case kMemsetNode: {
      MemsetParams params{};
      check(graph_driver()->memset_params(node, &params), "cuGraphMemsetNodeGetParams");
      read.what = "memset " + std::to_string(params.value) + " " +
                  std::to_string(params.element_bytes) + " " + std::to_string(params.width) + " " +
                  std::to_string(params.height);
      read.words = {params.dst};
      return Decision::allow();
    }
    case kMemcpyNode: {
      MemcpyParams params{};
      check(graph_driver()->memcpy_params(node, &params), "cuGraphMemcpyNodeGetParams");
      if (!is_on_device(params.src) || !is_on_device(params.dst))
        return Decision::forbid("it copies between host and device");
      read.what = "memcpy " + std::to_string(params.width_bytes) + " " +
                  std::to_string(params.height) + " " + std::to_string(params.depth);
      read.words = {params.src.device, params.dst.device};
      return Decision::allow();
    }
    case kEmptyNode: read.what = "empty"; return Decision::allow();
    default: return Decision::forbid("a node of kind " + std::to_string(type) + " is in its graph");
  }
}

}  // namespace

Decision read_nodes(Graph graph, std::span<const size_t> steps, std::vector<CapturedNode>& nodes) {
  const std::vector<Node> all = nodes_of(graph);
  size_t step = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    while (step < steps.size() && steps[step] <= i) ++step;
    CapturedNode node;
    if (Decision read = read_node(all[i], node); !read) return read;
    node.step = static_cast<int32_t>(step);
    nodes.push_back(std::move(node));
  }
  return Decision::allow();
}

// A node whose parameters are changed.
struct PatchedGraph::Patched {
  Node node = nullptr;
  std::variant<KernelCopy, MemsetParams, MemcpyParams> params;
  std::vector<Place> places;
  std::vector<NumberPlace> numbers;
  bool is_dirty = false;

  void set_word(int32_t word, uint64_t value) {
    if (auto* kernel = std::get_if<KernelCopy>(&params)) kernel->words[word] = value;
    if (auto* fill = std::get_if<MemsetParams>(&params)) fill->dst = value;
    if (auto* copy = std::get_if<MemcpyParams>(&params))
      (word == kMemcpySrc ? copy->src : copy->dst).device = value;
  }
  void set_number(const NumberPlace& place, const Number& number) {
    uint64_t& word = std::get<KernelCopy>(params).words[place.half / 2];
    const uint64_t bits = bits_of(place.form, number);
    if (is_wide(place.form)) {
      word = bits;
      return;
    }
    const int shift = place.half % 2 * 32;
    word = (word & ~(uint64_t{0xffffffff} << shift)) | bits << shift;
  }
};

int32_t PatchedGraph::patched_at(int32_t node, std::span<const Node> all) {
  const auto [known, is_new] = by_node_.try_emplace(node, static_cast<int32_t>(patched_.size()));
  if (!is_new) return known->second;
  auto patched = std::make_unique<Patched>();
  patched->node = all[node];
  const GraphDriver& driver = *graph_driver();
  switch (type_of(patched->node)) {
    case kKernelNode:
      patched->params = read_kernel(patched->node);
      point_at_copy(std::get<KernelCopy>(patched->params));
      break;
    case kMemsetNode:
      patched->params = MemsetParams{};
      check(driver.memset_params(patched->node, &std::get<MemsetParams>(patched->params)),
            "cuGraphMemsetNodeGetParams");
      break;
    default:
      patched->params = MemcpyParams{};
      check(driver.memcpy_params(patched->node, &std::get<MemcpyParams>(patched->params)),
            "cuGraphMemcpyNodeGetParams");
  }
  patched_.push_back(std::move(patched));
  return known->second;
}

PatchedGraph::PatchedGraph(OwnedGraph graph, std::span<const Place> places,
                           std::span<const NumberPlace> number_places, size_t tensors,
                           size_t numbers)
    : graph_(std::move(graph)),
      users_(tensors),
      number_users_(numbers),
      addresses_(tensors, ~uint64_t{0}),
      numbers_(numbers) {
  const std::vector<Node> all = nodes_of(graph_.get());
  nodes_ = all.size();
  const auto add_user = [](std::vector<int32_t>& users, int32_t node) {
    if (users.empty() || users.back() != node) users.push_back(node);
  };
  for (const Place& place : places) {
    const int32_t node = patched_at(place.node, all);
    patched_[node]->places.push_back(place);
    add_user(users_[place.tensor], node);
  }
  for (const NumberPlace& place : number_places) {
    const int32_t node = patched_at(place.node, all);
    patched_[node]->numbers.push_back(place);
    add_user(number_users_[place.number], node);
  }
  GraphExec exec = nullptr;
  check(graph_driver()->graph_instantiate(&exec, graph_.get(), 0), "cuGraphInstantiate");
  exec_.reset(exec);
}

PatchedGraph::~PatchedGraph() = default;

void PatchedGraph::set_params(Patched& node) {
  for (const Place& place : node.places)
    node.set_word(place.word, addresses_[place.tensor] + static_cast<uint64_t>(place.offset));
  for (const NumberPlace& place : node.numbers) node.set_number(place, *numbers_[place.number]);
  const GraphDriver& driver = *graph_driver();
  if (const auto* kernel = std::get_if<KernelCopy>(&node.params)) {
    const Status status = driver.set_kernel_params(exec_.get(), node.node, &kernel->params);
    if (status != 0)
      check(status, ("cuGraphExecKernelNodeSetParams of " + describe(*kernel)).c_str());
    return;
  }
  Context context = nullptr;
  check(driver.context_current(&context), "cuCtxGetCurrent");
  if (const auto* fill = std::get_if<MemsetParams>(&node.params))
    check(driver.set_memset_params(exec_.get(), node.node, fill, context),
          "cuGraphExecMemsetNodeSetParams");
  else
    check(driver.set_memcpy_params(exec_.get(), node.node, &std::get<MemcpyParams>(node.params),
                                   context),
          "cuGraphExecMemcpyNodeSetParams");
}

void PatchedGraph::mark(std::span<const int32_t> users) {
  for (const int32_t user : users)
    if (!std::exchange(patched_[user]->is_dirty, true)) dirty_.push_back(user);
}

void PatchedGraph::launch(std::span<const uint64_t> addresses, std::span<const Number> numbers,
                          Stream stream) {
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i] == addresses_[i]) continue;
    addresses_[i] = addresses[i];
    mark(users_[i]);
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers_[i] == numbers[i]) continue;
    numbers_[i] = numbers[i];
    mark(number_users_[i]);
  }
  for (const int32_t user : dirty_) {
    patched_[user]->is_dirty = false;
    set_params(*patched_[user]);
  }
  dirty_.clear();
  check(graph_driver()->graph_launch(exec_.get(), stream), "cuGraphLaunch");
}

}  // namespace smelt::cuda_graphs
