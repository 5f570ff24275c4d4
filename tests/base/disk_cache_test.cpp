// The disk cache: the contents that it returns, the files that it does not trust, and failures that
// must not make it fail.
#include "core/base/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/base/draft_file.h"
#include "core/base/sha256.h"
#include "core/base/trusted_folder.h"
#include "core/base/warning.h"
#include "shmap/error.h"

namespace shmap {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string warnings;  // what warn() was given

class DiskCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "disk_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    warnings.clear();
    set_warning_handler([](std::string_view text) noexcept { warnings += text; });
  }
  void TearDown() override {
    set_warning_handler(nullptr);
    fs::remove_all(folder_);
  }

  DiskCache cache() const { return {"kernel", folder_.string()}; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.push_back(entry.path());
    return out;
  }
  fs::path only_file() const {
    EXPECT_EQ(files().size(), 1u);
    return files().at(0);
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  static mode_t mode_of(const fs::path& path) {
    struct stat info = {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0);
    return info.st_mode & 07777;
  }
  bool loads(const std::string& key) const {
    std::string found;
    return cache().load(key, &found);
  }
  fs::path folder_;
};

TEST(Sha256, IsTheStandards) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // Adds the text in two pieces of every size, across the boundaries of blocks.
  const std::string text(200, 'x');
  for (std::size_t n = 0; n <= text.size(); ++n) {
    EXPECT_EQ(Sha256().add(text.substr(0, n)).add(text.substr(n)).digest(),
              Sha256().add(text).digest());
  }
}

TEST_F(DiskCacheTest, GivesBackWhatWasStored) {
  const std::string image(
      "\x7f"
      "ELF\0\1\2\n",
      8);
  const std::string deeper = folder_.string() + "/deeper/still";
  DiskCache("kernel", deeper).store("key", image);
  std::string found;
  ASSERT_TRUE(DiskCache("kernel", deeper).load("key", &found));
  EXPECT_EQ(found, image);
  found = "as it was";
  EXPECT_FALSE(DiskCache("kernel", deeper).load("other", &found));
  EXPECT_FALSE(DiskCache("gemm", deeper).load("key", &found));
  EXPECT_FALSE(DiskCache("kernel", folder_.string()).load("key", &found));
  EXPECT_EQ(found, "as it was");
  DiskCache("kernel", deeper).store("key", "newer");
  ASSERT_TRUE(DiskCache("kernel", deeper).load("key", &found));
  EXPECT_EQ(found, "newer");
  DiskCache("kernel", deeper).store("", "");
  ASSERT_TRUE(DiskCache("kernel", deeper).load("", &found));
  EXPECT_EQ(found, "");
  // Folders and files are for this user alone, whatever the umask.
  EXPECT_EQ(mode_of(folder_ / "deeper"), 0700u);
  EXPECT_EQ(mode_of(deeper), 0700u);
  for (const auto& entry : fs::directory_iterator(deeper)) EXPECT_EQ(mode_of(entry), 0600u);
}

TEST_F(DiskCacheTest, AChangedFileIsNotTaken) {
  cache().store("key", "an image");
  const fs::path path = only_file();
  const std::string text = text_of(path);
  const auto put = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    put(changed);
    EXPECT_FALSE(loads("key")) << "byte " << i;
  }
  for (std::size_t size = 0; size < text.size(); ++size) {
    put(text.substr(0, size));
    EXPECT_FALSE(loads("key")) << size << " bytes";
  }
  put(text + "x");
  EXPECT_FALSE(loads("key"));
  put(text);
  EXPECT_TRUE(loads("key"));
  put("");
  cache().store("key", "an image");  // as it is done after a compilation
  EXPECT_TRUE(loads("key"));
}

// A header whose numbers claim more bytes than the file has costs no memory.
TEST_F(DiskCacheTest, AFileThatClaimsMoreThanItHasIsNotTaken) {
  cache().store("key", "an image");
  std::string text = text_of(only_file());
  for (const std::uint64_t claim :
       {std::uint64_t{256} << 20, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    std::memcpy(text.data() + 16, &claim, sizeof claim);
    std::ofstream(only_file(), std::ios::binary) << text;
    rusage before = {}, after = {};
    getrusage(RUSAGE_SELF, &before);
    EXPECT_FALSE(loads("key")) << claim;
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024) << claim;  // KiB
  }
  // A file that is larger than the whole cache may be is not loaded either.
  cache().store("key", "an image");
  fs::resize_file(only_file(), std::uintmax_t{1} << 40);  // sparse
  EXPECT_FALSE(loads("key"));
}

TEST_F(DiskCacheTest, AFileOfAnotherKeyIsNotTaken) {
  cache().store("key", "an image");
  const fs::path mine = only_file();
  cache().store("yek", "another");
  for (const fs::path& path : files())
    if (path != mine) fs::copy_file(path, mine, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(loads("key"));
  EXPECT_TRUE(loads("yek"));
}

TEST_F(DiskCacheTest, AFileThatOthersMayWriteIsNotTaken) {
  cache().store("key", "an image");
  const fs::path path = only_file();
  for (const mode_t mode : {0620, 0602, 0666}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_FALSE(loads("key")) << std::oct << mode;
  }
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(loads("key"));
  if (geteuid() != 0) return;  // only root can give a file away
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_FALSE(loads("key"));
}

TEST_F(DiskCacheTest, AFolderThatOthersMayWriteIsNotUsed) {
  cache().store("key", "an image");
  for (const mode_t mode : {0770, 0707, 01777}) {
    ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    EXPECT_FALSE(loads("key")) << std::oct << mode;
    cache().store("other", "an image");
    EXPECT_EQ(files().size(), 1u);
  }
  // The warning comes once, with the remedy.
  EXPECT_THAT(warnings, HasSubstr("others may write to it (mode 0770): chmod 700"));
  EXPECT_THAT(warnings, Not(HasSubstr("mode 0707")));
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_TRUE(loads("key"));
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(folder_.c_str(), 65534, 65534), 0);
  EXPECT_FALSE(loads("key"));
  EXPECT_THROW(TrustedFolder(folder_.string()), Error);
}

