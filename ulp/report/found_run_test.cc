#include "ulp/report/found_run.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp.h"
#include "ulp/base/file.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBench =
    R"({"model":"lenet","policy":"fp32","device":"cpu","batch":8,"ms":2.5,"ms_min":2,)"
    R"("planned_peak_bytes":100,"kernels":[]})";

class FoundRuns : public ::testing::Test {
 protected:
  std::string folder(const std::string& name) {
    fs::create_directories(root_ / name);
    return root_ / name;
  }
  void run(const std::string& name) { put(folder(name) + "/config.toml", "seed = 1\n"); }
  FoundFiles find(const std::vector<std::string>& names) const { return find_runs(names); }
  template <typename Found>
  static std::vector<std::string> ids(const std::vector<Found>& all) {
    std::vector<std::string> made;
    for (const auto& one : all) made.push_back(one.id);
    return made;
  }

  using Ids = std::vector<std::string>;
  TempFolder root_;
};

TEST_F(FoundRuns, WhatLiesBelowAFolder) {
  run("b");
  run("a/deep/er");
  run(".hidden/run");
  folder("nothing");
  put(root_ / "a/bench.jsonl", kBench);
  put(root_ / "a/other.json", R"({"model":"lenet"})");
  put(root_ / "b/metrics.jsonl", kBench);
  put(folder("ls") + "/least-squares.csv", "variant\n");
  const FoundFiles found = find({root_.path()});
  EXPECT_EQ(ids(found.runs), (Ids{"a/deep/er", "b"}));
  EXPECT_EQ(found.runs[0].folder, root_ / "a/deep/er");
  EXPECT_EQ(ids(found.benches), (Ids{"a/bench.jsonl"}));
  EXPECT_EQ(ids(found.least_squares), (Ids{"ls"}));
  EXPECT_EQ(found.title, root_.path());
  EXPECT_TRUE(found.notes.empty());
  EXPECT_TRUE(find({root_ / "nothing"}).empty());
}

TEST_F(FoundRuns, ARunThatIsNamedItselfHasItsFoldersName) {
  run("first");
  EXPECT_EQ(ids(find({root_ / "first"}).runs), Ids{"first"});
  EXPECT_EQ(ids(find({root_ / "first/"}).runs), Ids{"first"});
}

TEST_F(FoundRuns, OfSeveralFoldersIdsAreAsTheyWereNamedAndNoneTwice) {
  run("a/x");
  run("b/x");
  const Ids both = {root_ / "a/x", root_ / "b/x"};
  EXPECT_EQ(ids(find({root_ / "a", root_ / "b/"}).runs), both);
  EXPECT_EQ(ids(find({root_ / "a", root_ / "b", root_ / "a/x", root_ / "a/./"}).runs), both);
}

TEST_F(FoundRuns, LinksAreFollowedAndLoopsEnd) {
  run("runs/one");
  folder("elsewhere/two");
  put(root_ / "elsewhere/two/config.toml", "");
  fs::create_directory_symlink(root_ / "runs", root_ / "runs/loop");
  fs::create_directory_symlink("loop2", root_ / "runs/loop2");
  fs::create_directory_symlink(root_ / "elsewhere", root_ / "runs/linked");
  fs::create_directory_symlink(root_ / "not-there", root_ / "runs/broken");
  EXPECT_EQ(ids(find({root_ / "runs"}).runs), (Ids{"linked/two", "one"}));
}

TEST_F(FoundRuns, HostileNames) {
  run("<script>alert(1)");
  run("\xff\xfe");
  run("line\nbreak");
  EXPECT_EQ(find({root_.path()}).runs.size(), 3u);
}

TEST_F(FoundRuns, AFolderThatMayNotBeSearchedIsANote) {
  run("open");
  folder("closed");
  // Of the folder that a test may enter, one inside is closed.
  fs::permissions(root_.path(), fs::perms::all);
  const Forbidden forbidden(root_ / "closed");
  const FoundFiles found = find({root_.path()});
  EXPECT_EQ(ids(found.runs), Ids{"open"});
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("cannot look into"), std::string::npos) << found.notes[0];
}

TEST_F(FoundRuns, WhatIsNoFolder) {
  put(root_ / "file", "");
  EXPECT_SAYS(find({root_ / "file"}), "no folder");
  EXPECT_SAYS(find({root_ / "none"}), "there is no folder");
  EXPECT_SAYS(find({""}), "DIR is empty");
}

TEST_F(FoundRuns, ALockIsSeenWithoutBeingTaken) {
  run("run");
  EXPECT_FALSE(is_training(root_ / "run", HeldLocks()));
  EXPECT_FALSE(fs::exists(root_ / "run/.lock"));
  {
    const FileLock lock(root_ / "run/.lock");
    ASSERT_TRUE(lock.held());
    EXPECT_TRUE(is_training(root_ / "run", HeldLocks()));
  }
  EXPECT_FALSE(is_training(root_ / "run", HeldLocks()));
  // Looking holds nothing, so whoever starts meanwhile gets the lock.
  const HeldLocks looking;
  EXPECT_FALSE(is_training(root_ / "run", looking));
  EXPECT_TRUE(FileLock(root_ / "run/.lock").held());
}

TEST_F(FoundRuns, ALockOfAnotherProcess) {
  run("run");
  int pipes[2], back[2];
  ASSERT_EQ(::pipe(pipes), 0);
  ASSERT_EQ(::pipe(back), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(root_ / "run/.lock");
    char c = 'x';
    if (::write(pipes[1], &c, 1) != 1 || ::read(back[0], &c, 1) != 1) ::_exit(1);
    ::_exit(0);
  }
  char c = 0;
  ASSERT_EQ(::read(pipes[0], &c, 1), 1);
  EXPECT_TRUE(is_training(root_ / "run", HeldLocks()));
  ASSERT_EQ(::write(back[1], &c, 1), 1);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_training(root_ / "run", HeldLocks()));
  for (const int fd : {pipes[0], pipes[1], back[0], back[1]}) ::close(fd);
}

}  // namespace
}  // namespace ulp
