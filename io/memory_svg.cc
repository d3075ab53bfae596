#include "tally/io/memory_svg.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tally/io/text.h"

namespace tally {
namespace {

constexpr int kWidth = 960, kLeft = 84, kRight = 84, kPlot = kWidth - kLeft - kRight;
constexpr int kColumns = kPlot / 2;  // of two pixels
constexpr int kTopHeight = 300, kPanelHeight = 130, kLine = 18;

struct Style {
  const char* color;
  const char* dashes;
};
constexpr Style kStyles[kMostSeries] = {{"#000000", ""},     {"#0072B2", "9 4"},
                                        {"#D55E00", "2 3"},  {"#009E73", "10 3 2 3"},
                                        {"#CC79A7", "16 4"}, {"#7F6000", "5 2 1 2 1 2"}};

// From the bottom of a stack.
struct Layer {
  Origin origin;
  const char* id;
  const char* color;
  const char* hatch;  // what is drawn in a square of 8 pixels; "": nothing
};
constexpr Layer kLayers[kNumOrigins] = {
    {Origin::kParameter, "parameter", "#B0BEC5", ""},
    {Origin::kOptimizerState, "optimizer", "#CFD8DC", "M0 4H8"},
    {Origin::kGradient, "gradient", "#FFE0B2", "M0 8L8 0"},
    {Origin::kInput, "input", "#E1BEE7", "M4 0V8M0 4H8"},
    {Origin::kActivation, "activation", "#BBDEFB", "M0 0L8 8"},
    {Origin::kScratch, "scratch", "#FFFFFF", "M4 4h1"},
};

// For text and for attributes: names come from files.
std::string Xml(absl::string_view text) {
  return absl::StrReplaceAll(SanitizeForTerminal(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// A tick each 1, 2 or 5 times a power of `base`-prefixed units, at most eight of them.
double NiceStep(double most) {
  if (!(most > 0)) return 1;
  const double rough = most / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

struct Prefix {
  double scale;
  const char* text;
};
Prefix Si(double most) {
  constexpr Prefix kPrefixes[] = {{1e15, "PB"}, {1e12, "TB"}, {1e9, "GB"},
                                  {1e6, "MB"},  {1e3, "kB"},  {1, "B"}};
  for (const Prefix& p : kPrefixes) {
    if (most >= p.scale) return p;
  }
  return {1, "B"};
}
Prefix Binary(double most) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  Prefix p{1, kNames[0]};
  for (int i = 1; i < 6 && most >= 1024 * p.scale; ++i) p = {1024 * p.scale, kNames[i]};
  return p;
}

class Writer {
 public:
  explicit Writer(const MemoryChart& chart) : c_(chart) {
    count_ = std::min(c_.series.size(), kMostSeries);
    for (size_t i = 0; i < count_; ++i) {
      double length = 0;
      for (double width : c_.series[i].widths) length += width;
      x_most_ = std::max(x_most_, length);
      for (const CurvePoint& p : c_.series[i].curve)
        most_ = std::max(most_, static_cast<double>(p.total));
    }
    // A limit far above what lives would press everything to the ground.
    shows_limit_ = c_.limit && static_cast<double>(*c_.limit) <= 2.5 * most_;
    if (shows_limit_) most_ = std::max(most_, static_cast<double>(*c_.limit));
    y_most_ = most_ > 0 ? most_ * 1.05 : 1;
  }

  std::string Write() {
    const int legend = kLine * (static_cast<int>(count_) + (c_.limit ? 1 : 0) + (c_.note.empty() ? 0 : 1));
    const int top = 40 + legend;
    const int first = top + kTopHeight + 60;
    const int each = kPanelHeight + 64;
    const int height = first + each * static_cast<int>(count_) + 2 * kLine;
    absl::StrAppend(&out_, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth,
                    "\" height=\"", height, "\" viewBox=\"0 0 ", kWidth, " ", height,
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n");
    absl::StrAppend(&out_, "<title>", Xml(c_.title), "</title>\n");
    Definitions();
    absl::StrAppend(&out_, "<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n");
    Text(kLeft, 22, c_.title, "font-size=\"15\" font-weight=\"bold\"");
    Legend();
    Axes(top, kTopHeight, c_.x_title);
    for (size_t i = 0; i < count_; ++i) Curve(i, top);
    Limit(top, kTopHeight);
    for (size_t i = 0; i < count_; ++i) Panel(i, first + each * static_cast<int>(i));
    LayerLegend(first + each * static_cast<int>(count_) + 4);
    absl::StrAppend(&out_, "</svg>\n");
    return std::move(out_);
  }

 private:
  double X(double at) const { return kLeft + (x_most_ > 0 ? at / x_most_ : 0) * kPlot; }
  double Y(double bytes, int top, int height) const { return top + height * (1 - bytes / y_most_); }

  void Text(double x, double y, absl::string_view text, absl::string_view more = "") {
    absl::StrAppend(&out_, "<text x=\"", absl::StrFormat("%.1f", x), "\" y=\"",
                    absl::StrFormat("%.1f", y), "\"", more.empty() ? "" : " ", more, ">", Xml(text),
                    "</text>\n");
  }
  void Segment(double x1, double y1, double x2, double y2, absl::string_view style) {
    absl::StrAppend(&out_, absl::StrFormat("<path d=\"M%.1f %.1fL%.1f %.1f\" ", x1, y1, x2, y2),
                    style, "/>\n");
  }

  void Definitions() {
    absl::StrAppend(&out_, "<defs>\n");
    for (const Layer& layer : kLayers) {
      absl::StrAppend(&out_, "<pattern id=\"", layer.id,
                      "\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">",
                      "<rect width=\"8\" height=\"8\" fill=\"", layer.color, "\"/>");
      if (*layer.hatch != 0)
        absl::StrAppend(&out_, "<path d=\"", layer.hatch, "\" stroke=\"#546E7A\"/>");
      absl::StrAppend(&out_, "</pattern>\n");
    }
    absl::StrAppend(&out_, "</defs>\n");
  }

  std::string Stroke(size_t i) const {
    const Style& style = kStyles[i];
    return absl::StrCat("fill=\"none\" stroke-width=\"1.6\" stroke=\"", style.color, "\"",
                        *style.dashes == 0 ? "" : " stroke-dasharray=\"", style.dashes,
                        *style.dashes == 0 ? "" : "\"");
  }

  void Legend() {
    double y = 22;
    for (size_t i = 0; i < count_; ++i) {
      y += kLine;
      Segment(kLeft, y - 4, kLeft + 48, y - 4, Stroke(i));
      Text(kLeft + 56, y, absl::StrCat(c_.series[i].name, ": ", c_.series[i].peak_text));
    }
    if (!c_.note.empty()) Text(kLeft + 56, y += kLine, c_.note);
    if (!c_.limit) return;
    y += kLine;
    Segment(kLeft, y - 4, kLeft + 48, y - 4, kLimitStroke);
    Text(kLeft + 56, y,
         absl::StrCat(c_.limit_text, shows_limit_ ? "" : "; above what is drawn here"));
  }

  void Axes(int top, int height, const std::string& x_title) {
    absl::StrAppend(&out_, "<rect x=\"", kLeft, "\" y=\"", top, "\" width=\"", kPlot,
                    "\" height=\"", height, "\" fill=\"none\" stroke=\"#90A4AE\"/>\n");
    Ticks(Si(most_), top, height, /*left=*/true);
    Ticks(Binary(most_), top, height, /*left=*/false);
    if (x_title.empty()) return;
    const double step = NiceStep(x_most_);
    for (int i = 0; x_most_ > 0 && i * step <= x_most_ * (1 + 1e-9); ++i) {
      const double x = X(i * step);
      Segment(x, top + height, x, top + height + 4, "stroke=\"#90A4AE\"");
      Text(x, top + height + 17, absl::StrFormat("%.6g", i * step), "text-anchor=\"middle\"");
    }
    Text(kLeft + kPlot / 2.0, top + height + 36, x_title, "text-anchor=\"middle\"");
  }

  void Ticks(const Prefix& unit, int top, int height, bool left) {
    double step = NiceStep(most_ / unit.scale);
    if (unit.scale == 1) step = std::max(step, 1.0);
    if (height < kTopHeight) step *= 2;
    for (int i = 0; i * step * unit.scale <= y_most_; ++i) {
      const double y = Y(i * step * unit.scale, top, height);
      if (left && i > 0) Segment(kLeft, y, kLeft + kPlot, y, "stroke=\"#ECEFF1\"");
      Text(left ? kLeft - 6 : kLeft + kPlot + 6, y + 4,
           absl::StrFormat("%.6g %s", i * step, unit.text),
           left ? "text-anchor=\"end\"" : "fill=\"#546E7A\"");
    }
  }

  // Per column the point with the most in it; null past the end.
  std::vector<const CurvePoint*> Columns(const MemorySeries& series) const {
    std::vector<const CurvePoint*> columns(kColumns, nullptr);
    double at = 0;
    const auto column = [&](double x) {
      const double c = x_most_ > 0 ? x / x_most_ * kColumns : 0;
      return std::clamp(static_cast<int>(c), 0, kColumns - 1);
    };
    for (size_t i = 0; i < series.curve.size(); ++i) {
      const double end = at + series.widths[i];
      // Up to the last column that it reaches into, not only touches.
      int last = column(end);
      if (last > column(at) && X(end) <= kLeft + 2 * last + 1e-9) --last;
      for (int c = column(at); c <= last; ++c) {
        if (columns[c] == nullptr || series.curve[i].total > columns[c]->total)
          columns[c] = &series.curve[i];
      }
      at = end;
    }
    return columns;
  }

  // The top of `height(column)` along the columns, from left to right.
  template <typename Height>
  std::string Outline(const std::vector<const CurvePoint*>& columns, Height height) const {
    std::string path;
    double last = -1;
    for (int c = 0; c < kColumns && columns[c] != nullptr; ++c) {
      const double y = std::round(height(*columns[c]) * 10) / 10;
      if (c == 0) {
        absl::StrAppend(&path, absl::StrFormat("M%d %.1f", kLeft, y));
      } else if (y != last) {
        absl::StrAppend(&path, absl::StrFormat("H%dV%.1f", kLeft + 2 * c, y));
      }
      last = y;
    }
    return path;
  }
  static int End(const std::vector<const CurvePoint*>& columns) {
    int c = 0;
    while (c < kColumns && columns[c] != nullptr) ++c;
    return kLeft + 2 * c;
  }

  void Curve(size_t i, int top) {
    const MemorySeries& series = c_.series[i];
    const std::vector<const CurvePoint*> columns = Columns(series);
    if (columns[0] == nullptr) return;
    const std::string path = Outline(columns, [&](const CurvePoint& p) {
      return Y(static_cast<double>(p.total), top, kTopHeight);
    });
    int at = 0;
    for (int c = 0; c < kColumns && columns[c] != nullptr; ++c) {
      if (columns[c]->total > columns[at]->total) at = c;
    }
    const auto peak = static_cast<double>(columns[at]->total);
    absl::StrAppend(
        &out_, "<g class=\"series\"><title>", Xml(series.name), "</title><path d=\"", path, "H",
        End(columns), "\" ", Stroke(i), "/>",
        absl::StrFormat("<circle cx=\"%d\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/></g>\n",
                        kLeft + 2 * at + 1, Y(peak, top, kTopHeight), kStyles[i].color));
  }

  void Limit(int top, int height) {
    if (!shows_limit_) return;
    const double y = Y(static_cast<double>(*c_.limit), top, height);
    Segment(kLeft, y, kLeft + kPlot, y, kLimitStroke);
  }

  void Panel(size_t i, int top) {
    const MemorySeries& series = c_.series[i];
    Text(kLeft, top - 6, series.name, "font-weight=\"bold\"");
    Axes(top, kPanelHeight, "");
    const std::vector<const CurvePoint*> columns = Columns(series);
    if (columns[0] == nullptr) return;
    const int end = End(columns), ground = top + kPanelHeight;
    // The highest sum first; what is below covers it.
    for (int layer = kNumOrigins; layer-- > 0;) {
      const auto sum = [&](const CurvePoint& p) {
        int64_t bytes = 0;
        for (int l = 0; l <= layer; ++l)
          bytes += p.by_origin[static_cast<size_t>(kLayers[l].origin)];
        return Y(static_cast<double>(bytes), top, kPanelHeight);
      };
      absl::StrAppend(&out_, "<path d=\"", Outline(columns, sum), "H", end, "V", ground, "H", kLeft,
                      "Z\" fill=\"url(#", kLayers[layer].id,
                      ")\" stroke=\"#37474F\" stroke-width=\"0.5\"/>\n");
    }
    Limit(top, kPanelHeight);
    Runs(series, ground);
  }

  // Under a panel: a bar for each stretch of a phase, and below it what runs again.
  void Runs(const MemorySeries& series, int ground) {
    double at = 0;
    int last[2] = {-1, -1};  // pixels that hold a sliver already
    for (size_t i = 0; i < series.curve.size();) {
      const auto kind = [&](size_t j) {
        return series.curve[j].again ? Phase::kRecompute : series.phases[j];
      };
      size_t end = i;
      double length = 0;
      while (end < series.curve.size() && kind(end) == kind(i)) length += series.widths[end++];
      const bool again = kind(i) == Phase::kRecompute;
      const char* const name = Name(kind(i));
      const double x = X(at), w = X(at + length) - x;
      const int y = ground + (again ? 20 : 4);
      at += length;
      i = end;
      const int pixel = static_cast<int>(x);
      if (w < 0.5 && std::exchange(last[again], pixel) == pixel) continue;
      absl::StrAppend(&out_,
                      absl::StrFormat("<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" ", x,
                                      y, std::max(w, 0.5), again ? 8 : 14),
                      again ? "fill=\"#E65100\"" : "fill=\"#F5F5F5\" stroke=\"#90A4AE\"", "/>\n");
      if (!again && w > 64) Text(x + w / 2, y + 11, name, "text-anchor=\"middle\"");
    }
    Text(kLeft - 6, ground + 28, "again", "text-anchor=\"end\"");
  }

  void LayerLegend(int y) {
    int x = kLeft;
    for (const Layer& layer : kLayers) {
      absl::StrAppend(&out_, "<rect x=\"", x, "\" y=\"", y,
                      "\" width=\"24\" height=\"12\" stroke=\"#37474F\" fill=\"url(#", layer.id,
                      ")\"/>\n");
      Text(x + 30, y + 11, Name(layer.origin));
      x += 132;
    }
  }

  static constexpr const char* kLimitStroke =
      "fill=\"none\" stroke=\"#B71C1C\" stroke-width=\"2\" stroke-dasharray=\"1 4\" "
      "stroke-linecap=\"round\"";

  const MemoryChart& c_;
  size_t count_ = 0;
  double x_most_ = 0, most_ = 0, y_most_ = 1;
  bool shows_limit_ = false;
  std::string out_;
};

}  // namespace

std::string MemorySvg(const MemoryChart& chart) { return Writer(chart).Write(); }

}  // namespace tally
