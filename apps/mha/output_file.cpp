// A draft with the process's number in its name, then a rename.
#include "output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "mha/error.h"

namespace mha::app {
namespace {

namespace fs = std::filesystem;

std::string reason() { return errno != 0 ? std::generic_category().message(errno) : "it failed"; }

void write(const fs::path& path, const std::string& target, std::string_view bytes) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) throw IoError(fmt::format("{}: cannot be opened for writing: {}", target, reason()));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw IoError(fmt::format("{}: cannot be written: {}", target, reason()));
}

}  // namespace

void write_file(const std::string& path, std::string_view bytes) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (fs::is_directory(there)) throw IoError(fmt::format("{}: is a folder", path));
  if (fs::exists(there) && !fs::is_regular_file(there)) return write(path, path, bytes);
  const fs::path target = fs::exists(there) ? fs::canonical(path) : fs::path(path);  // what a link leads to, not the link
  const fs::path draft = fmt::format("{}.{}.tmp", target.string(), getpid());
  try {
    write(draft, path, bytes);
    fs::rename(draft, target, error);
    if (error) throw IoError(fmt::format("{}: cannot be written: {}", path, error.message()));
  } catch (const IoError&) {
    fs::remove(draft, error);
    throw;
  }
}

}  // namespace mha::app
