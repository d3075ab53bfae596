// Sweep as text, CSV and JSON.
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tally/io/table.h"
#include "tally/tools/graph_report/sweep.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;

std::string Cell(const std::string& text) {
  const std::string safe = SanitizeForTerminal(text);
  if (safe.find_first_of(",\"") == std::string::npos) return safe;
  return absl::StrCat("\"", absl::StrReplaceAll(safe, {{"\"", "\"\""}}), "\"");
}

// "batch=4 seq=2048".
std::string NameOf(const Sweep& sweep, const SweepRow& row) {
  std::vector<std::string> parts;
  for (size_t a = 0; a < row.values.size(); ++a)
    parts.push_back(absl::StrCat(sweep.axes[a].name, "=", row.values[a]));
  return absl::StrJoin(parts, " ");
}

// Rows that have no figures for one reason.
struct Missing {
  std::string why, first;
  int64_t rows = 0;
};

Missing& FindOrAdd(std::vector<Missing>& all, const std::string& why) {
  for (Missing& missing : all) {
    if (missing.why == why) return missing;
  }
  return all.emplace_back(Missing{why, "", 0});
}

std::string Reasons(const std::vector<Missing>& all) {
  std::string text;
  for (const Missing& m : all) {
    absl::StrAppend(
        &text,
        Wrapped(SanitizeForTerminal(absl::StrCat(
            m.first, m.rows == 1 ? "" : absl::StrCat(" and ", m.rows - 1, " more"), ": ", m.why))));
  }
  return text;
}

bool HasPlans(const Sweep& sweep) {
  return absl::c_any_of(sweep.axes, [](const SweepAxis& axis) { return axis.name == "plan"; });
}

template <typename F>
bool AnyOf(const Sweep& sweep, const F& has) {
  return absl::c_any_of(sweep.rows, [&](const SweepRow& row) { return has(row.figures); });
}

}  // namespace

std::string SweepText(const Sweep& sweep) {
  const bool timed = AnyOf(sweep, [](const SweepFigures& f) { return f.seconds.has_value(); });
  const bool placed = AnyOf(sweep, [](const SweepFigures& f) { return f.fits.has_value(); });
  std::vector<Column> columns;
  for (const SweepAxis& axis : sweep.axes) columns.push_back({axis.name, kLeft});
  for (const char* title : {"peak, B", "saved, B", "FLOPs", "FLOPs/B"})
    columns.push_back({title, kRight});
  if (timed) {
    columns.push_back({"bound", kLeft});
    columns.push_back({"at least", kRight});
    columns.push_back({"MFU up to", kRight});
  }
  if (placed) columns.push_back({"fits", kLeft});
  Table table(columns);
  std::vector<Missing> without;
  for (const SweepRow& row : sweep.rows) {
    std::vector<std::string> cells = row.values;
    if (!row.why.empty()) {
      cells.resize(columns.size(), "-");
      Missing& missing = FindOrAdd(without, row.why);
      if (missing.rows++ == 0) missing.first = NameOf(sweep, row);
    } else {
      const SweepFigures& f = row.figures;
      cells.push_back(ToGrouped(f.peak));
      cells.push_back(ToGrouped(f.saved));
      cells.push_back(ToGrouped(f.hardware_flops));
      cells.push_back(f.intensity ? absl::StrFormat("%.2f", *f.intensity) : "-");
      if (timed) {
        cells.push_back(f.bound);
        cells.push_back(f.seconds ? SecondsText(*f.seconds) : "-");
        cells.push_back(f.mfu_bound ? absl::StrFormat("%.1f %%", 100 * *f.mfu_bound) : "-");
      }
      if (placed) cells.push_back(!f.fits ? "-" : *f.fits ? "yes" : "no");
    }
    table.AddRow(std::move(cells));
  }
  const auto rows = static_cast<int64_t>(sweep.rows.size());
  std::string notes = absl::StrCat(
      "peak: most requested bytes live at once, of a rank where there are several; saved: kept for "
      "backward, once and whole; FLOPs: of contractions, a multiply-add 2, attention nominal, with "
      "what a plan runs again; FLOPs/B: all FLOPs over compulsory bytes.",
      timed ? " At least: node after node at the data sheet's dense rates; MFU: model FLOPs over "
              "that time at the peak of the contractions' dtype."
            : "",
      placed ? " Fits: in what the driver reports, or --memory, less the reserve." : "",
      HasPlans(sweep) ? "" : " The step is as recorded; an axis plan has others.");
  return absl::StrCat(Wrapped(absl::StrCat(SanitizeForTerminal(sweep.model), ": ", ToGrouped(rows),
                                           rows == 1 ? " row" : " rows", ", a step each")),
                      "\n", table.ToString(), without.empty() ? "" : "\n", Reasons(without), "\n",
                      Wrapped(notes));
}

std::string SweepCsv(const Sweep& sweep) {
  std::string text;
  for (const SweepAxis& axis : sweep.axes) absl::StrAppend(&text, axis.name, ",");
  absl::StrAppend(&text,
                  "peak_bytes,saved_bytes,model_flops,hardware_flops,intensity,bound,seconds,"
                  "mfu_bound,fits,why\n");
  const auto number = [](const std::optional<double>& n) {
    return n ? absl::StrFormat("%.17g", *n) : std::string();
  };
  for (const SweepRow& row : sweep.rows) {
    for (const std::string& value : row.values) absl::StrAppend(&text, Cell(value), ",");
    const SweepFigures& f = row.figures;
    if (!row.why.empty()) {
      absl::StrAppend(&text, ",,,,,,,,,", Cell(row.why), "\n");
      continue;
    }
    absl::StrAppend(&text, f.peak, ",", f.saved, ",", ToDecimal(f.model_flops), ",",
                    ToDecimal(f.hardware_flops), ",", number(f.intensity), ",", f.bound, ",",
                    number(f.seconds), ",", number(f.mfu_bound), ",",
                    !f.fits   ? ""
                    : *f.fits ? "true"
                              : "false",
                    ",\n");
  }
  return text;
}

Json SweepJson(const Sweep& sweep) {
  Json axes = Json::Array(), rows = Json::Array();
  for (const SweepAxis& axis : sweep.axes) {
    Json values = Json::Array(), json = Json::Object();
    for (const std::string& value : axis.values) values.Append(value);
    axes.Append(json.Add("name", axis.name).Add("values", std::move(values)));
  }
  for (const SweepRow& row : sweep.rows) {
    Json json = Json::Object(), at = Json::Object();
    for (size_t a = 0; a < row.values.size(); ++a) at.Add(sweep.axes[a].name, row.values[a]);
    json.Add("at", std::move(at));
    const SweepFigures& f = row.figures;
    if (!row.why.empty()) {
      rows.Append(json.Add("why", row.why));
      continue;
    }
    json.Add("peak", f.peak).Add("saved", f.saved).Add("model_flops", f.model_flops);
    json.Add("hardware_flops", f.hardware_flops);
    const auto number = [](const std::optional<double>& n) { return n ? Json(*n) : Json(); };
    json.Add("intensity", number(f.intensity));
    json.Add("bound", f.bound.empty() ? Json() : Json(f.bound)).Add("seconds", number(f.seconds));
    json.Add("mfu_bound", number(f.mfu_bound));
    rows.Append(json.Add("fits", f.fits ? Json(*f.fits) : Json()));
  }
  Json json = Json::Object();
  json.Add("schema", "tally.sweep/1").Add("model", sweep.model).Add("axes", std::move(axes));
  return json.Add("rows", std::move(rows));
}

}  // namespace tally
