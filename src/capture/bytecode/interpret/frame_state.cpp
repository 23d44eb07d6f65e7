#include "capture/bytecode/interpret/frame_state.h"

#include "base/error.h"

namespace smelt::bytecode {
namespace {

// A number in the exception table: six bits per byte, the seventh says that there is more.
const uint8_t* read_number(const uint8_t* at, int* number) {
  int value = *at & 63;
  while (*at & 64) value = value << 6 | (*++at & 63);
  *number = value;
  return at + 1;
}

}  // namespace

Instructions instructions_of(PyCodeObject* code) {
  Object bytes = Object::steal(PyCode_GetCode(code));  // the code keeps it
  if (!bytes) {
    PyErr_Clear();
    return {};
  }
  return {reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes.get())),
          static_cast<int>(PyBytes_GET_SIZE(bytes.get()) / 2)};
}

FrameState::FrameState(PyThreadState* thread, Frame frame, Trace* trace, bool is_root,
                       std::vector<Ref> refs)
    : thread_(thread),
      frame_(frame),
      trace_(trace),
      is_root_(is_root),
      code_(frame.code()),
      slots_(frame.slots()),
      locals_(frame.locals()),
      refs_(std::move(refs)) {
  const Instructions instructions = instructions_of(code_);
  SMELT_CHECK(instructions.bytes != nullptr, "code without instructions");
  bytes_ = instructions.bytes;
  units_ = instructions.units;
  if (trace_ != nullptr) refs_.resize(locals_ + code_->co_stacksize + 1);
  if (is_root_ && trace_ != nullptr) handled_at_start_ = Object::share(handled_exception());
}

void FrameState::stop(BreakReason reason, std::string detail) {
  if (trace_ != nullptr) trace_->stop(reason, std::move(detail));
}

std::optional<FrameState::Handler> FrameState::handler_at(int unit) const {
  return handler_in(code_, unit);
}

std::optional<FrameState::Handler> FrameState::handler_in(PyCodeObject* code, int unit) {
  PyObject* table = code->co_exceptiontable;
  const auto* at = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(table));
  const uint8_t* end = at + PyBytes_GET_SIZE(table);
  while (at < end) {
    int start, size, target, depth_and_lasti;
    at = read_number(at, &start);
    at = read_number(at, &size);
    at = read_number(at, &target);
    at = read_number(at, &depth_and_lasti);
    if (start > unit) break;
    if (unit < start + size)
      return Handler{target, depth_and_lasti >> 1, (depth_and_lasti & 1) != 0};
  }
  return std::nullopt;
}

PyObject* FrameState::local_name(int index) const {
  return PyTuple_GET_ITEM(code_->co_localsplusnames, index);
}

std::vector<Value> FrameState::top_values(int count) const {
  std::vector<Value> values;
  values.reserve(static_cast<size_t>(count));
  for (int i = count; i > 0; --i) values.push_back(peek(i));
  return values;
}

void FrameState::set(int slot, PyObject* object, Ref ref) {
  slots_[slot] = object;
  if (!refs_.empty()) refs_[slot] = ref;
}

void FrameState::push(PyObject* object, Ref ref) { set(locals_ + depth_++, object, ref); }

PyObject* FrameState::pop() {
  const int slot = locals_ + --depth_;
  PyObject* object = slots_[slot];
  set(slot, nullptr, 0);
  return object;
}

void FrameState::drop(int count) {
  for (int i = 0; i < count; ++i) let_go(pop());
}

void FrameState::let_go(PyObject* object) {
  if (trace_ != nullptr) trace_->let_go.note(object);
  Py_XDECREF(object);
}

// A cached call drops what was in the root's variables when the segment ends, where nobody may see
// that it is late.
void FrameState::let_go_of_variable(PyObject* object) {
  if (object != nullptr && is_root_ && live() != nullptr) live()->depend_on_finaliser(object);
  let_go(object);
}

FrameState::Flow FrameState::replace(int inputs, Result result) {
  if (result.object == nullptr) return Flow::error;
  drop(inputs);
  push(result);
  return Flow::next;
}

FrameState::Flow FrameState::done(int inputs, bool ok) {
  if (!ok) return Flow::error;
  drop(inputs);
  return Flow::next;
}

FrameState::Flow FrameState::jump(int by) {
  next_ += by;
  turns_ += by < 0;
  return Flow::next;
}

}  // namespace smelt::bytecode
