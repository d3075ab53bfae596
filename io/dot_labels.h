// The words on a drawing: labels, tooltips, attributes.
#ifndef TALLY_IO_DOT_LABELS_H_
#define TALLY_IO_DOT_LABELS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tally/analysis/simulate.h"
#include "tally/io/dot_drawing.h"
#include "tally/io/dot_symbols.h"

namespace tally::dot {

struct OpClass {
  const char* name;
  const char* color;
};
OpClass ClassOf(const Graph& graph, const Account& account, NodeId node);

class Labels {
 public:
  Labels(const Account& account, const DotOptions& options, const Drawing& drawing);

  // The whole attribute list of an item's node, without brackets.
  std::string Node(ItemId id) const;
  // An HTML-like label, with its angle brackets.
  std::string Header() const;
  std::string Legend() const;
  // Machine-readable attributes of the graph; with a plan, peak, saved and recomputed are its.
  std::string GraphAttributes() const;
  // Name and ×12 of a scope's cluster.
  std::string Cluster(ScopeId scope) const;
  bool Folded(ScopeId scope) const { return folds_.count(scope) != 0; }

 private:
  std::string OpTable(ItemId id) const;
  std::string Title(const Item& item) const;
  std::string ShapeRow(const Item& item) const;
  std::string ParameterRow(const Item& item) const;
  std::string FlopsRow(const Item& item) const;
  std::string BytesRow(const Item& item) const;
  std::string Contents(const Item& item, size_t limit) const;
  std::string Tooltip(ItemId id) const;
  std::string SavedText(const Item& item) const;
  std::string SpecText(ValueId v) const;
  std::string EdgeItem(const Item& item) const;
  std::string PlanLine() const;

  const Account& a_;
  const Graph& g_;
  const DotOptions& options_;
  const Drawing& d_;
  int64_t peak_ = 0;                  // as recorded
  std::optional<PlanPrice> price_;    // of the plan, where it is one of this graph
  std::unique_ptr<SizeNames> sizes_;  // with options.symbolic
  std::map<ScopeId, const Repeats::Fold*> folds_;
};

}  // namespace tally::dot

#endif  // TALLY_IO_DOT_LABELS_H_
