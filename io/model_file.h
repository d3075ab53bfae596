// Model files: a safetensors file whose metadata carries the recorded graph.
//
//   __metadata__: "format": "tally", "tally.version": "1.0", "tally.graph": graph JSON (schema
//   tally.graph/1), "tally.config": JSON that says how to build the model again, free for its
//   family
//
// Any safetensors tool opens it. A structure-only file has no tensors. Run checkpoints are the same
// container with more tensors and metadata.
#ifndef TALLY_IO_MODEL_FILE_H_
#define TALLY_IO_MODEL_FILE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tally/autograd/graph.h"
#include "tally/io/safetensors.h"

namespace tally {

struct ModelContents {
  const Graph* graph = nullptr;           // null: none
  absl::Span<const NamedTensor> tensors;  // none on meta
  std::string config_json;                // "": none
  TextPairs metadata;  // besides; keys must not begin with "tally." or be "format"
};

// Writes a model file, which appears whole or not at all; the same contents give the same bytes.
// Errors: config that is no JSON, those of WriteSafetensors, a graph whose JSON passes the header's
// 100 MB.
absl::Status SaveModel(const std::string& path, const ModelContents& contents);

// The graph and the parameters under the names of their storages ("param.3" for the fourth if it
// has none); a tensor that comes twice (tied) is written once. Tensors on meta are left out, so a
// model that was only traced gives a structure-only file.
absl::Status SaveModel(const std::string& path, const Graph& graph,
                       absl::Span<const Tensor> parameters, const std::string& config_json = "");

struct ModelFile {
  std::string path;    // for messages; safe to print
  std::string format;  // "tally" or "graph JSON"
  std::optional<Graph> graph;
  std::string config_json;                 // "": none
  std::optional<SafetensorsFile> tensors;  // the table; elements are read on demand

  // Reads one tensor's elements. kNotFound for an unknown name.
  absl::StatusOr<Tensor> Load(absl::string_view name, Device device = kCpu) const;
};

// Reads the structure: header, graph and config, no elements. A file that is graph JSON alone is
// taken too. Errors: those of ByteReader::Open; kUnimplemented, naming what it is, for another
// format, for safetensors without a tally graph or config, and for a newer version; malformed
// contents as SafetensorsFile and ParseGraphJson say it.
absl::StatusOr<ModelFile> ReadModel(const std::string& path);
absl::StatusOr<ModelFile> ReadModel(ByteReader reader);

// All tensors of the file, in its order.
absl::StatusOr<std::vector<NamedTensor>> LoadTensors(const ModelFile& model, Device device = kCpu);

}  // namespace tally

#endif  // TALLY_IO_MODEL_FILE_H_
