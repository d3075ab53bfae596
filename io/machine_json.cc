#include "tally/io/machine_json.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/io/atomic_file.h"
#include "tally/io/byte_reader.h"
#include "tally/io/json_fields.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr char kSchema[] = "tally.machine/1";
constexpr size_t kMostSamples = 1'000'000;
constexpr int64_t kMostBytes = 500'000'000;
// No count, rate or time of a machine lies beyond; what is computed of them stays finite.
constexpr double kMost = 1e30, kLeastSeconds = 1e-12;

// A whole number as an integer: counts are read more easily so.
Json Number(double value) {
  const bool whole = value == std::floor(value) && std::fabs(value) < 9e15;
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

absl::Status ReadNumber(const JsonFields& fields, const char* name, double least, double* value) {
  const Json* json = fields.Find(name);
  if (json == nullptr || !(json->is(Json::Kind::kInteger) || json->is(Json::Kind::kDouble)))
    return fields.Fault(absl::StrCat("needs a number \"", name, "\""));
  *value = json->number();
  if (*value >= least && *value <= kMost) return absl::OkStatus();
  return fields.Fault(
      absl::StrCat("has ", name, " = ", *value, "; it is from ", least, " to ", kMost));
}

absl::Status ReadReuse(const JsonFields& fields, Workload* work) {
  TALLY_ASSIGN_OR_RETURN(const JsonArray* list, fields.List("reuse"));
  if (list->size() != work->reuse.size())
    return fields.Fault("needs three numbers in \"reuse\": first operand, second, output");
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& json = (*list)[i];
    const bool number = json.is(Json::Kind::kInteger) || json.is(Json::Kind::kDouble);
    if (!number || !(json.number() >= 1 && json.number() <= kMost))
      return fields.Fault("has a reuse that is no number from 1 up");
    work->reuse[i] = json.number();
  }
  return absl::OkStatus();
}

absl::Status ReadSample(const JsonFields& fields, Sample* sample) {
  TALLY_RETURN_IF_ERROR(
      fields.Only({"call", "op", "form", "dtype", "flops", "reuse", "products", "elements", "bytes",
                   "least_bytes", "other", "transcendental", "seconds", "far_seconds"}));
  Workload& work = sample->work;
  if (fields.Find("call") != nullptr) TALLY_RETURN_IF_ERROR(fields.Text("call", &work.call));
  TALLY_RETURN_IF_ERROR(fields.Text("op", &work.op));
  if (fields.Find("form") != nullptr) TALLY_RETURN_IF_ERROR(fields.Text("form", &work.form));
  std::string dtype;
  TALLY_RETURN_IF_ERROR(fields.Text("dtype", &dtype));
  const std::optional<DType> known = DTypeFromName(dtype);
  if (!known) return fields.Fault(absl::StrCat("has an unknown dtype ", Quoted(dtype)));
  work.dtype = *known;
  if (fields.Find("flops") != nullptr) {
    TALLY_RETURN_IF_ERROR(ReadNumber(fields, "flops", 1, &work.flops));
    TALLY_RETURN_IF_ERROR(ReadNumber(fields, "products", 1, &work.products));
    TALLY_RETURN_IF_ERROR(ReadReuse(fields, &work));
  } else if (fields.Find("products") != nullptr || fields.Find("reuse") != nullptr) {
    return fields.Fault("has \"reuse\" or \"products\" but no \"flops\"");
  }
  TALLY_RETURN_IF_ERROR(ReadNumber(fields, "elements", 0, &work.elements));
  TALLY_RETURN_IF_ERROR(ReadNumber(fields, "bytes", 0, &work.bytes));
  TALLY_RETURN_IF_ERROR(ReadNumber(fields, "least_bytes", 0, &work.least_bytes));
  TALLY_RETURN_IF_ERROR(ReadNumber(fields, "other", 0, &work.other));
  TALLY_RETURN_IF_ERROR(ReadNumber(fields, "transcendental", 0, &work.transcendental));
  if (fields.Find("far_seconds") != nullptr)
    TALLY_RETURN_IF_ERROR(ReadNumber(fields, "far_seconds", kLeastSeconds, &sample->far_seconds));
  return ReadNumber(fields, "seconds", kLeastSeconds, &sample->seconds);
}

absl::Status ReadBandwidth(const JsonFields& fields, Calibration* calibration) {
  TALLY_ASSIGN_OR_RETURN(const JsonArray* list, fields.List("bandwidth"));
  if (list->empty() || list->size() > kMostSamples)
    return fields.Fault("needs at least one entry in \"bandwidth\"");
  double before = 0;
  for (size_t i = 0; i < list->size(); ++i) {
    const JsonFields entry((*list)[i], "bandwidth ", static_cast<int64_t>(i));
    BandwidthSample sample;
    TALLY_RETURN_IF_ERROR(entry.Only({"working_set", "bytes_per_second"}));
    TALLY_RETURN_IF_ERROR(ReadNumber(entry, "working_set", 1, &sample.working_set));
    TALLY_RETURN_IF_ERROR(ReadNumber(entry, "bytes_per_second", 1, &sample.rate));
    if (sample.working_set <= before) return entry.Fault("is not greater than the one before");
    before = sample.working_set;
    calibration->bandwidth.push_back(sample);
  }
  return absl::OkStatus();
}

