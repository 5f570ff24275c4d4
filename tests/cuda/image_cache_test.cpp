// The disk cache of compiled kernels: what it gives back, and all that must not make it fail.
#include "cuda/image_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace shmap::cuda {
namespace {

namespace fs = std::filesystem;

class ImageCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "image_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.push_back(entry.path());
    return out;
  }
  fs::path folder_;
};

TEST_F(ImageCacheTest, GivesBackWhatWasStored) {
  const std::string image(
      "\x7f"
      "ELF\0\1\2\n",
      8);
  ImageCache(folder_.string() + "/deeper").store("key", image);
  std::string found;
  ASSERT_TRUE(ImageCache(folder_.string() + "/deeper").load("key", &found));
  EXPECT_EQ(found, image);
  EXPECT_FALSE(ImageCache(folder_.string() + "/deeper").load("other", &found));
  EXPECT_FALSE(ImageCache(folder_.string()).load("key", &found));
}

TEST_F(ImageCacheTest, AChangedFileIsNotTaken) {
  const ImageCache cache(folder_.string());
  cache.store("key", "an image");
  ASSERT_EQ(files().size(), 1u);
  std::string text;
  {
    std::ifstream in(files()[0], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::string found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    std::ofstream(files()[0], std::ios::binary) << changed;
    EXPECT_FALSE(cache.load("key", &found)) << "byte " << i;
  }
  for (const std::size_t size : {std::size_t{0}, text.size() / 2, text.size() - 1}) {
    std::ofstream(files()[0], std::ios::binary) << text.substr(0, size);
    EXPECT_FALSE(cache.load("key", &found)) << size << " bytes";
  }
  std::ofstream(files()[0], std::ios::binary) << text << "x";
  EXPECT_FALSE(cache.load("key", &found));
  cache.store("key", "an image");  // as it is done after a compilation
  EXPECT_TRUE(cache.load("key", &found));
}

TEST_F(ImageCacheTest, AFileOfAnotherKeyIsNotTaken) {
  const ImageCache cache(folder_.string());
  cache.store("key", "an image");
  const fs::path mine = files()[0];
  cache.store("yek", "another");
  for (const fs::path& path : files())
    if (path != mine) fs::copy_file(path, mine, fs::copy_options::overwrite_existing);
  std::string found;
  EXPECT_FALSE(cache.load("key", &found));
}

TEST_F(ImageCacheTest, TheOldestGoWhereThereIsTooMuch) {
  const std::string image(1000, 'x');
  const ImageCache cache(folder_.string(), 10000);
  for (int i = 0; i < 9; ++i) {
    cache.store("key" + std::to_string(i), image);
    for (const fs::path& path : files())  // an hour older than what comes next
      fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  }
  std::string found;
  ASSERT_TRUE(cache.load("key0", &found));  // used now
  cache.store("key9", image);
  cache.store("key10", image);
  EXPECT_TRUE(cache.load("key0", &found));
  EXPECT_TRUE(cache.load("key10", &found));
  EXPECT_FALSE(cache.load("key1", &found));
  EXPECT_LT(files().size(), 10u);
}

TEST_F(ImageCacheTest, NowhereToWriteIsNoError) {
  std::ofstream(folder_ / "file") << "x";
  for (const std::string& folder :
       {std::string(), (folder_ / "file" / "inside").string(), std::string("/proc/none")}) {
    const ImageCache cache(folder);
    cache.store("key", "an image");
    std::string found;
    EXPECT_FALSE(cache.load("key", &found)) << folder;
  }
}

TEST_F(ImageCacheTest, TheEnvironmentSaysWhere) {
  const auto set = [](const char* name, const char* value) {
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  };
  set("SHMAP_CACHE_DIR", "/some/where");
  EXPECT_EQ(ImageCache().folder(), "/some/where");
  set("SHMAP_CACHE_DIR", "off");
  EXPECT_EQ(ImageCache().folder(), "");
  set("SHMAP_CACHE_DIR", nullptr);
  set("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(ImageCache().folder(), "/cache/shmap");
  set("XDG_CACHE_HOME", nullptr);
  set("HOME", "/home/me");
  EXPECT_EQ(ImageCache().folder(), "/home/me/.cache/shmap");
  set("HOME", nullptr);
  EXPECT_EQ(ImageCache().folder(), "");
}

}  // namespace
}  // namespace shmap::cuda
