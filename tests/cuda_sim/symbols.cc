#include "symbols.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <vector>

namespace tally_sim::internal {
namespace {

// `count` records of a file at `offset`, or none if they are not there.
template <typename T>
std::vector<T> Read(std::ifstream& file, uint64_t offset, uint64_t count) {
  std::vector<T> records(count);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(records.data()),
            static_cast<std::streamsize>(count * sizeof(T)));
  if (!file) records.clear();
  return records;
}

}  // namespace

std::string LocalSymbol(const char* path, const void* base, const void* address) {
  std::ifstream file(path, std::ios::binary);
  if (!file) file.open("/proc/self/exe", std::ios::binary);
  const auto headers = Read<ElfW(Ehdr)>(file, 0, 1);
  if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0) return "";
  const ElfW(Ehdr)& header = headers[0];
  const auto sections = Read<ElfW(Shdr)>(file, header.e_shoff, header.e_shnum);
  uint64_t value = reinterpret_cast<uint64_t>(address);
  if (header.e_type == ET_DYN) value -= reinterpret_cast<uint64_t>(base);
  for (const ElfW(Shdr) & section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const auto symbols =
        Read<ElfW(Sym)>(file, section.sh_offset, section.sh_size / sizeof(ElfW(Sym)));
    const ElfW(Shdr)& strings = sections[section.sh_link];
    const auto text = Read<char>(file, strings.sh_offset, strings.sh_size);
    for (const ElfW(Sym) & symbol : symbols) {
      if (symbol.st_value == value && (symbol.st_info & 0xf) == STT_FUNC &&
          symbol.st_name < text.size()) {
        return text.data() + symbol.st_name;
      }
    }
  }
  return "";
}

}  // namespace tally_sim::internal
