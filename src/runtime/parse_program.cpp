// Reads the text form that the head of program_text.cpp shows.
#include <algorithm>

#include "base/reader.h"
#include "runtime/program_text.h"
#include "runtime/program_words.h"

namespace smelt {
namespace {

class Parser {
 public:
  explicit Parser(Reader& reader) : reader_(reader) {}

  Program run() {
    expect_word("program");
    program_.registers = reader_.index("the number of registers");
    expect_word("registers");
    if (reader_.accept_word("asks"))
      program_.asks_default_float = reader_.quoted("the name of an op");
    reader_.end_line();
    while (reader_.accept_word("symbol")) parse_symbol();
    while (reader_.accept_word("guard")) parse_guard();
    while (reader_.accept_word("input")) parse_input();
    while (reader_.accept_word("const")) parse_constant();
    while (reader_.accept_word("code")) {
      codes_.push_back(std::make_shared<const std::string>(reader_.quoted("code")));
      reader_.end_line();
    }
    while (reader_.accept_word("kernel")) parse_kernel();
    if (reader_.accept_word("arena")) parse_arena();
    while (reader_.accept_word("step")) parse_step();
    expect_word("return");
    program_.outputs = registers();
    reader_.end_line();
    if (reader_.accept_word("prepared")) {
      expect_word("by");
      reader_.end_line();
      program_.preparation = std::make_shared<const Program>(Parser(reader_).run());
    }
    return std::move(program_);
  }

 private:
  void expect_word(std::string_view word) {
    if (!reader_.accept_word(word)) reader_.fail("'" + std::string(word) + "'");
  }

  int64_t number() {
    const size_t place = reader_.place();
    const Size size = read_size(reader_);
    if (!size.is_known()) reader_.fail_at(place, "expected a number that is known");
    return size.known();
  }

  // "[a, b]": `read` reads one.
  template <class Read>
  void list(const Read& read) {
    reader_.expect("[");
    if (reader_.accept("]")) return;
    do {
      read();
    } while (reader_.accept(","));
    reader_.expect("]");
  }

  Register reg() {
    if (reader_.accept("_")) return -1;
    const size_t place = reader_.place();
    reader_.expect("%");
    const Register reg = reader_.index("the number of a register");
    if (reg >= program_.registers)
      reader_.fail_at(place, "there are " + std::to_string(program_.registers) + " registers");
    return reg;
  }

  std::vector<Register> registers() {
    std::vector<Register> all;
    list([&] { all.push_back(reg()); });
    return all;
  }

  void parse_symbol() {
    const size_t place = reader_.place();
    const Size next = Size::symbol(static_cast<int>(program_.symbols.symbols().size()));
    if (read_size(reader_) != next)
      reader_.fail_at(place, "expected " + next.str() + ", symbols are numbered in order");
    reader_.expect("=");
    const int64_t hint = number();
    if (hint < 2) reader_.fail_at(place, "the hint of a symbol is at least 2");
    program_.symbols.add(hint, reader_.quoted("a name"));
    SymbolBinding binding;
    if (!reader_.accept("given")) {
      expect_word("of");
      expect_word("input");
      binding.input = reader_.index("the number of an input");
      expect_word("dim");
      binding.dim = reader_.index("the number of a dimension");
    }
    program_.bindings.push_back(binding);
    reader_.end_line();
  }

  void parse_guard() {
    Guard guard;
    guard.left = read_size(reader_);
    guard.relation = relation();
    guard.right = read_size(reader_);
    guard.where = reader_.end_line();
    program_.symbols.add_guard(std::move(guard));
  }

  Relation relation() {
    // Those of two characters first: "<" begins "<=" too.
    for (const Relation relation :
         {Relation::eq, Relation::ne, Relation::le, Relation::ge, Relation::lt, Relation::gt})
      if (reader_.accept(name_of(relation))) return relation;
    reader_.fail("one of == != < <= > >=");
  }

  void parse_input() {
    ProgramInput input;
    input.reg = reg();
    reader_.expect(":");
    input.type = read_type(reader_);
    reader_.expect("=");
    input.source = static_cast<uint8_t>(reader_.natural("the source of an input"));
    input.index = reader_.index("the index of an input");
    program_.inputs.push_back(std::move(input));
    reader_.end_line();
  }

