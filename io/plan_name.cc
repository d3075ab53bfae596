#include "tally/io/plan_name.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tally/analysis/plan_selective.h"
#include "tally/io/quantity.h"
#include "tally/io/text.h"
#include "tally/nn/nearest.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

const PlanForm& FormOf(PlanSpec::Kind kind) {
  for (const PlanForm& form : PlanForms()) {
    if (form.kind == kind) return form;
  }
  TALLY_CHECK(false) << "a plan without a name: " << static_cast<int>(kind);
  return PlanForms()[0];
}

std::string AllForms() {
  return absl::StrJoin(PlanForms(), ", ", [](std::string* out, const PlanForm& form) {
    absl::StrAppend(out, FormText(form));
  });
}

absl::Status Bad(absl::string_view text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), ": ", why));
}

// "uniform 4", "uniform4" and "uniform=4" meant "uniform:4".
std::string Meant(absl::string_view text, const std::vector<std::string>& words) {
  for (const PlanForm& form : PlanForms()) {
    const absl::string_view word = form.word;
    if (text.size() <= word.size() || text.substr(0, word.size()) != word) continue;
    absl::string_view rest = text.substr(word.size());
    if (rest[0] == '=' || rest[0] == ' ' || rest[0] == '-' || rest[0] == '_') rest.remove_prefix(1);
    const std::string meant = absl::StrCat(word, form.argument == PlanForm::kNothing ? "" : ":",
                                           form.argument == PlanForm::kNothing ? "" : rest);
    if (ParsePlanName(meant).ok()) return meant;
  }
  return Nearest(text, words);
}

