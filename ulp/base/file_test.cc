#include "ulp/base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "ulp/base/error.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::vector<std::string>& texts) {
  std::vector<std::span<const uint8_t>> parts;
  parts.reserve(texts.size());
  for (const std::string& text : texts) {
    parts.emplace_back(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
  write_file_atomically(path.string(), parts);
}

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

mode_t mode(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

// What the Error of a failed write says; empty if it did not fail.
std::string failure(const fs::path& path, const std::vector<std::string>& texts) {
  try {
    write(path, texts);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "ulp_file_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }

  fs::path folder_;
};

using Names = std::vector<std::string>;

TEST_F(File, WritesThePartsOneAfterTheOther) {
  write(folder_ / "a", {"one ", "", std::string("t\0o", 3)});
  EXPECT_EQ(content(folder_ / "a"), std::string("one t\0o", 7));
  write(folder_ / "empty", {});
  EXPECT_EQ(content(folder_ / "empty"), "");
  EXPECT_EQ(names(), (Names{"a", "empty"}));
}

TEST_F(File, WritesBesideAPathWithoutFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  write("bare", {"x"});
  fs::current_path(before);
  EXPECT_EQ(content(folder_ / "bare"), "x");
}

TEST_F(File, WritesMoreThanAPipeOrPageTakesAtOnce) {
  const std::string large(5 << 20, 'x');
  write(folder_ / "large", {large, "end"});
  EXPECT_EQ(content(folder_ / "large"), large + "end");
}

TEST_F(File, TakesANameOfTheGreatestLength) {
  const std::string name(255, 'n');
  write(folder_ / name, {"x"});
  EXPECT_EQ(names(), Names{name});
  EXPECT_NE(failure(folder_ / (name + "n"), {"x"}), "");
}

TEST_F(File, ReplacesAFileAndKeepsItsMode) {
  write(folder_ / "a", {"a long old text"});
  ASSERT_EQ(::chmod((folder_ / "a").c_str(), 0640), 0);
  write(folder_ / "a", {"new"});
  EXPECT_EQ(content(folder_ / "a"), "new");
  EXPECT_EQ(mode(folder_ / "a"), 0640u);
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(File, GivesANewFileTheModeTheMaskLeaves) {
  const mode_t before = ::umask(027);
  write(folder_ / "a", {"x"});
  EXPECT_EQ(::umask(before), 027u) << "the mask is left as it was";
  EXPECT_EQ(mode(folder_ / "a"), 0640u);
}

TEST_F(File, ReplacesTheNameAndNotTheBytesOfTheOldFile) {
  write(folder_ / "a", {"old"});
  std::ifstream reader(folder_ / "a");
  write(folder_ / "a", {"new"});
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), "old");
}

TEST_F(File, NamesTheMissingFolder) {
  const std::string folder = folder_ / "none", path = folder + "/a";
  EXPECT_EQ(failure(path, {"x"}), "[file] cannot write " + path + ": there is no folder " + folder);
}

TEST_F(File, RefusesWhatIsNoFile) {
  EXPECT_EQ(failure(folder_, {"x"}),
            "[file] cannot write " + folder_.string() + ": it is a folder, name a file");
  EXPECT_EQ(failure("", {"x"}), "[file] cannot write to an empty path: name a file");
  write(folder_ / "a", {"x"});
  EXPECT_EQ(failure(folder_ / "a" / "b", {"x"}),
            "[file] cannot write " + (folder_ / "a" / "b").string() + ": Not a directory");
  EXPECT_EQ(names(), Names{"a"});
}

TEST_F(File, LeavesAReadOnlyFileAlone) {
  write(folder_ / "a", {"old"});
  ASSERT_EQ(::chmod((folder_ / "a").c_str(), 0444), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  const uid_t user = ::geteuid();  // root may write anything, so be somebody else for a moment
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const std::string said = failure(folder_ / "a", {"new"});
  ASSERT_EQ(::seteuid(user), 0);
  EXPECT_EQ(said, "[file] cannot write " + (folder_ / "a").string() + ": Permission denied");
  EXPECT_EQ(content(folder_ / "a"), "old");
  EXPECT_EQ(names(), Names{"a"});
}

// A disk that fills up half-way: files end at 4096 bytes, and the signal that says so is ignored.
TEST_F(File, AFullDiskLeavesTheOldFileAndNoTemporary) {
  write(folder_ / "a", {"old"});
  struct rlimit limit {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit small { 4096, limit.rlim_max };
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string over_old = failure(folder_ / "a", {std::string(4000, 'x'), std::string(4000, 'y')});
  const std::string new_file = failure(folder_ / "b", {std::string(4097, 'x')});
  // Fits: the limit, not the test, made the others fail.
  write(folder_ / "c", {std::string(4096, 'x')});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);

  EXPECT_EQ(over_old, "[file] cannot write " + (folder_ / "a").string() + ": File too large");
  EXPECT_EQ(new_file, "[file] cannot write " + (folder_ / "b").string() + ": File too large");
  EXPECT_EQ(content(folder_ / "a"), "old");
  EXPECT_EQ(names(), (Names{"a", "c"}));
}

TEST_F(File, FollowsLinks) {
  fs::create_directory(folder_ / "far");
  write(folder_ / "far" / "file", {"old"});
  fs::create_symlink("far/file", folder_ / "link");
  fs::create_symlink(folder_ / "link", folder_ / "chain");
  write(folder_ / "chain", {"new"});
  EXPECT_TRUE(fs::is_symlink(folder_ / "chain"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content(folder_ / "far" / "file"), "new");

  fs::create_symlink("far/later", folder_ / "dangling");
  write(folder_ / "dangling", {"x"});
  EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(content(folder_ / "far" / "later"), "x");

  fs::create_symlink("round", folder_ / "round");
  EXPECT_NE(failure(folder_ / "round", {"x"}), "");
  EXPECT_EQ(names(), (Names{"chain", "dangling", "far", "link", "round"}));
}

TEST_F(File, WritesToDevicesDirectly) {
  write("/dev/null", {"x"});
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/null", folder_ / "link");
  write(folder_ / "link", {"x"});
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(failure("/dev/full", {"x"}), "[file] cannot write /dev/full: No space left on device");
}

TEST_F(File, WritesToAPipeDirectly) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = content(folder_ / "pipe"); });
  const std::string large(1 << 20, 'x');
  write(folder_ / "pipe", {large, "end"});
  reader.join();
  EXPECT_EQ(got, large + "end");
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
}

TEST(FileLock, IsHeldOnce) {
  const std::string path = testing::TempDir() + "ulp_lock_test";
  EXPECT_THROW(FileLock{path + "/none"}, Error);
  std::ofstream(path) << "x";
  {
    const FileLock first(path), second(path);
    EXPECT_TRUE(first.held());
    EXPECT_FALSE(second.held());
  }
  EXPECT_TRUE(FileLock(path).held());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace ulp
