// TextCursor: reads one line of text from left to right. Internal to io.
#ifndef TALLY_IO_TEXT_CURSOR_H_
#define TALLY_IO_TEXT_CURSOR_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "tally/tensor/shape.h"

namespace tally {

// Every reader skips spaces first, returns false when what it wants is not there, and then has
// moved past nothing.
class TextCursor {
 public:
  explicit TextCursor(absl::string_view text) : rest_(text) {}

  bool AtEnd() {
    SkipSpaces();
    return rest_.empty();
  }
  absl::string_view rest() const { return rest_; }

  bool Eat(absl::string_view literal);
  // The same, if no letter, digit or '_' follows.
  bool EatWord(absl::string_view word);
  // Letters, digits and "_./-".
  bool Word(std::string* word);
  // Anything up to a space.
  bool Token(std::string* token);
  bool Integer(int64_t low, int64_t high, int64_t* value);
  bool Unsigned(uint64_t* value);
  bool Id(int32_t* id);               // "%12"
  bool JsonText(std::string* value);  // a JSON string
  // A JSON object, as it stands; braces inside of its strings do not count.
  bool JsonObjectText(std::string* text);
  bool Spec(TensorSpec* spec);  // "f32[8,32]"

 private:
  void SkipSpaces();

  absl::string_view rest_;
};

}  // namespace tally

#endif  // TALLY_IO_TEXT_CURSOR_H_
