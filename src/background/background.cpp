// Threads are made when there is work and go when there has been none for a while, so that a process
// which compiles nothing more has none. In a forked child none of the parent's threads exist, and
// what they waited with (a condition variable) may be in any state: the child gets a new queue, into
// which the jobs of the old one go.
#include "background/background.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace smelt::background {
namespace {

constexpr std::chrono::seconds kPatience{10};

// Calls go on meanwhile: a part of the processors is left to them.
size_t most_threads() { return std::max<size_t>(1, std::thread::hardware_concurrency() / 4); }

struct Queue {
  std::mutex mutex;
  std::condition_variable has_work, has_ended_one;
  std::deque<std::function<void()>> waiting;
  size_t running = 0, threads = 0;
  bool is_held = false, is_over = false;

  bool may_begin() const { return !is_held && !is_over && !waiting.empty(); }
};

std::atomic<size_t> pending_jobs{0};
thread_local bool holds_queue = false;  // between hold() and let_go()

// Leaked: a thread may wait in it while the process ends.
std::atomic<Queue*>& current() {
  static std::atomic<Queue*> queue{new Queue};
  return queue;
}

// The next job, which may begin.
void do_next(Queue& queue, std::unique_lock<std::mutex>& lock) {
  std::function<void()> job = std::move(queue.waiting.front());
  queue.waiting.pop_front();
  ++queue.running;
  lock.unlock();
  try {
    job();
  } catch (const std::exception&) {
    // There was no memory even to say so: whoever waits for what it makes goes on without.
  }
  job = nullptr;  // what it holds may take locks of its own
  lock.lock();
  --queue.running;
  --pending_jobs;
  queue.has_ended_one.notify_all();
}

void work(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  while (queue.has_work.wait_for(lock, kPatience, [&] { return queue.may_begin(); }))
    do_next(queue, lock);
  --queue.threads;
}

// With the lock. Where the system gives no thread jobs wait, for one that is given later or for
// whoever waits for them.
void start_threads(Queue& queue) {
  const size_t wanted = std::min(queue.waiting.size() + queue.running, most_threads());
  try {
    for (; queue.threads < wanted; ++queue.threads) std::thread([&queue] { work(queue); }).detach();
  } catch (const std::exception&) {
  }
  queue.has_work.notify_all();
}

}  // namespace

void submit(std::function<void()> job) {
  Queue& queue = *current();
  std::unique_lock lock(queue.mutex, std::defer_lock);
  if (!holds_queue) lock.lock();
  if (queue.is_over) return;
  queue.waiting.push_back(std::move(job));
  ++pending_jobs;
  if (!queue.is_held) start_threads(queue);
}

size_t pending() { return pending_jobs.load(std::memory_order_relaxed); }

void wait() {
  Queue& queue = *current();
  std::unique_lock lock(queue.mutex);
  const auto is_done = [&] {
    return queue.is_over || (queue.waiting.empty() && queue.running == 0);
  };
  while (!is_done()) {
    if (queue.may_begin() && queue.threads == 0)
      do_next(queue, lock);
    else
      queue.has_ended_one.wait(lock);
  }
}

void hold() {
  Queue& queue = *current();
  std::unique_lock lock(queue.mutex);
  queue.is_held = true;
  queue.has_ended_one.wait(lock, [&] { return queue.running == 0; });
  lock.release();  // nobody is in the middle of a change when the process is copied
  holds_queue = true;
}

void let_go(bool in_child) {
  Queue* queue = current();
  std::unique_lock lock(queue->mutex, std::adopt_lock);
  holds_queue = false;
  if (in_child) {
    auto* fresh = new Queue;
    fresh->waiting = std::move(queue->waiting);
    fresh->is_over = queue->is_over;
    lock.release();
    lock = std::unique_lock(fresh->mutex);
    current() = queue = fresh;
  }
  queue->is_held = false;
  if (!queue->waiting.empty()) start_threads(*queue);
}

void end() {
  Queue& queue = *current();
  std::deque<std::function<void()>> dropped;
  std::unique_lock lock(queue.mutex);
  queue.is_over = true;
  dropped.swap(queue.waiting);
  pending_jobs -= dropped.size();
  queue.has_ended_one.wait(lock, [&] { return queue.running == 0; });
  queue.has_ended_one.notify_all();
}

}  // namespace smelt::background
