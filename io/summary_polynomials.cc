#include "tally/io/summary_polynomials.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/io/table.h"

namespace tally {
namespace {

// What a peak that has many polynomials shows of them.
constexpr size_t kMostParts = 6;

std::string SizeText(const SizesProof& proof, StepSize size) {
  if (!proof.in_sequence) return ToGrouped(size.first);
  return absl::StrCat(ToGrouped(size.first), " x ", ToGrouped(size.second));
}

std::string SizesText(const SizesProof& proof, const std::vector<StepSize>& sizes) {
  return absl::StrJoin(sizes, ", ", [&](std::string* out, StepSize size) {
    absl::StrAppend(out, SizeText(proof, size));
  });
}

std::string Where(const Report& report, NodeId node) {
  if (node >= static_cast<NodeId>(report.graph.nodes.size())) return "at the end";
  const std::string scope = report.graph.ScopePath(report.graph.nodes[node].scope);
  return absl::StrCat("at node ", node, ", ", report.graph.nodes[node].op->name,
                      scope.empty() ? "" : absl::StrCat(" in ", scope));
}

class PolynomialLines {
 public:
  explicit PolynomialLines(const Report& report) : r_(report), p_(*report.all_sizes) {}

  std::string Write() {
    for (const SizesPiece& piece : p_.pieces) Piece(piece);
    Line(absl::StrCat("  recovered from traces of ",
                      p_.in_sequence ? "B x T = " : "B = ", SizesText(p_, p_.fitted)));
    Line(p_.holds() ? absl::StrCat("  and exact at ", SizesText(p_, p_.checked))
                    : "  THEY DO NOT HOLD:");
    for (const std::string& failure : p_.failures) Line("    " + failure);
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) { absl::StrAppend(&text_, Wrapped(line)); }

  void Piece(const SizesPiece& piece) {
    Line(p_.in_sequence ? absl::StrCat("  for every batch B and sequence T from ",
                                       ToGrouped(piece.from), " to ", ToGrouped(piece.to))
         : piece.to > 0 ? absl::StrCat("  for every batch B of sequences of ", ToGrouped(piece.to))
                        : "  for every batch B");
    for (const SizesPiece::Line& line : piece.lines) {
      Line(line.note.empty()
               ? absl::StrCat("    ", line.name, " = ", line.polynomial.ToString(), " ", line.unit)
               : absl::StrCat("    ", line.name, ": no one polynomial; it is ", line.note));
    }
    for (const PeakPiece& peak : piece.peaks) Peak(piece, peak);
  }

  void Peak(const SizesPiece& piece, const PeakPiece& peak) {
    std::string name = peak.has_scratch ? "peak" : "peak without scratch";
    if (peak.batch_from > 1 || peak.batch_to > 0) {
      absl::StrAppend(&name, " of B ", peak.batch_to > 0 ? "= " : ">= ", peak.batch_from);
    }
    if (peak.from > piece.from)
      absl::StrAppend(
          &name, peak.batch_to > 0 || peak.batch_from > 1 ? ", T >= " : " of T >= ", peak.from);
    const std::vector<PeakPart>& parts = peak.greatest_of;
    if (parts.empty()) return Line(absl::StrCat("    ", name, ": none, ", peak.note));
    if (parts.size() == 1) {
      return Line(absl::StrCat("    ", name, " = ", parts[0].bytes.ToString(), " bytes, ",
                               Where(r_, parts[0].node)));
    }
    Line(
        absl::StrCat("    ", name, " = no single polynomial, the greatest of ", parts.size(), ":"));
    size_t shown = 0;
    for (const PeakPart& part : parts) {
      if (!part.leads || shown == kMostParts) break;
      Line(absl::StrCat("      ", part.bytes.ToString(), " bytes, ", Where(r_, part.node)));
      ++shown;
    }
    if (parts.size() > shown)
      Line(absl::StrCat("      and ", parts.size() - shown, " in report.json that are close"));
  }

