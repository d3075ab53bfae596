// What a program tells a tape about its values: names, axes, tokens and scopes.
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "tally/autograd/checkpoint_tree.h"
#include "tally/autograd/tape.h"

namespace tally {

NameId Tape::Intern(absl::string_view name) {
  const auto [it, added] =
      name_ids_.emplace(std::string(name), static_cast<NameId>(graph_.names.size()));
  if (added) graph_.names.push_back(it->first);
  return it->second;
}

void Tape::OnName(const Tensor& tensor, absl::string_view name) {
  const NameId id = Intern(name);
  const ValueId value = ValueOf(tensor);
  graph_.values[value].name = id;
  if (open_tree_ != nullptr) open_tree_->OnName(value, tensor, name);
}

void Tape::OnAxes(const Tensor& tensor, absl::string_view axes) {
  const NameId id = Intern(axes);
  graph_.values[ValueOf(tensor)].axes = id;
}

void Tape::OnTokens(const Tensor& tensor) { graph_.tokens.push_back(ValueOf(tensor)); }

ScopeId Tape::EnterScope(ScopeId parent, absl::string_view name) {
  const NameId id = Intern(absl::StrReplaceAll(name, {{"/", "_"}}));
  const auto [it, added] =
      scope_ids_.emplace(std::make_pair(parent, id), static_cast<ScopeId>(graph_.scopes.size()));
  if (added) graph_.scopes.push_back({parent, id});
  return it->second;
}

}  // namespace tally
