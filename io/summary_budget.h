// The budget section of a report: where every byte of a step goes, what a parameter takes, what
// grows with the batch, and what one of several ranks holds and sends.
#ifndef TALLY_IO_SUMMARY_BUDGET_H_
#define TALLY_IO_SUMMARY_BUDGET_H_

#include <optional>
#include <string>
#include <vector>

#include "tally/analysis/zero.h"
#include "tally/io/json.h"

namespace tally {

struct Report;

struct BudgetSection {
  Budget budget;                // as recorded
  std::vector<Budget> planned;  // of each of Report::plans
  std::string recipe;           // "mixed under adamw"; "" without parameters
  // Two records are needed to tell what grows: whoever can make the second sets these.
  std::optional<BatchSplit> split;
  std::string split_note = "one record does not tell what grows with the batch";
  // Of more than one rank: as recorded, and under each of the plans.
  std::optional<ZeroReport> rank;
  std::vector<ZeroReport> planned_rank;
};

// Everything but the split. n log n in the graph for each plan.
BudgetSection MakeBudgetSection(const Report& report);

// The dtype policy of a report: that which was asked of the run, unless what was recorded is of
// another; else the first that what was recorded is of; else the dtypes in words. "" without
// parameters.
std::string PolicyOf(const Report& report, const ModelStates& states);

// "12 bytes a parameter (bf16-f32opt under adamw): 2 parameters, 2 gradients, 8 moments"; ""
// without parameters.
std::string RecipeText(const Report& report);

// "moments, exp_avg (f32)": a line of a budget in words.
std::string LineText(const BudgetLine& line);

std::string BudgetSummary(const Report& report);
// The keys of `memory` after those that single sums have.
void AddBudgetKeys(const Report& report, Json& memory);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_BUDGET_H_
