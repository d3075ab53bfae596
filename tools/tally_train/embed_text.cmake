# cmake -DOUT=FILE -DFILES="A;B" -P embed_text.cmake: a source that holds the files' text as bytes.
set(hex "")
foreach(file ${FILES})
  file(READ ${file} part HEX)
  string(APPEND hex ${part})
endforeach()
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "#include \"tally/tools/tally_train/corpus.h\"

namespace tally {
namespace {
constexpr unsigned char kText[] = {
${bytes}};
}  // namespace

absl::string_view ProjectText() {
  return {reinterpret_cast<const char*>(kText), sizeof(kText)};
}

}  // namespace tally
")
