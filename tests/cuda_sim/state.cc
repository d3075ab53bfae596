#include "state.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "symbols.h"

namespace tally_sim {
namespace internal {

int f16_shift = 0;

namespace {

ReportHandler& Handler() {
  static ReportHandler& handler = *new ReportHandler;
  return handler;
}

std::map<const void*, std::string>& Names() {
  static auto& names = *new std::map<const void*, std::string>;
  return names;
}

std::string Demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  // A kernel is known by its name; its parameters are long.
  const size_t parameters =
      result.find('(', result.rfind("(anonymous namespace)") == std::string::npos
                           ? 0
                           : result.rfind("(anonymous namespace)") + 1);
  return result.substr(0, parameters);
}

}  // namespace

State::State() {
  if (const char* text = std::getenv("TALLY_SIM_SEED")) seed = std::strtoull(text, nullptr, 10);
  if (const char* text = std::getenv("TALLY_SIM_EAGER")) eager = text[0] == '1';
  random.Seed(seed);
}

State& GetState() {
  static State& state = *new State;  // never destroyed: handles may outlive main
  return state;
}

void Report(const std::string& line) {
  ++GetState().counters.reports;
  std::fprintf(stderr, "cuda_sim: %s\n", line.c_str());
  std::fflush(stderr);
  if (!Handler()) std::abort();
  Handler()(line);
}

void ReportAndEnd(const std::string& line) {
  Report(line);
  std::abort();
}

std::string KernelName(const void* function) {
  const auto found = Names().find(function);
  if (found != Names().end()) return found->second;
  Dl_info info;
  if (dladdr(function, &info) == 0) return "(unknown)";
  if (info.dli_sname != nullptr && info.dli_saddr == function) return Demangled(info.dli_sname);
  const std::string local = LocalSymbol(info.dli_fname, info.dli_fbase, function);
  return local.empty() ? "(unknown)" : Demangled(local.c_str());
}

std::string Dims(const dim3& d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

std::string Bytes(size_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

}  // namespace internal

using internal::GetState;

void SetSeed(uint64_t seed) {
  GetState().seed = seed;
  GetState().random.Seed(seed);
}
uint64_t Seed() { return GetState().seed; }

void SetDevice(const DeviceOptions& options) { GetState().device = options; }
const DeviceOptions& Device() { return GetState().device; }
void SetMemory(size_t bytes) { GetState().device.memory = bytes; }
void SetLoadBytes(size_t bytes) { GetState().load_bytes = bytes; }
void SetEager(bool eager) { GetState().eager = eager; }
void SetF16Apart(bool apart) { internal::f16_shift = apart ? 5 : 0; }

ReportHandler SetReportHandler(ReportHandler handler) {
  std::swap(internal::Handler(), handler);
  return handler;
}

Counters GetCounters() { return GetState().counters; }

void ResetCounters() {
  Counters& counters = GetState().counters;
  Counters fresh;
  fresh.allocations = counters.allocations;
  fresh.bytes = fresh.peak_bytes = counters.bytes;
  fresh.pinned_bytes = fresh.peak_pinned_bytes = counters.pinned_bytes;
  counters = fresh;
}

void NameKernel(const void* function, std::string name) {
  internal::Names()[function] = std::move(name);
}

}  // namespace tally_sim
