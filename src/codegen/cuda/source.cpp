#include "codegen/cuda/source.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "codegen/cuda/emitter.h"

namespace smelt::cuda {
namespace {

// A name of C, not too long, that says what the kernel computes.
std::string entry_name(const std::string& name) {
  std::string text = "smelt_";
  for (const char c : name.substr(0, 100)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (plain || text.back() != '_') text += plain ? c : '_';
  }
  return text;
}

std::vector<int64_t> alignments(const Kernel& kernel, const Plan& plan) {
  std::vector<int64_t> bytes;
  for (const Buffer& buffer : kernel.buffers) bytes.push_back(bytes_of(buffer.dtype));
  for (size_t v = 0; v < kernel.insts.size(); ++v) {
    const Inst& inst = kernel.insts[v];
    if (!plan.wide[v] || !plan.varies[v]) continue;
    bytes[inst.slot] =
        std::max<int64_t>(bytes[inst.slot], std::min(16, plan.vector * bytes_of(inst.dtype)));
  }
  return bytes;
}

}  // namespace

Source write_source(const Kernel& kernel, bool contract, const PlanOptions& options) {
  const Plan plan = make_plan(kernel, options);
  Source source;
  Facts& facts = source.facts;
  facts.entry = entry_name(kernel.name);
  facts.threads = plan.threads;
  facts.each = plan.items_per_block();
  facts.items = plan.items;
  facts.points = plan.points;
  facts.slices = plan.slices;
  facts.alignment = alignments(kernel, plan);
  facts.contract = contract;
  facts.reach = {product(kernel.outer), product(kernel.inner)};
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& buffer = kernel.buffers[i];
    facts.reach.push_back(buffer.elements);
    if (plan.homes[i] == Home::global)
      facts.scratch_bytes.push_back(buffer.elements * bytes_of(buffer.dtype));
  }
  if (plan.slices == 1) {
    source.text = Emitter(kernel, plan, facts.entry, Part::whole).run();
    return source;
  }
  const Plan finish = finish_plan(kernel, plan);
  facts.finish_threads = finish.threads;
  facts.finish_each = finish.items_per_block();
  for (const Inst& inst : kernel.insts) {
    if (inst.op != Op::reduce) continue;
    const bool placed = loops::gives_position(inst.reduction);
    facts.partial_bytes.push_back(placed ? 16 : bytes_of(inst.dtype));
  }
  source.text = Emitter(kernel, plan, facts.entry, Part::slices).run() +
                Emitter(kernel, finish, facts.entry + "_finish", Part::finish).run();
  return source;
}

std::string Facts::str() const {
  std::ostringstream text;
  const auto numbers = [&](const char* name, const std::vector<int64_t>& values) {
    text << name;
    for (const int64_t value : values) text << " " << value;
    text << "\n";
  };
  text << "entry " << entry << "\n";
  numbers("shape", {threads, each, slices, finish_threads, finish_each, contract});
  numbers("alignment", alignment);
  numbers("partial", partial_bytes);
  text << "items " << items.str() << "\npoints " << points.str() << "\n";
  for (const Size& size : reach) text << "reach " << size.str() << "\n";
  for (const Size& size : scratch_bytes) text << "scratch " << size.str() << "\n";
  return text.str();
}

Facts Facts::parse(std::string_view text) {
  Facts facts;
  std::istringstream lines{std::string(text)};
  std::string line;
  while (std::getline(lines, line)) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space);
    const std::string rest = line.substr(std::min(space + 1, line.size()));
    const auto numbers = [&] {
      std::vector<int64_t> values;
      std::istringstream words(rest);
      for (int64_t value; words >> value;) values.push_back(value);
      return values;
    };
    const auto size = [&] {
      const std::optional<Size> read = Size::parse(rest);
      SMELT_CHECK(read, "no size: " + rest);
      return *read;
    };
    if (name == "entry") {
      facts.entry = rest;
    } else if (name == "shape") {
      const std::vector<int64_t> shape = numbers();
      SMELT_CHECK(shape.size() == 6, "a kernel's shape has six numbers");
      facts.threads = shape[0], facts.each = shape[1], facts.slices = shape[2];
      facts.finish_threads = shape[3], facts.finish_each = shape[4], facts.contract = shape[5] != 0;
    } else if (name == "alignment") {
      facts.alignment = numbers();
    } else if (name == "partial") {
      facts.partial_bytes = numbers();
    } else if (name == "items") {
      facts.items = size();
    } else if (name == "points") {
      facts.points = size();
    } else if (name == "reach") {
      facts.reach.push_back(size());
    } else if (name == "scratch") {
      facts.scratch_bytes.push_back(size());
    }
  }
  return facts;
}

}  // namespace smelt::cuda
