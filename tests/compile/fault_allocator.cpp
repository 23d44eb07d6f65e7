// Preloaded by test_faults.py: an operator new that fails on demand, once, on one thread, and only
// for smelt's own code. The program that smelt runs never notices a lack of memory by itself.
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

struct Range {
  uintptr_t first, last;
};
Range ranges[16];
int range_count = 0;
thread_local long passed = 0;    // allocations of smelt's on this thread since it was armed
thread_local long failing = -1;  // the one that fails; 0: none does; -1: not armed

bool is_watched(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (int i = 0; i < range_count; ++i)
    if (at >= ranges[i].first && at < ranges[i].last) return true;
  return false;
}

int add_ranges(dl_phdr_info* info, size_t, void* name) {
  if (std::strstr(info->dlpi_name, static_cast<const char*>(name)) == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || !(header.p_flags & PF_X) || range_count == 16) continue;
    const uintptr_t first = info->dlpi_addr + header.p_vaddr;
    ranges[range_count++] = {first, first + header.p_memsz};
  }
  return 0;
}

void* allocate(size_t size, const void* caller) {
  if (failing >= 0 && is_watched(caller) && ++passed == failing) throw std::bad_alloc();
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return allocate(size, __builtin_return_address(0)); }
void* operator new[](size_t size) { return allocate(size, __builtin_return_address(0)); }

extern "C" void faults_watch(const char* library) {
  dl_iterate_phdr(add_ranges, const_cast<char*>(library));
}
extern "C" void faults_arm(long n) {
  passed = 0;
  failing = n;
}
// How many there were.
extern "C" long faults_disarm() {
  failing = -1;
  return passed;
}