  const Report& r_;
  const SizesProof& p_;
  std::string text_;
};

Json TermsJson(const Polynomial& polynomial) {
  Json terms = Json::Array();
  for (const PolynomialTerm& term : polynomial.terms) {
    Json json = Json::Object();
    if (term.coefficient.den == 1) {
      json.Add("coefficient", term.coefficient.num);
    } else {
      Json pair = Json::Array();
      pair.Append(Json(term.coefficient.num));
      pair.Append(Json(term.coefficient.den));
      json.Add("coefficient", std::move(pair));
    }
    terms.Append(json.Add("batch", term.batch).Add("sequence", term.sequence));
  }
  return terms;
}

Json RangeJson(int64_t from, int64_t to) {
  Json range = Json::Array();
  range.Append(Json(from));
  range.Append(Json(to));
  return range;
}

// [1,1024] of the whole or of a piece; one number where it is fixed; null without sequences.
Json SequenceJson(const SizesProof& proof, int64_t from, int64_t to) {
  if (proof.in_sequence) return RangeJson(from, to);
  return to > 0 ? Json(to) : Json();
}

Json SizesJson(const std::vector<StepSize>& sizes) {
  Json json = Json::Array();
  for (StepSize size : sizes) json.Append(RangeJson(size.first, size.second));
  return json;
}

Json PeakJson(const SizesProof& proof) {
  Json peaks = Json::Array();
  for (const SizesPiece& piece : proof.pieces) {
    for (const PeakPiece& peak : piece.peaks) {
      Json greatest = Json::Array();
      for (const PeakPart& part : peak.greatest_of) {
        Json json = Json::Object();
        json.Add("text", part.bytes.ToString()).Add("node", part.node);
        greatest.Append(json.Add("terms", TermsJson(part.bytes)));
      }
      Json batches = Json::Array();
      batches.Append(Json(peak.batch_from));
      batches.Append(peak.batch_to > 0 ? Json(peak.batch_to) : Json());
      Json json = Json::Object();
      json.Add("batch", std::move(batches));
      json.Add("sequence", SequenceJson(proof, peak.from, piece.to));
      json.Add("scratch", peak.has_scratch).Add("greatest_of", std::move(greatest));
      peaks.Append(json.Add("note", peak.note.empty() ? Json() : Json(peak.note)));
    }
  }
  return peaks;
}

}  // namespace

std::string PolynomialsSummary(const Report& report) {
  if (report.all_sizes) return absl::StrCat("\nAt all sizes\n", PolynomialLines(report).Write());
  if (report.all_sizes_note.empty()) return "";
  return absl::StrCat("\nAt all sizes\n", Wrapped("  " + report.all_sizes_note));
}

Json PolynomialsJson(const Report& report) {
  if (!report.all_sizes) return Json();
  const SizesProof& proof = *report.all_sizes;
  Json json = Json::Object();
  for (size_t f = 0; f < proof.pieces[0].lines.size(); ++f) {
    Json pieces = Json::Array();
    for (const SizesPiece& piece : proof.pieces) {
      Json part = Json::Object();
      part.Add("sequence", SequenceJson(proof, piece.from, piece.to));
      const SizesPiece::Line& line = piece.lines[f];
      const bool none = !line.note.empty();
      part.Add("text", none ? Json() : Json(line.polynomial.ToString()));
      part.Add("terms", none ? Json() : TermsJson(line.polynomial));
      pieces.Append(part.Add("note", none ? Json(line.note) : Json()));
    }
    json.Add(proof.pieces[0].lines[f].name, std::move(pieces));
  }
  json.Add("peak", PeakJson(proof));
  Json domain = Json::Object(), batches = Json::Array();
  batches.Append(Json(1));
  batches.Append(Json());
  domain.Add("batch", std::move(batches));
  domain.Add("sequence", SequenceJson(proof, proof.pieces[0].from, proof.pieces.back().to));
  json.Add("domain", std::move(domain)).Add("fitted", SizesJson(proof.fitted));
  json.Add("checked", SizesJson(proof.checked)).Add("holds", proof.holds());
  Json failures = Json::Array();
  for (const std::string& failure : proof.failures) failures.Append(Json(failure));
  return json.Add("failures", std::move(failures));
}

}  // namespace tally
