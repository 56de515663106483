#include "runtime/data/formats/idx.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>

#include "runtime/base/error.h"
#include "tests/data/idx_files.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A data set of 6 training and 4 test images of 2 x 3 pixels, labels 0..2.
void write_data_set(const TemporaryDirectory& directory) {
  directory.write("train-images-idx3-ubyte", idx_bytes({6, 2, 3}));
  directory.write("train-labels-idx1-ubyte.gz", gzipped(idx_bytes({6}, 3)));
  directory.write("t10k-images-idx3-ubyte.gz", gzipped(idx_bytes({4, 2, 3})));
  directory.write("t10k-labels-idx1-ubyte", idx_bytes({4}, 3));
}

TEST(Idx, ReadsPlainAndGzip) {
  const TemporaryDirectory directory;
  const std::string content = idx_bytes({3, 4, 5});
  for (const auto& path :
       {directory.write("plain", content), directory.write("packed.gz", gzipped(content)),
        directory.write("packed-without-ending", gzipped(content)),
        directory.write("members.gz", gzipped(content.substr(0, 9)) + gzipped(content.substr(9)))}) {
    const IdxArray array = read_idx(path);
    EXPECT_EQ(array.dtype, DType::kU8);
    EXPECT_EQ(array.shape, (Shape{3, 4, 5}));
    ASSERT_EQ(array.data.size(), 60u);
    EXPECT_EQ(array.data[0], std::byte{0});
    EXPECT_EQ(array.data[59], std::byte{59});
  }
}

TEST(Idx, ReadsEveryTypeInItsByteOrder) {
  const TemporaryDirectory directory;
  const auto read_one = [&](int type, const std::string& big_endian) {
    return read_idx(directory.write("x", idx_header(type, {1}) + big_endian));
  };
  const auto value = []<class T>(const IdxArray& array, T result) {
    EXPECT_EQ(array.dtype, dtype_of<T>);
    std::memcpy(&result, array.data.data(), sizeof result);
    return result;
  };
  EXPECT_EQ(value(read_one(0x09, "\xfe"), int8_t{}), -2);
  EXPECT_EQ(value(read_one(0x0b, "\x01\x02"), int16_t{}), 0x0102);
  EXPECT_EQ(value(read_one(0x0c, "\x01\x02\x03\x04"), int32_t{}), 0x01020304);
  EXPECT_EQ(value(read_one(0x0d, std::string("\xbf\x80\0\0", 4)), float{}), -1.0f);
  EXPECT_EQ(value(read_one(0x0e, std::string("\x3f\xe0\0\0\0\0\0\0", 8)), double{}), 0.5);
}

