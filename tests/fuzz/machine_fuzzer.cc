// What reads as a calibrated machine writes and reads again to the same, and predicts times that
// are numbers, floors below them.
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "tally/analysis/predict_time.h"
#include "tally/autograd/tape.h"
#include "tally/io/machine_json.h"
#include "tally/ops/matmul.h"
#include "tally/ops/softmax.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tally;
  const absl::StatusOr<Calibration> machine =
      ParseMachine({reinterpret_cast<const char*>(data), size});
  if (!machine.ok()) return 0;
  const std::string text = MachineText(*machine);
  const absl::StatusOr<Calibration> again = ParseMachine(text);
  if (!again.ok() || MachineText(*again) != text) std::abort();
  static const Graph* const graph = [] {
    const Tensor a = Tensor::Empty({DType::kF32, {64, 64}}, kMeta);
    Tape tape;
    tape.Watch(a);
    tape.Gradient(Softmax(MatMul(a, a)), a, {.seed = a});
    return new Graph(tape.Finish());
  }();
  for (const PredictedTime& time : PredictTime(*graph, Speeds(*machine)).nodes) {
    if (!std::isfinite(time.seconds) || time.seconds <= 0 || time.floor > time.seconds)
      std::abort();
  }
  return 0;
}