absl::StatusOr<PlanSpec> WithArgument(const PlanForm& form, absl::string_view text,
                                      absl::string_view argument) {
  PlanSpec spec{.kind = form.kind};
  if (form.argument == PlanForm::kWord) {
    const std::vector<std::string>& kinds = SelectiveKinds();
    if (std::find(kinds.begin(), kinds.end(), argument) == kinds.end()) {
      const std::string near = Nearest(argument, kinds);
      return Bad(text,
                 absl::StrCat("there are ", absl::StrJoin(kinds, ", "),
                              near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
    }
    spec.word = std::string(argument);
    return spec;
  }
  const bool bytes = form.argument == PlanForm::kBytes;
  const absl::StatusOr<int64_t> number = bytes ? ParseBytes(argument) : ParseCount(argument);
  if (!number.ok()) return Bad(text, std::string(number.status().message()));
  if (*number < 1)
    return Bad(text, absl::StrCat(form.letter, " is 1 or more", bytes ? ", in bytes" : ""));
  spec.number = *number;
  return spec;
}

}  // namespace

const std::vector<PlanForm>& PlanForms() {
  static const auto* const forms = new std::vector<PlanForm>{
      {"none", PlanSpec::kNone, PlanForm::kNothing, "", "nothing runs again"},
      {"sqrt", PlanSpec::kSqrt, PlanForm::kNothing, "", "segments of ceil(sqrt(L)) of L blocks"},
      {"uniform", PlanSpec::kUniform, PlanForm::kCount, "K", "segments of K blocks"},
      {"triangular", PlanSpec::kTriangular, PlanForm::kNothing, "",
       "segments of least peak, each recomputed once"},
      {"log", PlanSpec::kLog, PlanForm::kNothing, "", "revolve with log2 L stored states"},
      {"revolve", PlanSpec::kRevolve, PlanForm::kCount, "C",
       "binomial schedule with C stored states"},
      {"persistent", PlanSpec::kPersistent, PlanForm::kBytes, "BYTES",
       "best chain plan in which what is stored stays"},
      {"chain", PlanSpec::kChain, PlanForm::kBytes, "BYTES", "best chain plan of all"},
      {"selective", PlanSpec::kSelective, PlanForm::kWord, "KIND",
       "recompute by op: attention, cheap, or all but matmul"},
      {"mincut", PlanSpec::kMinCut, PlanForm::kBytes, "BYTES",
       "cheapest that keeps so much where backward begins; no bound on the peak"},
      {"search", PlanSpec::kSearch, PlanForm::kBytes, "BYTES", "search over what is retained"},
      {"optimal", PlanSpec::kOptimal, PlanForm::kBytes, "BYTES",
       "cheapest plan of all planners; a hard bound on the peak"},
      {"fit", PlanSpec::kFit, PlanForm::kNothing, "",
       "optimal at what --memory or --hardware has, with --zero for a rank"},
      {"@", PlanSpec::kFile, PlanForm::kPath, "FILE",
       "a plan as a report's folder has it: plan-NAME.txt or .json"},
  };
  return *forms;
}

std::string FormText(const PlanForm& form) {
  const bool bare = form.argument == PlanForm::kNothing || form.argument == PlanForm::kPath;
  return absl::StrCat(form.word, bare ? "" : ":", form.letter);
}

absl::StatusOr<PlanSpec> ParsePlanName(absl::string_view text,
                                       const std::vector<std::string>& also) {
  if (absl::ConsumePrefix(&text, FormOf(PlanSpec::kFile).word)) {
    if (text.empty()) return Bad("@", "write it as @FILE");
    return PlanSpec{.kind = PlanSpec::kFile, .word = std::string(text)};
  }
  const size_t colon = text.find(':');
  const absl::string_view word = text.substr(0, colon);
  for (const PlanForm& form : PlanForms()) {
    if (word != form.word) continue;
    const bool has = colon != absl::string_view::npos;
    if (form.argument == PlanForm::kNothing) {
      if (has) return Bad(text, absl::StrCat("plan ", form.word, " takes nothing after it"));
      return PlanSpec{.kind = form.kind};
    }
    if (!has || colon + 1 == text.size())
      return Bad(text, absl::StrCat("write it as ", FormText(form)));
    return WithArgument(form, text, text.substr(colon + 1));
  }
  std::vector<std::string> words = also;
  for (const PlanForm& form : PlanForms()) words.push_back(form.word);
  const std::string near =
      colon == absl::string_view::npos ? Meant(text, words) : Nearest(word, words);
  return absl::InvalidArgumentError(
      absl::StrCat("there is no plan ", Quoted(text), "; there are ", AllForms(),
                   also.empty() ? "" : ", ", absl::StrJoin(also, ", "),
                   near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

std::string PlanName(const PlanSpec& spec) {
  const PlanForm& form = FormOf(spec.kind);
  switch (form.argument) {
    case PlanForm::kNothing:
      return form.word;
    case PlanForm::kCount:
      return absl::StrCat(form.word, ":", spec.number);
    case PlanForm::kBytes:
      return absl::StrCat(form.word, ":", BytesName(spec.number));
    case PlanForm::kWord:
      return absl::StrCat(form.word, ":", spec.word);
    case PlanForm::kPath:
      return absl::StrCat(form.word, spec.word);
  }
  return form.word;
}

std::string PlanTitle(const std::string& name) { return PlanTitles({name})[0]; }

std::vector<std::string> PlanTitles(const std::vector<std::string>& names) {
  constexpr int kFewest = 4, kAll = 19;
  for (int digits = kFewest;; ++digits) {
    std::vector<std::string> titles;
    std::map<std::string, std::string> taken;  // by title
    bool apart = true;
    for (const std::string& name : names) {
      titles.push_back(name);
      const absl::StatusOr<PlanSpec> spec = ParsePlanName(name);
      if (spec.ok() && FormOf(spec->kind).argument == PlanForm::kBytes) {
        titles.back() =
            absl::StrCat(FormOf(spec->kind).word, ":", ShortBytesName(spec->number, digits));
      }
      apart &= taken.try_emplace(titles.back(), name).first->second == name;
    }
    if (apart || digits == kAll) return titles;
  }
}

std::string PlanFileName(const std::string& name) {
  std::string file;
  for (char c : absl::StripPrefix(name, FormOf(PlanSpec::kFile).word))
    file += absl::ascii_isalnum(c) || c == '.' || c == '_' ? c : '-';
  return file;
}

bool HasBudget(const PlanSpec& spec) {
  if (spec.kind == PlanSpec::kMinCut) return false;
  return FormOf(spec.kind).argument == PlanForm::kBytes || spec.kind == PlanSpec::kFit;
}

}  // namespace tally
