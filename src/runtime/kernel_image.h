// A kernel as data: the code that a back end made of its loops, and the facts that starting it
// takes. It holds no pointer into the compiler and no address of code, so it can be written to a
// file and loaded by another process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/size.h"
#include "base/type.h"

namespace smelt {

// What a back end makes code of when that is asked for.
class UnmadeCode {
 public:
  UnmadeCode() = default;
  virtual ~UnmadeCode() = default;
  UnmadeCode(const UnmadeCode&) = delete;
  UnmadeCode& operator=(const UnmadeCode&) = delete;
};

struct KernelImage {
  // An updated one is an output that begins as a copy of an argument, a zeroed one as zeros.
  enum class Buffer : uint8_t { input, output, updated, zeroed, scratch };

  std::string name;     // names the ops that it computes
  std::string backend;  // who made it, and loads it: "cpu", "interpret"
  std::string target;   // the kind of processor that can run it: "avx512"
  Device device;        // whose memory it reads and writes
  // What the back end loads: an object file, the text of the loops. Equal kernels share it.
  std::shared_ptr<const std::string> code;
  // Of an image that stays in the process: the code is made when the kernel is loaded.
  std::shared_ptr<const UnmadeCode> unmade;
  std::vector<Buffer> buffers;
  // What it is given at run time: the sizes in it that depend on symbols, and numbers.
  Sizes sizes;
  int32_t params = 0;

  // Its work is cut into units that threads share; a unit takes about so many cycles.
  Size units = 0;
  Size unit_cost = 0;
  int64_t scratch_bytes = 0;  // of each thread
  bool ordered = false;       // all units run on one thread
  // Greater than 0: a second part of so many units runs when all units are done. Both parts get one
  // more buffer then, of partial_bytes bytes.
  int64_t finish_units = 0;
  int64_t partial_bytes = 0;
};

}  // namespace smelt
