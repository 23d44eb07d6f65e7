#include "passes/rewriting/value_names.h"

#include <string>

namespace smelt {
namespace {

uint64_t hash(std::string_view text, uint64_t state) {
  for (const char c : text) {
    state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    state ^= state >> 31;
  }
  return state;
}

ValueName name_of_text(const std::string& text) {
  return {hash(text, 0xcbf29ce484222325), hash(text, 0x9e3779b97f4a7c15)};
}

}  // namespace

std::vector<ValueName> value_names(const Graph& graph) {
  std::vector<ValueName> names(graph.values.size());
  for (const Input& input : graph.inputs)
    names[input.value] = name_of_text(std::string(name_of(input.source)) + " " +
                                      std::to_string(input.index) + graph.type(input.value).str());
  for (const Constant& constant : graph.constants)
    names[constant.value] =
        name_of_text("const " + constant.digest + graph.type(constant.value).str());
  size_t impure = 0;
  for (const Node& node : graph.nodes) {
    std::string text = node.op.str();
    if (!node.traits.is_pure()) text += " #" + std::to_string(impure++);
    for (Arg arg : node.args) {
      std::string read;
      each_ref(arg, [&](Ref& ref) {
        if (ref.id < 0) return;
        read +=
            " " + std::to_string(names[ref.id].first) + "." + std::to_string(names[ref.id].second);
        ref.id = 0;
      });
      text += ", " + str(arg) + read;
    }
    for (size_t i = 0; i < node.results.size(); ++i)
      if (const ValueId result = node.results[i]; result >= 0)
        names[result] =
            name_of_text(text + " -> " + std::to_string(i) + " " + graph.type(result).str());
  }
  return names;
}

}  // namespace smelt
