// RenderDot: pictures from DOT by the `dot` program of Graphviz.
#ifndef TALLY_IO_RENDER_H_
#define TALLY_IO_RENDER_H_

#include <string>

#include "absl/status/status.h"

namespace tally {

enum class RenderFormat : uint8_t { kSvg, kPdf, kPng };
const char* Name(RenderFormat format);  // "svg", "pdf", "png"

// Runs `dot` found on PATH as a child process (no shell) and writes `path`, which appears only when
// the picture is complete. At most `seconds` of wall time. Where `dot` fails it is asked once more,
// for straight edges.
// kNotFound: there is no `dot`. kDeadlineExceeded: not done in time; the child was killed.
// kInternal: `dot` failed, with what it said. Otherwise: `path` cannot be written.
absl::Status RenderDot(const std::string& dot, const std::string& path, RenderFormat format,
                       double seconds = 20);

}  // namespace tally

#endif  // TALLY_IO_RENDER_H_