TEST(Idx, LoadsADirectory) {
  const TemporaryDirectory directory;
  write_data_set(directory);
  const IdxDataset data = load_idx_directory(directory.path());
  ASSERT_NE(data.test, nullptr);
  EXPECT_EQ(data.train->size(), 6);
  EXPECT_EQ(data.test->size(), 4);
  EXPECT_EQ(data.train->input_shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(data.train->label_shape(), Shape{});
  EXPECT_EQ(data.train->classes(), 3);
  EXPECT_THAT(data.train->name(), HasSubstr("(train)"));
  std::vector<float> image(6);
  int32_t label = -1;
  data.train->read(5, image, std::as_writable_bytes(std::span(&label, 1)));
  EXPECT_EQ(label, 2);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(image[static_cast<size_t>(i)], static_cast<float>(30 + i) / 255.0f);
  EXPECT_EQ(load_idx_directory(directory.path(), {.classes = 10}).train->classes(), 10);

  std::filesystem::remove(directory.path() / "t10k-images-idx3-ubyte.gz");
  std::filesystem::remove(directory.path() / "t10k-labels-idx1-ubyte");
  EXPECT_EQ(load_idx_directory(directory.path()).test, nullptr);
}

TEST(Idx, LeavesOtherTypesUnscaled) {
  const TemporaryDirectory directory;
  directory.write("train-images-idx3-ubyte",
                  idx_header(0x0b, {2, 1, 1, 2}) + std::string("\0\1\2\0\xff\xff\0\3", 8));
  directory.write("train-labels-idx1-ubyte", idx_header(0x0c, {2}) + std::string("\0\0\0\1\0\0\0\0", 8));
  const auto train = load_idx_directory(directory.path()).train;
  EXPECT_EQ(train->input_shape(), (Shape{1, 1, 2}));
  EXPECT_EQ(train->classes(), 2);
  std::vector<float> image(2);
  int32_t label = -1;
  train->read(1, image, std::as_writable_bytes(std::span(&label, 1)));
  EXPECT_THAT(image, testing::ElementsAre(-1.0f, 3.0f));
  EXPECT_EQ(label, 0);
}

TEST(Idx, DigestFollowsTheContent) {
  const TemporaryDirectory directory;
  write_data_set(directory);
  const uint64_t digest = load_idx_directory(directory.path()).train->digest();
  EXPECT_EQ(load_idx_directory(directory.path()).train->digest(), digest);
  std::string changed = idx_bytes({6, 2, 3});
  changed.back() = 7;
  directory.write("train-images-idx3-ubyte", changed);
  EXPECT_NE(load_idx_directory(directory.path()).train->digest(), digest);
}

// Each damage to a data set, and what the message must say.
struct Refusal {
  const char* name;
  void (*damage)(const TemporaryDirectory&);
  std::vector<const char*> says;
};

class IdxRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(IdxRefuses, WithOneClearMessage) {
  const TemporaryDirectory directory;
  write_data_set(directory);
  GetParam().damage(directory);
  try {
    load_idx_directory(directory.path());
    FAIL() << "was accepted";
  } catch (const FileError& e) {
    const std::string text = e.what();
    EXPECT_EQ(text.find(directory.path().string()), 0u) << text;
    for (const char* part : GetParam().says) EXPECT_THAT(text, HasSubstr(part));
  }
}

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";  // before .gz in the search

const Refusal kRefusals[] = {
    {"MissingImages",
     [](const TemporaryDirectory& d) { std::filesystem::remove(d.path() / kImages); },
     {"neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz is there"}},
    {"MissingTestLabels",
     [](const TemporaryDirectory& d) { std::filesystem::remove(d.path() / "t10k-labels-idx1-ubyte"); },
     {"neither t10k-labels-idx1-ubyte"}},
    {"DirectoryInPlaceOfFile",
     [](const TemporaryDirectory& d) {
       std::filesystem::remove(d.path() / kImages);
       std::filesystem::create_directory(d.path() / kImages);
     },
     {kImages, "not a regular file"}},
    {"EmptyFile",
     [](const TemporaryDirectory& d) { d.write(kImages, ""); },
     {kImages, "inside its IDX header"}},
    {"Truncated",
     [](const TemporaryDirectory& d) {
       d.write(kImages, idx_bytes({6, 2, 3}).substr(0, 40));
     },
     {kImages, "(6, 2, 3) uint8", "only 40 bytes", "truncated"}},
    {"TruncatedGzip",
     [](const TemporaryDirectory& d) {
       d.write("t10k-images-idx3-ubyte.gz", gzipped(idx_bytes({4, 2, 3})).substr(0, 30));
     },
     {"t10k-images-idx3-ubyte.gz", "cut off"}},
    {"TrailingBytes",
     [](const TemporaryDirectory& d) {
       d.write(kImages, idx_bytes({6, 2, 3}) + "xy");
     },
     {kImages, "2 bytes follow", "expected a file of 52 bytes, found 54"}},
    {"TrailingBytesInGzip",
     [](const TemporaryDirectory& d) {
       d.write("train-labels-idx1-ubyte.gz", gzipped(idx_bytes({6}, 3) + "xy"));
     },
     {"train-labels-idx1-ubyte.gz", "more bytes follow"}},
    {"TrailingBytesAfterGzip",
     [](const TemporaryDirectory& d) {
       d.write("train-labels-idx1-ubyte.gz", gzipped(idx_bytes({6}, 3)) + "xy");
     },
     {"train-labels-idx1-ubyte.gz", "bytes that are not gzip follow"}},
    {"NotGzip",
     [](const TemporaryDirectory& d) { d.write("train-labels-idx1-ubyte.gz", idx_bytes({6}, 3)); },
     {"train-labels-idx1-ubyte.gz", "signature 1f 8b", "found 00 00"}},
    {"WrongMagic",
     [](const TemporaryDirectory& d) { d.write(kImages, "PK\3\4 and more"); },
     {kImages, "begins with 50 4b 03 04", "not IDX"}},
    {"UnknownType",
     [](const TemporaryDirectory& d) { d.write(kImages, idx_header(0x0a, {1})); },
     {kImages, "00 00 0a 01"}},
    {"NoRank",
     [](const TemporaryDirectory& d) { d.write(kImages, idx_header(0x08, {})); },
     {kImages, "00 00 08 00"}},
    {"HugeExtents",
     [](const TemporaryDirectory& d) {
       d.write(kImages, idx_header(0x0e, {0xffffffff, 0xffffffff, 0xffffffff}) + "x");
     },
     {kImages, "4294967295", "has only 17 bytes"}},
    {"HugeExtentsInGzip",
     [](const TemporaryDirectory& d) {
       std::filesystem::remove(d.path() / kImages);
       d.write("train-images-idx3-ubyte.gz", gzipped(idx_header(0x08, {0xffff, 0xffff}) + "x"));
     },
     {"(65535, 65535)", "(compressed)"}},
    {"CountsDiffer",
     [](const TemporaryDirectory& d) { d.write(kLabels, idx_bytes({5}, 3)); },
     {kImages, "6 images", "5 labels", "do not belong together"}},
    {"TestLabelOutOfRange",
     [](const TemporaryDirectory& d) { d.write("t10k-labels-idx1-ubyte", idx_bytes({4}, 4)); },
     {"t10k-labels-idx1-ubyte", "label 3 of sample 3", "expected 0 to 2"}},
    {"NegativeLabel",
     [](const TemporaryDirectory& d) {
       d.write(kLabels, idx_header(0x09, {6}) + std::string("\0\1\2\0\xff\0", 6));
     },
     {kLabels, "label -1 of sample 4", "0 or more"}},
    {"FloatLabels",
     [](const TemporaryDirectory& d) { d.write(kLabels, idx_header(0x0d, {6}) + std::string(24, '\0')); },
     {kLabels, "float32", "integer label"}},
    {"ImagesAsLabels",
     [](const TemporaryDirectory& d) {
       d.write(kLabels, idx_bytes({6, 2, 3}));
     },
     {kLabels, "(6, 2, 3)", "is it an image file?"}},
    {"LabelsAsImages",
     [](const TemporaryDirectory& d) { d.write(kImages, idx_bytes({6})); },
     {kImages, "is it a label file?"}},
    {"NoSamples",
     [](const TemporaryDirectory& d) {
       d.write(kImages, idx_bytes({0, 2, 3}));
       d.write(kLabels, idx_bytes({0}));
     },
     {kImages, "data set is empty"}},
    {"NoPixels",
     [](const TemporaryDirectory& d) {
       d.write(kImages, idx_bytes({6, 0, 3}));
     },
     {kImages, "data set is empty (shape (6, 0, 3))"}},
    {"TestShapeDiffers",
     [](const TemporaryDirectory& d) {
       d.write("t10k-images-idx3-ubyte", idx_bytes({4, 3, 3}));
     },
     {"test images have shape (3, 3, 1), training images (2, 3, 1)"}},
};

INSTANTIATE_TEST_SUITE_P(Damages, IdxRefuses, testing::ValuesIn(kRefusals),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Idx, RefusesPathsThatAreNotThere) {
  EXPECT_THAT([] { read_idx("/nowhere/x.gz"); },
              ThrowsMessage<FileError>(AllOf(HasSubstr("/nowhere/x.gz: no such file"))));
  EXPECT_THAT([] { load_idx_directory("/nowhere/at/all"); },
              ThrowsMessage<FileError>(HasSubstr("/nowhere/at/all: no such directory")));
}

TEST(Idx, RefusesALabelOutsideTheGivenClasses) {
  const TemporaryDirectory directory;
  write_data_set(directory);
  EXPECT_THAT([&] { load_idx_directory(directory.path(), {.classes = 2}); },
              ThrowsMessage<FileError>(HasSubstr("label 2 of sample 2 is out of range; expected 0 to 1")));
}

TEST(FindFashionMnist, FollowsTheEnvironment) {
  setenv("RONDO_DATA_DIR", "/some/where", 1);
  EXPECT_EQ(find_fashion_mnist(), std::filesystem::path("/some/where"));
  unsetenv("RONDO_DATA_DIR");
  const auto packaged = find_fashion_mnist();
  if (!packaged) GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  const IdxDataset data = load_idx_directory(*packaged);
  EXPECT_EQ(data.train->size(), 60000);
  ASSERT_NE(data.test, nullptr);
  EXPECT_EQ(data.test->size(), 10000);
  EXPECT_EQ(data.train->input_shape(), (Shape{28, 28, 1}));
  EXPECT_EQ(data.train->classes(), 10);
}

}  // namespace
}  // namespace rondo
