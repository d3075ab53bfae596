#include "block.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <map>

namespace tally_sim::internal {
namespace {

bool SamePlace(const Call& a, const Call& b) {
  // One place in a source is mostly one string, too.
  const auto same = [](const char* x, const char* y) { return x == y || std::strcmp(x, y) == 0; };
  return a.site.line == b.site.line && same(a.site.file, b.site.file) && same(a.name, b.name);
}

std::string Place(const Call& call) {
  const char* slash = std::strrchr(call.site.file, '/');
  return std::string(call.name) + " at " + (slash != nullptr ? slash + 1 : call.site.file) + ":" +
         std::to_string(call.site.line);
}

std::string Hex(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

}  // namespace

void Block::Begin(int threads) {
  if (threads != threads_) {
    threads_ = threads;
    ready_.reserve(static_cast<size_t>(threads));
  }
  for (int i = 0; i < threads; ++i) order_[i] = i;
  std::memset(status_, 0, static_cast<size_t>(threads));
  std::memset(waiting_, 0, sizeof waiting_);
  ready_.clear();
  ended_ = at_barrier_ = 0;
  unstarted_ = threads;
}

int Block::Start() {
  const auto i = GetState().random.Below(static_cast<uint32_t>(unstarted_));
  current_ = order_[i];
  order_[i] = order_[--unstarted_];
  status_[current_] = Status::kRunning;
  return current_;
}

int Block::Continue() {
  const auto i = GetState().random.Below(static_cast<uint32_t>(ready_.size()));
  current_ = ready_[i];
  ready_[i] = ready_.back();
  ready_.pop_back();
  status_[current_] = Status::kRunning;
  return current_;
}

void Block::End() {
  status_[current_] = Status::kEnded;
  ++ended_;
}

void Block::WaitBarrier(const Call& call) {
  calls_[current_] = call;
  status_[current_] = Status::kBarrier;
  ++at_barrier_;
}

unsigned Block::WaitWarp(const Call& call) {
  calls_[current_] = call;
  status_[current_] = Status::kWarp;
  const int warp = current_ / kWarp, exist = std::min(kWarp, threads_ - warp * kWarp);
  unsigned& waiting = waiting_[warp];
  waiting |= 1u << lane();
  // Lanes that the block does not have are not waited for, though they may be in the mask.
  const unsigned lanes = exist == kWarp ? call.mask : call.mask & ((1u << exist) - 1);
  return (waiting & lanes) == lanes ? lanes : 0;
}

void Block::ReleaseWarp(unsigned lanes) {
  const int first = current_ / kWarp * kWarp;
  waiting_[current_ / kWarp] &= ~lanes;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int thread = first + std::countr_zero(rest);
    if (thread == current_) continue;
    status_[thread] = Status::kReady;
    ready_.push_back(thread);
  }
  status_[current_] = Status::kRunning;
}

void Block::Requeue() {
  status_[current_] = Status::kReady;
  ready_.push_back(current_);
}

void* const* Block::Payloads(unsigned lanes) {
  const int first = current_ / kWarp * kWarp;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    payloads_[i] = calls_[first + i].payload;
  }
  return payloads_;
}

std::string Block::Waiting(int thread) const {
  switch (status_[thread]) {
    case Status::kEnded:
      return "has ended";
    case Status::kBarrier:
      return "waits in " + Place(calls_[thread]);
    case Status::kWarp:
      return "waits in " + Place(calls_[thread]) + " with mask " + Hex(calls_[thread].mask);
    default:
      return "runs";
  }
}

std::string Block::ReleaseBarrier() {
  bool together = at_barrier_ == threads_;
  for (int t = 1; together && t < threads_; ++t) together = SamePlace(calls_[0], calls_[t]);
  if (together) {
    for (int t = 0; t < threads_; ++t) {
      status_[t] = Status::kReady;
      ready_.push_back(t);
    }
    at_barrier_ = 0;
    return "";
  }
  // A lane that others wait for is named first: it is why threads miss at a barrier, too.
  for (int t = 0; t < threads_; ++t) {
    if (status_[t] != Status::kWarp) continue;
    const int first = t / kWarp * kWarp;
    const unsigned exist = threads_ - first >= kWarp ? ~0u : (1u << (threads_ - first)) - 1;
    const unsigned missing = calls_[t].mask & exist & ~waiting_[t / kWarp];
    if (missing == 0) continue;
    const int lane = std::countr_zero(missing);
    return "divergent warp: " + std::to_string(std::popcount(missing)) + " of the lanes in mask " +
           Hex(calls_[t].mask) + " missing in " + Place(calls_[t]) + ", where lane " +
           std::to_string(t - first) + " of warp " + std::to_string(t / kWarp) +
           " waits: of the missing, lane " + std::to_string(lane) + " " + Waiting(first + lane);
  }
  std::map<std::string, int> groups;
  for (int t = 0; t < threads_; ++t) {
    ++groups[status_[t] == Status::kEnded ? "have ended" : Waiting(t)];
  }
  std::string text = "divergent barrier: of " + std::to_string(threads_) + " threads";
  const char* separator = " ";
  for (const auto& [what, count] : groups) {
    text += separator + std::to_string(count) + " " + what;
    separator = ", ";
  }
  for (size_t i; (i = text.find(" waits in")) != std::string::npos;) text.replace(i, 9, " in");
  return text;
}

std::string Block::OutsideMask(const Call& call) const {
  return "lane " + std::to_string(lane()) + " calls " + Place(call) + " with mask " +
         Hex(call.mask) + ", which does not name it";
}

std::string Block::Mismatch() {
  const int first = current_ / kWarp * kWarp;
  const Call& mine = calls_[current_];
  for (int t = first; t < std::min(first + kWarp, threads_); ++t) {
    if (!(mine.mask >> (t - first) & 1)) continue;
    if (calls_[t].mask == mine.mask && SamePlace(calls_[t], mine)) continue;
    return "divergent warp: lane " + std::to_string(lane()) + " " + Waiting(current_) + ", lane " +
           std::to_string(t - first) + " " + Waiting(t);
  }
  return "";
}

}  // namespace tally_sim::internal
