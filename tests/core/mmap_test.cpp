// MappedFile: content, emptiness, moves, and the errors of files that are not there or are no files.
#include "core/mmap.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "mha/error.h"

namespace mha::core {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("mha_mmap_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string file(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = directory_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  std::filesystem::path directory_;
};

std::string text(const MappedFile& file) { return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}; }

TEST_F(MappedFileTest, HasTheContent) {
  const std::string content("some\0bytes", 10);
  EXPECT_EQ(text(MappedFile(file("a", content))), content);
}

TEST_F(MappedFileTest, AnEmptyFileIsEmpty) { EXPECT_TRUE(MappedFile(file("empty", "")).bytes().empty()); }

TEST_F(MappedFileTest, Moves) {
  MappedFile first(file("a", "first"));
  MappedFile second(std::move(first));
  EXPECT_EQ(text(second), "first");
  MappedFile third(file("b", "third"));
  third = std::move(second);
  EXPECT_EQ(text(third), "first");
}

TEST_F(MappedFileTest, RefusesWhatIsNoFile) {
  const auto refuses = [](const std::string& path) {
    try {
      const MappedFile file(path);
      ADD_FAILURE() << path << " was mapped";
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  };
  refuses((directory_ / "missing").string());
  refuses(directory_.string());
  const std::string pipe = (directory_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  refuses(pipe);
}

}  // namespace
}  // namespace mha::core
