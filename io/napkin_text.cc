#include "tally/io/napkin_text.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/io/summary_memory.h"
#include "tally/io/table.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;

// "6.3e24": four digits, any power.
std::string Scientific(Count count) {
  std::string text = absl::StrFormat("%.3e", static_cast<double>(count));
  const size_t e = text.find('e');
  std::string mantissa = text.substr(0, e);
  while (mantissa.back() == '0') mantissa.pop_back();
  if (mantissa.back() == '.') mantissa.pop_back();
  return absl::StrCat(mantissa, "e", std::stoi(text.substr(e + 1)));
}

// "143.9 days", "147,455 days", "6 h 12 min".
std::string TimeText(double seconds) {
  const double days = seconds / kSecondsPerDay;
  if (days < 1) return SecondsText(seconds);
  if (days < 10'000) return absl::StrFormat("%.1f days", days);
  return absl::StrCat(days < 1e15 ? ToGrouped(Count(std::llround(days))) : PowerText(days),
                      " days");
}

std::string ExactBytes(Count bytes) {
  return bytes < 10'000 ? BytesText(bytes)
                        : absl::StrCat(ToGrouped(bytes), " B = ", BytesText(bytes));
}

// "1 token", "15e12 tokens".
std::string TokensText(Count tokens) {
  return absl::StrCat(PowerText(tokens), tokens == 1 ? " token" : " tokens");
}

// "1 GPU", "1,024 GPUs".
std::string GpusText(Count gpus) {
  return absl::StrCat(ToGrouped(gpus), gpus == 1 ? " GPU" : " GPUs");
}

// What a table has room for.
std::string Short(Count count) {
  return count < 1'000'000'000'000'000 ? ToGrouped(count) : Scientific(count);
}

std::string RatioText(double ratio) { return absl::StrFormat("%.4f", ratio); }

class Writer {
 public:
  explicit Writer(const NapkinSheet& sheet) : s_(sheet), q_(sheet.question), a_(sheet.answer) {}

  std::string Write() {
    Compute();
    Time();
    Memory();
    Traced();
    Missing();
    return std::move(text_);
  }

 private:
  void Section(const char* title) {
    absl::StrAppend(&text_, text_.empty() ? "" : "\n", title, "\n");
  }
  void Line(const std::string& line) { absl::StrAppend(&text_, Wrapped("  " + line)); }

  void Compute() {
    if (!a_.flops) return;
    Section("Compute");
    Line(absl::StrCat("6·N·D = 6 x ", PowerText(*q_.parameters), " x ", PowerText(*q_.tokens),
                      " = ", ToGrouped(*a_.flops), " FLOPs (", Scientific(*a_.flops), ")"));
    Line(
        "a multiply-add is 2 FLOPs; a parameter meets a token in one forward (2N) and in two "
        "backward (4N); attention's own products, look-ups and norms are not in the rule");
  }

  void Time() {
    if (!a_.rate) return;
    Section("Time");
    Line(absl::StrCat(GpusText(q_.gpus), " x ", PowerText(*q_.peak, 6), " FLOP/s (", s_.peak_name,
                      ") x ", absl::StrFormat("%.6g", *q_.mfu), " (MFU) = ", PowerText(*a_.rate),
                      " FLOP/s"));
    if (s_.sparse_peak) {
      Line(absl::StrCat(
          "the ", PowerText(*s_.sparse_peak, 6),
          " FLOP/s of the data sheet are with 2:4 sparsity, which training does not have"));
    }
    if (!a_.seconds) return;
    Line(absl::StrCat(Scientific(*a_.flops), " FLOPs / ", PowerText(*a_.rate),
                      " FLOP/s = ", PowerText(*a_.seconds), " s = ", TimeText(*a_.seconds)));
    const double hours = *a_.gpu_seconds / kSecondsPerHour;
    Line(absl::StrCat(
        GpusText(q_.gpus), " x ", PowerText(*a_.seconds), " s = ",
        hours < 1e15 ? absl::StrCat(hours < 100 ? absl::StrFormat("%.4g", hours)
                                                : ToGrouped(Count(std::llround(hours))))
                     : PowerText(hours),
        " GPU-hours = ", PowerText(*a_.gpu_seconds / kSecondsPerYear), " GPU-years of 365 days"));
  }

  std::string Recipe() const {
    const StateRecipe& r = *q_.recipe;
    std::string text = absl::StrCat(ToGrouped(r.total), " bytes a parameter");
    if (!r.name.empty()) absl::StrAppend(&text, " (", r.name, ")");
    return text;
  }

  void Memory() {
    if (!a_.state_bytes && !a_.largest_parameters) return;
    Section("Memory of the states: parameters, gradients, optimizer and master weights");
    if (a_.state_bytes) States();
    if (!a_.memory) return;
    Line(absl::StrCat(GpusText(q_.gpus), " x ", PowerText(*q_.memory), " B (", s_.memory_name,
                      ") = ", ExactBytes(*a_.memory)));
    Line(absl::StrCat("largest model: ", PowerText(*a_.memory), " B / ", Recipe(), " = ",
                      ToGrouped(*a_.largest_parameters), " parameters (",
                      PowerText(static_cast<double>(*a_.largest_parameters)), ")"));
    if (a_.fewest_gpus) {
      Line(absl::StrCat(PowerText(*q_.parameters), " parameters ",
                        *a_.state_bytes <= *a_.memory ? "fit" : "do not fit",
                        ", by their states alone; ", GpusText(*a_.fewest_gpus),
                        *a_.fewest_gpus == 1 ? " holds" : " hold", " them"));
    }
    if (s_.memory_usable && *s_.memory_usable != *q_.memory) {
      const Count usable = Count(q_.gpus) * *s_.memory_usable;
      Line(absl::StrCat("its driver reports ", BytesText(*s_.memory_usable),
                        " a GPU: ", ToGrouped(usable / q_.recipe->total), " parameters"));
    }
    Line(
        "each GPU holds a share and no copy; activations, workspace and what the driver keeps are "
        "not in the rule");
  }

  void States() {
    const Count n = *q_.parameters;
    if (q_.recipe->parts) {
      const StateRecipe::Parts& p = *q_.recipe->parts;
      Table table({{"part", kLeft}, {"bytes each", kRight}, {"bytes", kRight}, {"", kLeft}});
      const auto row = [&](const char* part, int64_t each) {
        table.AddRow({part, ToGrouped(each), ToGrouped(n * each), BytesText(n * each)});
      };
      row("parameters", p.parameter);
      row("gradients", p.gradient);
      row("optimizer and master", p.optimizer);
      table.AddRule();
      row("all", q_.recipe->total);
      absl::StrAppend(&text_, IndentedLines(table));
    }
    Line(absl::StrCat(PowerText(n), " x ", Recipe(), " = ", ExactBytes(*a_.state_bytes)));
  }

  void Traced() {
    if (!s_.traced) return;
    const NapkinSheet::Traced& t = *s_.traced;
    const NapkinComparison& c = t.compared;
    Section("Beside it: the recorded step");
    Line(SanitizeForTerminal(absl::StrCat(t.name, ", ", t.run, ": ", ToGrouped(c.step_flops),
                                          " model FLOPs for ", TokensText(c.step_tokens))));
    Table table({{"", kLeft}, {"napkin", kRight}, {"recorded", kRight}, {"ratio", kRight}});
    const auto row = [&](const std::string& name, const std::optional<Count>& rule, Count exact) {
      table.AddRow(
          {name, rule ? Short(*rule) : "-", Short(exact),
           rule ? RatioText(static_cast<double>(exact) / static_cast<double>(*rule)) : "-"});
    };
    row("parameters", q_.parameters, c.parameters);
    if (c.parameters_active != c.parameters)
      row("  active a token", std::nullopt, c.parameters_active);
    std::optional<Count> rule;
    if (q_.parameters) rule = *q_.parameters * c.tokens * 6;
    row(absl::StrCat("FLOPs of ", TokensText(c.tokens)), rule, c.flops);
    if (c.flops_causal_half) row("  causal attention by half", rule, *c.flops_causal_half);
    row("bytes of states", a_.state_bytes, t.state_bytes());
    absl::StrAppend(&text_, IndentedLines(table));
    if (a_.rate)
      Line(absl::StrCat("at the same rate the recorded FLOPs take ",
                        TimeText(static_cast<double>(c.flops) / *a_.rate)));
    Line(absl::StrCat("recorded FLOPs: ", ToGrouped(c.step_flops), " x ", PowerText(c.tokens),
                      " / ", ToGrouped(c.step_tokens), " = ", ToGrouped(c.flops),
                      c.step_flops * c.tokens % c.step_tokens == 0 ? "" : ", rounded down"));
    Why(c);
  }

  // The FLOPs' ratio: of the two N, and of what 6·N·D leaves out or adds at the model's own.
  void Why(const NapkinComparison& c) {
    std::vector<std::string> terms;
    for (const NapkinComparison::Term& term : c.terms)
      terms.push_back(absl::StrFormat("%s %+.3g %%", term.label, 100 * term.part));
    Line(absl::StrCat("FLOPs recorded = ", RatioText(c.ratio), " x 6·N·D at the model's own N",
                      terms.empty() ? "" : ": ", absl::StrJoin(terms, ", ")));
    if (q_.parameters && c.parameters != *q_.parameters) {
      Line(absl::StrCat(
          "and its own N is ",
          RatioText(static_cast<double>(c.parameters) / static_cast<double>(*q_.parameters)),
          " x the napkin's"));
    }
    Line(
        "attention is nominal: every pair of query and key, of a window the visible ones; "
        "recomputation is not in model FLOPs");
  }

  void Missing() {
    std::vector<std::string> lines;
    const auto add = [&](const char* what, std::vector<std::string> flags) {
      if (!flags.empty()) lines.push_back(absl::StrCat(what, ": ", absl::StrJoin(flags, ", ")));
    };
    const auto need = [](bool missing, const char* flag) {
      return missing ? std::vector<std::string>{flag} : std::vector<std::string>{};
    };
    const auto join = [](std::vector<std::string> a, const std::vector<std::string>& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    const auto n = need(!q_.parameters, "--params=70B"), d = need(!q_.tokens, "--tokens=15T");
    const auto peak = need(!q_.peak, "--hardware=h100 or --peak=989.5T"),
               mfu = need(!q_.mfu, "--mfu=0.5"), recipe = need(!q_.recipe, "--recipe=mixed"),
               memory = need(!q_.memory, "--hardware=h100 or --memory=80GB");
    add("FLOPs", join(n, d));
    add("time, GPU-hours", join(join(n, d), join(peak, mfu)));
    add("bytes of states", join(n, recipe));
    add("largest model", join(memory, recipe));
    if (lines.empty()) return;
    Section("Not answered, for want of");
    for (const std::string& line : lines) Line(line);
  }

  const NapkinSheet& s_;
  const NapkinQuestion& q_;
  const NapkinAnswer& a_;
  std::string text_;
};

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json QuestionJson(const NapkinSheet& s) {
  const NapkinQuestion& q = s.question;
  Json json = Json::Object();
  json.Add("parameters", OrNull(q.parameters)).Add("tokens", OrNull(q.tokens));
  json.Add("gpus", q.gpus).Add("peak_flops", OrNull(q.peak));
  json.Add("peak_name", TextOrNull(s.peak_name)).Add("mfu", OrNull(q.mfu));
  json.Add("memory", OrNull(q.memory)).Add("memory_name", TextOrNull(s.memory_name));
  if (!q.recipe) return json.Add("recipe", Json());
  Json recipe = Json::Object();
  recipe.Add("name", TextOrNull(q.recipe->name)).Add("bytes_per_parameter", q.recipe->total);
  if (q.recipe->parts) {
    recipe.Add("parameter", q.recipe->parts->parameter).Add("gradient", q.recipe->parts->gradient);
    recipe.Add("optimizer", q.recipe->parts->optimizer);
  }
  return json.Add("recipe", std::move(recipe));
}

Json TracedJson(const NapkinSheet::Traced& t) {
  const NapkinComparison& c = t.compared;
  Json terms = Json::Array();
  for (const NapkinComparison::Term& term : c.terms) {
    Json json = Json::Object();
    terms.Append(json.Add("term", term.label).Add("part", term.part));
  }
  Json json = Json::Object();
  json.Add("name", t.name).Add("run", t.run).Add("parameters", c.parameters);
  json.Add("parameters_active", c.parameters_active).Add("step_flops", c.step_flops);
  json.Add("step_tokens", c.step_tokens)
      .Add("tokens", c.tokens)
      .Add("rule_flops", c.rule_flops)
      .Add("flops", c.flops);
  json.Add("ratio", c.ratio).Add("flops_causal_half", OrNull(c.flops_causal_half));
  return json.Add("terms", std::move(terms)).Add("state_bytes", t.state_bytes());
}

}  // namespace

std::string PowerText(Count count) {
  const std::string digits = ToDecimal(count);
  const size_t kept = digits.find_last_not_of('0') + 1;
  const size_t power = (digits.size() - 1) / 3 * 3, whole = digits.size() - power;
  if (count < 10'000 || kept > 4) return ToGrouped(count);
  std::string text = digits.substr(0, whole);
  if (kept > whole) absl::StrAppend(&text, ".", digits.substr(whole, kept - whole));
  return absl::StrCat(text, "e", power);
}

std::string PowerText(double value, int digits) {
  if (!std::isfinite(value) || value < 1000) return absl::StrFormat("%.*g", digits, value);
  int power = 0;
  // What would print as 1000 goes one power up.
  const double least = 1000 * (1 - 0.5 * std::pow(10, -digits));
  for (; value >= least; power += 3) value /= 1000;
  return absl::StrFormat("%.*ge%d", digits, value, power);
}

std::string NapkinText(const NapkinSheet& sheet) { return Writer(sheet).Write(); }

Json NapkinJson(const NapkinSheet& s) {
  const NapkinAnswer& a = s.answer;
  Json answer = Json::Object();
  answer.Add("flops", OrNull(a.flops)).Add("rate", OrNull(a.rate));
  answer.Add("seconds", OrNull(a.seconds));
  answer.Add("days", a.seconds ? Json(*a.seconds / kSecondsPerDay) : Json());
  answer.Add("gpu_hours", a.gpu_seconds ? Json(*a.gpu_seconds / kSecondsPerHour) : Json());
  answer.Add("gpu_years", a.gpu_seconds ? Json(*a.gpu_seconds / kSecondsPerYear) : Json());
  answer.Add("memory", OrNull(a.memory)).Add("state_bytes", OrNull(a.state_bytes));
  answer.Add("largest_parameters", OrNull(a.largest_parameters));
  answer.Add("fewest_gpus", OrNull(a.fewest_gpus));
  Json json = Json::Object();
  json.Add("schema", "tally.napkin/1").Add("question", QuestionJson(s));
  json.Add("answer", std::move(answer));
  return json.Add("traced", s.traced ? TracedJson(*s.traced) : Json());
}

}  // namespace tally
