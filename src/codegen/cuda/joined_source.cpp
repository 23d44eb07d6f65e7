#include "codegen/cuda/joined_source.h"

#include <algorithm>

#include "base/error.h"
#include "codegen/cuda/emitter.h"

namespace smelt::cuda {
namespace {

// A function of a body's text, taken apart: what stands before its parameters, these, the rest.
struct Function {
  std::vector<std::string> types;  // of the parameters
  std::string parameters;
  std::string block;  // from "{" on
};

std::string entry_of(const Body& body, Half half) {
  return body.facts->entry + (half == Half::finish ? "_finish" : "");
}

Function find_function(const Body& body, Half half) {
  const std::string& text = *body.text;
  const std::string name = ") " + entry_of(body, half) + "(";
  const size_t named = text.find(name);
  SMELT_CHECK(named != text.npos, "a kernel's text has no function called " + name);
  const size_t first = named + name.size(), last = text.find(") {\n", first);
  const size_t end = std::min(text.find(kKernelHead, last), text.size());
  Function found;
  found.parameters = text.substr(first, last - first);
  found.block = text.substr(last + 2, end - last - 2);
  for (size_t begin = 0; begin < found.parameters.size();) {
    const size_t comma = std::min(found.parameters.find(", ", begin), found.parameters.size());
    const std::string one = found.parameters.substr(begin, comma - begin);
    found.types.push_back(one.substr(0, one.rfind(' ')));
    begin = comma + 2;
  }
  return found;
}

int64_t threads_of(const Body& body, Half half) {
  return half == Half::finish ? body.facts->finish_threads : body.facts->threads;
}

// Inside, blockIdx and gridDim are the member's own.
std::string body_text(const Function& function, const std::string& name) {
  return "SMELT_DEVICE void " + name + "(const Blocks blockIdx, const Blocks gridDim" +
         (function.parameters.empty() ? "" : ", ") + function.parameters + ") " + function.block;
}

std::string call_text(const Function& function, const std::string& name) {
  std::string text = name + "(own, grid";
  for (size_t i = 0; i < function.types.size(); ++i)
    text += ", (" + function.types[i] + ")all.words[at + " + std::to_string(i + 1) + "]";
  return text + ")";
}

}  // namespace

size_t argument_count(const Body& body, Half half) {
  return find_function(body, half).types.size();
}

JoinedSource write_joined(std::span<const Body> all, std::span<const size_t> bodies, Half half) {
  JoinedSource joined;
  size_t words = bodies.size();
  std::vector<Function> functions;
  for (const Body& body : all) {
    functions.push_back(find_function(body, half));
    joined.threads = std::max(joined.threads, threads_of(body, half));
  }
  for (const size_t body : bodies) words += 1 + functions[body].types.size();
  joined.entry = entry_of(all[0], half) + "_joined_" + std::to_string(bodies.size());
  joined.text = "struct Blocks {\n  unsigned x, y;\n};\n";
  for (size_t i = 0; i < all.size(); ++i)
    joined.text += body_text(functions[i], "body" + std::to_string(i));
  joined.text += "struct Joined {\n  u64 words[" + std::to_string(words) + "];\n};\n" +
                 kKernelHead + std::to_string(joined.threads) + ") " + joined.entry +
                 "(const __grid_constant__ Joined all) {\n"
                 "  int low = 0, high = " +
                 std::to_string(bodies.size() - 1) +
                 ";\n"
                 "  while (low < high) {\n"
                 "    const int middle = (low + high + 1) / 2;\n"
                 "    if (static_cast<unsigned>(all.words[middle]) <= blockIdx.x)\n"
                 "      low = middle;\n"
                 "    else\n"
                 "      high = middle - 1;\n"
                 "  }\n"
                 "  const u64 member = all.words[low];\n"
                 "  const unsigned at = static_cast<unsigned>(member >> 48);\n"
                 "  const unsigned block = blockIdx.x - static_cast<unsigned>(member);\n"
                 "  const Blocks grid = {static_cast<unsigned>(all.words[at]), 1};\n"
                 "  const Blocks own = {block % grid.x, block / grid.x};\n"
                 "  switch (static_cast<unsigned>(member >> 32) & 0xffff) {\n";
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t threads = threads_of(all[i], half);
    const std::string guard =
        threads < joined.threads ? "if (threadIdx.x < " + std::to_string(threads) + ") " : "";
    joined.text += "    case " + std::to_string(i) + ": " + guard +
                   call_text(functions[i], "body" + std::to_string(i)) + "; break;\n";
  }
  joined.text += "  }\n}\n";
  return joined;
}

}  // namespace smelt::cuda