TEST_F(DiskCacheTest, LinksAreNotFollowed) {
  cache().store("key", "an image");
  const fs::path path = only_file(), elsewhere = folder_.string() + ".elsewhere";
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
  EXPECT_FALSE(loads("key"));
  // A store replaces the link, not the file to which it points.
  cache().store("key", "new");
  EXPECT_TRUE(loads("key"));
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_THAT(text_of(elsewhere), HasSubstr("an image"));
  fs::remove(elsewhere);

  const fs::path link = folder_.string() + ".link";
  fs::create_directory_symlink(folder_, link);
  for (const char* end : {"", "/"}) {
    std::string found;
    EXPECT_FALSE(DiskCache("kernel", link.string() + end).load("key", &found));
  }
  fs::remove(link);
  EXPECT_THAT(warnings, HasSubstr("a symbolic link"));
}

TEST_F(DiskCacheTest, AFifoOrAFolderInAFilesPlaceDoesNotHang) {
  cache().store("key", "an image");
  const fs::path path = only_file();
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(loads("key"));
  cache().store("key", "an image");
  EXPECT_TRUE(loads("key"));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(loads("key"));
  cache().store("key", "an image");
  EXPECT_FALSE(loads("key"));
}

TEST_F(DiskCacheTest, TheOldestGoWhereThereIsTooMuch) {
  const std::string image(1000, 'x');
  const DiskCache small("kernel", folder_.string(), 10000);
  DiskCache("other", folder_.string()).store("key", image);
  for (int i = 0; i < 9; ++i) {
    small.store("key" + std::to_string(i), image);
    for (const fs::path& path : files())  // an hour older than what comes next
      fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  }
  std::string found;
  ASSERT_TRUE(small.load("key0", &found));  // used now
  small.store("key9", image);
  small.store("key10", image);
  EXPECT_TRUE(small.load("key0", &found));
  EXPECT_TRUE(small.load("key10", &found));
  EXPECT_FALSE(small.load("key1", &found));
  EXPECT_LT(files().size(), 11u);
  EXPECT_TRUE(DiskCache("other", folder_.string()).load("key", &found));  // another kind's
  small.store("key11", std::string(10000, 'x'));  // more than it may hold: nothing goes for it
  EXPECT_TRUE(small.load("key10", &found));
}

TEST_F(DiskCacheTest, NowhereToWriteIsNoError) {
  std::ofstream(folder_ / "file") << "x";
  for (const std::string& folder :
       {std::string(), (folder_ / "file" / "inside").string(), std::string("/proc/none")}) {
    const DiskCache cache("kernel", folder);
    cache.store("key", "an image");
    std::string found;
    EXPECT_FALSE(cache.load("key", &found)) << folder;
  }
  EXPECT_EQ(warnings, "");
}

TEST_F(DiskCacheTest, TheEnvironmentSaysWhere) {
  const auto set = [](const char* name, const char* value) {
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  };
  set("SHMAP_CACHE_DIR", "/some/where");
  EXPECT_EQ(DiskCache::default_folder(), "/some/where");
  set("SHMAP_CACHE_DIR", "off");
  EXPECT_EQ(DiskCache::default_folder(), "");
  set("SHMAP_CACHE_DIR", nullptr);
  set("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(DiskCache::default_folder(), "/cache/shmap");
  set("XDG_CACHE_HOME", nullptr);
  set("HOME", "/home/me");
  EXPECT_EQ(DiskCache::default_folder(), "/home/me/.cache/shmap");
  set("HOME", nullptr);
  EXPECT_EQ(DiskCache::default_folder(), "");
}

// Drafts of dead processes: the next draft has another name and removes them.
TEST_F(DiskCacheTest, DraftsOfTheDeadAreRemovedAndThoseOfTheLivingAreNot) {
  const FileDescriptor folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY));
  DraftFile living(folder.get(), 0600, false, "a file");
  const fs::path held = only_file();
  EXPECT_TRUE(DraftFile::is_draft_name(held.filename().c_str()));
  const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(held, hour_ago);
  const fs::path dead = held.parent_path() / (".shmap-" + std::string(20, '0') + ".draft");
  const fs::path fresh = held.parent_path() / (".shmap-" + std::string(20, '1') + ".draft");
  const fs::path theirs = held.parent_path() / "a file of the user's.draft";
  for (const fs::path& path : {dead, fresh, theirs}) {
    std::ofstream(path) << "x";
    if (path != fresh) fs::last_write_time(path, hour_ago);
  }
  cache().store("key", "an image");
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(fresh));  // its owner may be about to lock it
  EXPECT_TRUE(fs::exists(theirs));
  EXPECT_TRUE(fs::exists(held));
  living.commit("name", true);
  EXPECT_TRUE(fs::exists(folder_ / "name"));
}

}  // namespace
}  // namespace shmap