  void parse_constant() {
    ProgramConstant constant;
    constant.reg = reg();
    reader_.expect("=");
    constant.digest = reader_.quoted("the digest of a constant");
    program_.constants.push_back(std::move(constant));
    reader_.end_line();
  }

  KernelImage::Buffer buffer() {
    const auto found = std::ranges::find(kBufferWords, reader_.peek_word());
    if (found == kBufferWords.end()) reader_.fail("a kind of buffer");
    reader_.skip(found->size());
    return static_cast<KernelImage::Buffer>(found - kBufferWords.begin());
  }

  void parse_kernel() {
    KernelImage kernel;
    kernel.name = reader_.quoted("the name of a kernel");
    kernel.backend = reader_.quoted("the name of a back end");
    kernel.target = reader_.quoted("a kind of processor");
    const std::optional<Device> device = accept_device(reader_);
    if (!device) reader_.fail("a device");
    kernel.device = *device;
    if (reader_.accept_word("code")) {
      const size_t place = reader_.place();
      const int32_t code = reader_.index("the number of a piece of code");
      if (code < 0 || code >= std::ssize(codes_)) reader_.fail_at(place, "there is no such code");
      kernel.code = codes_[code];
    }
    expect_word("buffers");
    list([&] { kernel.buffers.push_back(buffer()); });
    expect_word("sizes");
    list([&] { kernel.sizes.push_back(read_size(reader_)); });
    if (reader_.accept_word("params")) kernel.params = static_cast<int32_t>(number());
    if (reader_.accept_word("units")) kernel.units = read_size(reader_);
    if (reader_.accept_word("cost")) kernel.unit_cost = read_size(reader_);
    if (reader_.accept_word("scratch")) kernel.scratch_bytes = number();
    if (reader_.accept_word("finish")) kernel.finish_units = number();
    if (reader_.accept_word("partial")) kernel.partial_bytes = number();
    kernel.ordered = reader_.accept_word("ordered");
    program_.kernels.push_back(std::move(kernel));
    reader_.end_line();
  }

  void parse_arena() {
    Arena& arena = program_.arena;
    arena.bytes = number();
    expect_word("bytes");
    reader_.end_line();
    while (reader_.accept_word("buffer")) {
      Arena::Buffer buffer;
      buffer.bytes = read_size(reader_);
      expect_word("first");
      buffer.first = reader_.index("the number of a step");
      expect_word("last");
      buffer.last = reader_.index("the number of a step");
      if (reader_.accept_word("at")) arena.offsets.push_back(number());
      arena.buffers.push_back(std::move(buffer));
      reader_.end_line();
    }
  }

  void parse_step() {
    Step step;
    step.op = reader_.quoted("the name of an op");
    if (reader_.accept_word("kernel")) step.kernel = reader_.index("the number of a kernel");
    list([&] { step.args.push_back(read_arg(reader_)); });
    reader_.expect("->");
    list([&] {
      step.results.push_back(reg());
      reader_.expect(":");
      step.types.push_back(read_type(reader_));
    });
    if (reader_.accept_word("release")) step.release = registers();
    if (reader_.accept_word("reuse")) step.reuse = registers();
    if (reader_.accept_word("into")) step.into = registers();
    if (reader_.accept_word("arena"))
      list([&] { step.arena.push_back(reader_.index("the number of a buffer")); });
    if (reader_.accept_word("in_place")) {
      step.in_place_op = reader_.quoted("the name of an op");
      step.taken = reader_.index("the number of an argument");
    }
    if (reader_.accept_word("offset")) step.view_offset = read_size(reader_);
    step.with_next = reader_.accept_word("with_next");
    step.visible = reader_.accept_word("visible");
    step.grad = reader_.accept_word("grad");
    program_.steps.push_back(std::move(step));
    reader_.end_line();
  }

  Reader& reader_;
  Program program_;
  std::vector<std::shared_ptr<const std::string>> codes_;
};

}  // namespace

Program parse_program(std::string_view text) {
  Reader reader(text);
  reader.skip_empty_lines();
  Program program = Parser(reader).run();
  if (!reader.at_end()) reader.fail("the end of the text");
  return program;
}

}  // namespace smelt