// A sample of the grid stands for calls like it; only one of a model names the very call.
Json SampleJson(const Sample& sample, bool named) {
  const Workload& work = sample.work;
  Json json = Json::Object();
  if (named) json.Add("call", work.call);
  json.Add("op", work.op);
  if (!work.form.empty()) json.Add("form", work.form);
  json.Add("dtype", Name(work.dtype));
  if (work.contraction()) {
    json.Add("flops", Number(work.flops));
    Json reuse = Json::Array();
    for (const double r : work.reuse) reuse.Append(Number(r));
    json.Add("reuse", std::move(reuse));
    json.Add("products", Number(work.products));
  }
  json.Add("elements", Number(work.elements));
  json.Add("bytes", Number(work.bytes));
  json.Add("least_bytes", Number(work.least_bytes));
  json.Add("other", Number(work.other));
  json.Add("transcendental", Number(work.transcendental));
  json.Add("seconds", sample.seconds);
  if (sample.far_seconds > 0) json.Add("far_seconds", sample.far_seconds);
  return json;
}

}  // namespace

Json MachineToJson(const Calibration& calibration) {
  Json json = Json::Object();
  json.Add("schema", kSchema);
  json.Add("processor", calibration.processor);
  json.Add("threads", calibration.threads);
  json.Add("memory", calibration.memory);
  json.Add("record_seconds", calibration.record_seconds);
  json.Add("gradient_seconds", calibration.gradient_seconds);
  Json bandwidth = Json::Array(), samples = Json::Array();
  for (const BandwidthSample& b : calibration.bandwidth) {
    Json entry = Json::Object();
    entry.Add("working_set", Number(b.working_set));
    entry.Add("bytes_per_second", b.rate);
    bandwidth.Append(std::move(entry));
  }
  json.Add("bandwidth", std::move(bandwidth));
  for (const Sample& sample : calibration.samples) samples.Append(SampleJson(sample, false));
  json.Add("samples", std::move(samples));
  if (!calibration.calls.empty()) {
    Json calls = Json::Array();
    for (const Sample& call : calibration.calls) calls.Append(SampleJson(call, true));
    json.Add("calls", std::move(calls));
  }
  return json;
}

std::string MachineText(const Calibration& calibration) {
  return MachineToJson(calibration).Dump(2) + "\n";
}

absl::StatusOr<Calibration> ParseMachine(absl::string_view text) {
  TALLY_ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.bytes = kMostBytes}));
  const JsonFields fields(json, "the machine");
  TALLY_RETURN_IF_ERROR(fields.Only({"schema", "processor", "threads", "memory", "record_seconds",
                                     "gradient_seconds", "bandwidth", "samples", "calls"}));
  std::string schema;
  TALLY_RETURN_IF_ERROR(fields.Text("schema", &schema));
  if (schema != kSchema) {
    return fields.Fault(absl::StrCat("has schema ", Quoted(schema), ", not \"", kSchema,
                                     "\"; graph-report --calibrate=FILE writes one"));
  }
  Calibration calibration;
  TALLY_RETURN_IF_ERROR(fields.Text("processor", &calibration.processor));
  TALLY_RETURN_IF_ERROR(fields.Integer("threads", 1, 1 << 20, &calibration.threads));
  TALLY_RETURN_IF_ERROR(
      fields.Integer("memory", 0, std::numeric_limits<int64_t>::max(), &calibration.memory));
  TALLY_RETURN_IF_ERROR(ReadNumber(fields, "record_seconds", 0, &calibration.record_seconds));
  TALLY_RETURN_IF_ERROR(ReadNumber(fields, "gradient_seconds", 0, &calibration.gradient_seconds));
  TALLY_RETURN_IF_ERROR(ReadBandwidth(fields, &calibration));
  TALLY_ASSIGN_OR_RETURN(const JsonArray* samples, fields.List("samples"));
  if (samples->empty()) return fields.Fault("has no samples");
  if (samples->size() > kMostSamples)
    return fields.Fault(absl::StrCat("has more than ", kMostSamples, " samples"));
  for (size_t i = 0; i < samples->size(); ++i) {
    Sample sample;
    TALLY_RETURN_IF_ERROR(ReadSample({(*samples)[i], "sample ", static_cast<int64_t>(i)}, &sample));
    calibration.samples.push_back(std::move(sample));
  }
  if (fields.Find("calls") == nullptr) return calibration;
  TALLY_ASSIGN_OR_RETURN(const JsonArray* calls, fields.List("calls"));
  if (calls->size() > kMostSamples)
    return fields.Fault(absl::StrCat("has more than ", kMostSamples, " calls"));
  for (size_t i = 0; i < calls->size(); ++i) {
    const JsonFields entry((*calls)[i], "call ", static_cast<int64_t>(i));
    Sample sample;
    TALLY_RETURN_IF_ERROR(ReadSample(entry, &sample));
    if (sample.work.call.empty()) return entry.Fault("needs a text \"call\"");
    calibration.calls.push_back(std::move(sample));
  }
  return calibration;
}

absl::StatusOr<Calibration> LoadMachine(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMostBytes));
  absl::StatusOr<Calibration> calibration = ParseMachine(text);
  if (calibration.ok()) return calibration;
  return absl::DataLossError(
      absl::StrCat(SanitizeForTerminal(path), ": ", calibration.status().message()));
}

absl::Status SaveMachine(const std::string& path, const Calibration& calibration) {
  return WriteFileAtomically(path, MachineText(calibration));
}

}  // namespace tally
