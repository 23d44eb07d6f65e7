// Reads the text form that the head of print.cpp shows, line by line. Only the form is checked;
// whether the kernel makes sense is verify()'s to say.
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/reader.h"
#include "loops/kernel.h"

namespace smelt::loops {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text) {}

  Kernel run() {
    reader_.skip_empty_lines();
    parse_head();
    while (reader_.peek_word().starts_with('b')) parse_buffer();
    while (!reader_.accept_word("end")) parse_stage();
    reader_.end_line();
    if (!reader_.at_end()) reader_.fail("the end of the text");
    return std::move(kernel_);
  }

 private:
  void parse_head() {
    if (!reader_.accept_word("kernel")) reader_.fail("'kernel \"name\" outer [...] inner [...]'");
    kernel_.name = reader_.quoted("the name of the kernel");
    if (!reader_.accept_word("outer")) reader_.fail("'outer [...]'");
    kernel_.outer = parse_sizes();
    if (!reader_.accept_word("inner")) reader_.fail("'inner [...]'");
    kernel_.inner = parse_sizes();
    if (reader_.accept_word("params")) kernel_.params = reader_.index("the number of parameters");
    kernel_.ordered = reader_.accept_word("ordered");
    reader_.end_line();
  }

  Sizes parse_sizes() {
    Sizes sizes;
    reader_.expect("[");
    if (reader_.accept("]")) return sizes;
    do {
      sizes.push_back(read_size(reader_));
    } while (reader_.accept(","));
    reader_.expect("]");
    return sizes;
  }

  // A letter and a number, as b0 or v3.
  int32_t parse_numbered(char letter, std::string_view expected) {
    size_t place = reader_.place();
    std::string_view word = reader_.word(expected);
    int32_t number = 0;
    auto [end, problem] = std::from_chars(word.data() + 1, word.data() + word.size(), number);
    if (word[0] != letter || problem != std::errc() || end != word.data() + word.size())
      reader_.fail_at(place,
                      "expected " + std::string(expected) + ", found '" + std::string(word) + "'");
    return number;
  }

  void parse_place(Inst& inst) {
    inst.slot = parse_numbered('b', "a buffer, as b0");
    reader_.expect("[");
    inst.index = Index::read(reader_);
    reader_.expect("]");
  }

  Val parse_value() { return parse_numbered('v', "a value, as v0"); }

  DType parse_type() {
    size_t place = reader_.place();
    std::optional<DType> dtype = parse_dtype(reader_.word("a dtype, as f32"));
    if (!dtype) reader_.fail_at(place, "expected a dtype, as f32");
    return *dtype;
  }

  void parse_buffer() {
    size_t place = reader_.place();
    int32_t number = parse_numbered('b', "a buffer, as b0");
    if (static_cast<size_t>(number) != kernel_.buffers.size())
      reader_.fail_at(place, "buffers are numbered in order from b0");
    reader_.expect(":");
    Buffer buffer;
    buffer.dtype = parse_type();
    reader_.expect("[");
    buffer.elements = read_size(reader_);
    reader_.expect("]");
    buffer.kind = parse_kind();
    kernel_.buffers.push_back(std::move(buffer));
    reader_.end_line();
  }

  Buffer::Kind parse_kind() {
    if (reader_.accept_word("input")) return Buffer::Kind::input;
    if (reader_.accept_word("output")) return Buffer::Kind::output;
    if (reader_.accept_word("updated")) return Buffer::Kind::updated;
    if (reader_.accept_word("scratch")) return Buffer::Kind::scratch;
    reader_.fail("one of input, output, updated, scratch");
  }

  void parse_stage() {
    Stage stage;
    stage.inner = reader_.accept_word("inner");
    if (!stage.inner && !reader_.accept_word("outer"))
      reader_.fail("'inner stage', 'outer stage' or 'end'");
    if (!reader_.accept_word("stage")) reader_.fail("'stage'");
    reader_.end_line();
    stage.begin = static_cast<Val>(kernel_.insts.size());
    while (true) {
      std::string_view word = reader_.peek_word();
      if (word == "inner" || word == "outer" || word == "end") break;
      parse_inst();
    }
    stage.end = static_cast<Val>(kernel_.insts.size());
    kernel_.stages.push_back(stage);
  }

  void parse_inst() {
    Inst inst;
    if (reader_.accept_word("store"))
      parse_write(inst, Op::store);
    else if (reader_.accept_word("accumulate"))
      parse_write(inst, Op::accumulate);
    else
      parse_definition(inst);
    kernel_.insts.push_back(std::move(inst));
    reader_.end_line();
  }

  void parse_write(Inst& inst, Op op) {
    inst.op = op;
    if (op == Op::accumulate) inst.reduction = accept_reduction().value_or(Reduction::sum);
    size_t place = reader_.place();
    parse_place(inst);
    if (inst.slot < 0 || static_cast<size_t>(inst.slot) >= kernel_.buffers.size())
      reader_.fail_at(place, "there is no buffer b" + std::to_string(inst.slot));
    inst.dtype = kernel_.buffers[inst.slot].dtype;
    reader_.expect("=");
    inst.args[0] = parse_value();
  }

  void parse_definition(Inst& inst) {
    size_t place = reader_.place();
    Val value = parse_numbered('v', "an instruction, as 'v0: f32 = load b0[i0]'");
    if (static_cast<size_t>(value) != kernel_.insts.size()) {
      reader_.fail_at(place, "this is instruction " + std::to_string(kernel_.insts.size()) +
                                 ", they are numbered by their place");
    }
    reader_.expect(":");
    inst.dtype = parse_type();
    reader_.expect("=");
    place = reader_.place();
    std::string_view name = reader_.word("an op, as add");
    std::optional<Op> op = parse_op(name);
    if (!op) reader_.fail_at(place, "there is no op '" + std::string(name) + "'");
    inst.op = *op;
    parse_operands(inst);
  }

  void parse_operands(Inst& inst) {
    switch (inst.op) {
      case Op::constant: return parse_constant(inst);
      case Op::param: inst.slot = reader_.index("the number of a parameter"); return;
      case Op::index: inst.index = Index::read(reader_); return;
      case Op::load: return parse_place(inst);
      case Op::check:
        inst.args[0] = parse_value();
        if (!reader_.accept_word("below")) reader_.fail("'below'");
        inst.bound = read_size(reader_);
        return;
      case Op::scan:
      case Op::reduce: {
        std::optional<Reduction> reduction = accept_reduction();
        if (!reduction) reader_.fail("a reduction, as sum");
        inst.reduction = *reduction;
        inst.args[0] = parse_value();
        return;
      }
      default: break;
    }
    for (int i = 0; i < facts_of(inst.op).arguments; ++i) {
      if (i > 0) reader_.expect(",");
      inst.args[i] = parse_value();
    }
  }

  std::optional<Reduction> accept_reduction() {
    std::optional<Reduction> reduction = parse_reduction(reader_.peek_word());
    if (reduction) reader_.skip(name_of(*reduction).size());
    return reduction;
  }

  void parse_constant(Inst& inst) {
    std::string_view text = reader_.rest_until("\n#");
    const char* end = text.data() + text.size();
    auto [at, problem] = is_floating(inst.dtype) ? std::from_chars(text.data(), end, inst.number)
                                                 : std::from_chars(text.data(), end, inst.integer);
    if (problem != std::errc() || at != end) reader_.fail("a number of the instruction's dtype");
    reader_.skip(text.size());
  }

  Reader reader_;
  Kernel kernel_;
};

}  // namespace

Kernel Kernel::parse(std::string_view text) {
  try {
    return Parser(text).run();
  } catch (const Error& error) {
    throw Error(std::string("this is not the text of a kernel: ") + error.what());
  }
}

}  // namespace smelt::loops
