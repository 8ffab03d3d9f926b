// SafetensorsFile and save_safetensors: what they read and write, and that no hostile file gets past the constructor.
#include "mha/model/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/check.h"
#include "mha/error.h"
#include "model/encoder_case.h"
#include "support/errors.h"

namespace mha {
namespace {

using test::mentions;
using test::TempFolder;
using test::text_of;

std::string file_of(std::uint64_t length, const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}
std::string file_of(const std::string& header, const std::string& data = "") { return file_of(header.size(), header, data); }

class SafetensorsTest : public testing::Test {
 protected:
  std::string path() const { return folder_.file("t.safetensors"); }
  SafetensorsFile open(const std::string& bytes) const {
    test::write_text(path(), bytes);
    return SafetensorsFile(path());
  }
  template <class Kind = FormatError>
  std::string refused(const std::string& bytes) const {
    return text_of<Kind>([&] { open(bytes); });
  }
  // One tensor "x" with eight bytes of data.
  std::string refused_entry(const std::string& entry) const { return refused(file_of(R"({"x":)" + entry + "}", std::string(8, '\1'))); }

  TempFolder folder_;
};

TEST_F(SafetensorsTest, ReadsTensorsAndMetadata) {
  const float values[] = {1.5F, -2.0F, 3.0F, 0.25F, 8.0F, 9.0F};
  std::string data(24, '\0');
  std::memcpy(data.data(), values, 24);
  const SafetensorsFile file = open(file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},)"
                                            R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )",
                                            data));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(file.contains("a"));
  EXPECT_FALSE(file.contains("c"));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const ConstTensorView b = file.tensor("b");
  EXPECT_EQ(b.shape, (Dims{2, 2}));
  EXPECT_EQ(b.as<float>()[0], 3.0F);
  EXPECT_EQ(b.as<float>()[3], 9.0F);
  EXPECT_EQ(file.info("a").dtype, "F32");
  EXPECT_EQ(file.info("a").bytes, 8U);
}

TEST_F(SafetensorsTest, ReadsScalarsEmptyTensorsAndEmptyFiles) {
  const SafetensorsFile file = open(file_of(R"({"s":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
                                            R"("e":{"dtype":"F64","shape":[3,0,1152921504606846976],"data_offsets":[2,2]}})",
                                            "\1\2"));
  EXPECT_EQ(file.tensor("s").rank(), 0);
  EXPECT_EQ(file.tensor("s").as<Bf16>()->bits, 0x0201);
  EXPECT_TRUE(file.tensor("e"));
  EXPECT_EQ(element_count(file.tensor("e").shape), 0);
  EXPECT_TRUE(open(file_of("{}")).names().empty());
}

TEST_F(SafetensorsTest, CopiesWhatIsNotAligned) {
  std::string data(3 + 16, '\0');
  const double values[] = {1.25, -7.0};
  std::memcpy(data.data() + 3, values, 16);
  const SafetensorsFile file = open(
      file_of(R"({"x":{"dtype":"F64","shape":[2],"data_offsets":[3,19]},"b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", data));
  const ConstTensorView x = file.tensor("x");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data) % alignof(double), 0U);
  EXPECT_EQ(x.as<double>()[0], 1.25);
  EXPECT_EQ(x.as<double>()[1], -7.0);
  EXPECT_EQ(file.tensor("x").data, x.data) << "copied once, not at each call";
}

TEST_F(SafetensorsTest, RefusesOnAccessWhatItCannotComputeWith) {
  const SafetensorsFile file =
      open(file_of(R"({"i":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},"r":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[8,12]},)"
                   R"("f":{"dtype":"F4","shape":[2],"data_offsets":[12,13]}})",
                   std::string(13, '\0')));
  EXPECT_EQ(file.names().size(), 3U);
  EXPECT_TRUE(mentions(text_of<DTypeError>([&] { file.tensor("i"); }), path(), "'i'", "I32"));
  EXPECT_TRUE(mentions(text_of<DTypeError>([&] { file.tensor("f"); }), "F4"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { file.tensor("r"); }), "'r'", "rank 5"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { file.tensor("no\n"); }), path(), "'no\\x0a'"));
  EXPECT_TRUE(mentions(text_of<FormatError>([&] { file.info("no"); }), "'no'"));
}

TEST_F(SafetensorsTest, RefusesWhatIsNoFile) {
  EXPECT_TRUE(mentions(text_of<IoError>([&] { SafetensorsFile(folder_.file("missing")); }), "missing", "No such file"));
  EXPECT_TRUE(mentions(text_of<IoError>([&] { SafetensorsFile(folder_.path()); }), folder_.path(), "directory"));
}

TEST_F(SafetensorsTest, RefusesBrokenBeginnings) {
  EXPECT_TRUE(mentions(refused(""), path(), "0 bytes"));
  EXPECT_TRUE(mentions(refused("\7\0\0\0"), "bytes"));
  EXPECT_TRUE(mentions(refused(file_of(100, "{}", "")), "100", "2 bytes follow"));
  EXPECT_TRUE(mentions(refused(file_of(0, "", "{}")), "byte 8", "'{'"));
  EXPECT_TRUE(mentions(refused(file_of(std::uint64_t{1} << 63, "{}", "")), "9223372036854775808"));
  EXPECT_TRUE(mentions(refused(file_of(~std::uint64_t{0}, "{}", "")), "18446744073709551615"));
  EXPECT_TRUE(mentions(refused(file_of(~std::uint64_t{0} - 7, "{}", "")), "limit"));
  EXPECT_TRUE(mentions(refused(file_of(" {}")), "'{'"));
  EXPECT_TRUE(mentions(refused(file_of("\xEF\xBB\xBF{}")), "'{'"));
  EXPECT_TRUE(mentions(refused(file_of("[]")), "'{'"));
}

TEST_F(SafetensorsTest, RefusesBrokenJson) {
  EXPECT_TRUE(mentions(refused(file_of("{")), path(), "broken JSON at byte 9"));
  EXPECT_TRUE(mentions(refused(file_of(R"({"a":1,})")), "broken JSON at byte 15"));
  EXPECT_TRUE(mentions(refused(file_of("{} x")), "broken JSON"));
  EXPECT_TRUE(mentions(refused(file_of(std::string("{}\0x", 4))), "broken JSON at byte 10", "NUL"));
  EXPECT_TRUE(mentions(refused(file_of("{\"\xFF\":1}")), "broken JSON at byte 10", "UTF-8"));
  EXPECT_TRUE(mentions(refused(file_of(R"({"a":1e999})")), "broken JSON"));
  EXPECT_TRUE(mentions(
      refused(file_of(R"({"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")),
      "'x' twice"));
  EXPECT_TRUE(mentions(refused(file_of(R"({"x":{"dtype":"F32","dtype":"F64","shape":[0],"data_offsets":[0,0]}})")), "'dtype' twice"));
  const std::string deep = std::string(R"({"x":)") + std::string(1'000'000, '[');
  EXPECT_TRUE(mentions(refused(file_of(deep)), "deeper than"));
  std::string many = R"({"x":[)";
  for (int i = 0; i < 5'000'000; ++i) many += "0,";
  EXPECT_TRUE(mentions(refused(file_of(many + "0]}")), "more than 4000000 values"));
  const std::string long_token = refused(file_of("{" + std::string(1'000'000, 'x') + "}"));
  EXPECT_LT(long_token.size(), 400U) << "a message is a line, not the file";
}

TEST_F(SafetensorsTest, RefusesBrokenEntries) {
  EXPECT_TRUE(mentions(refused_entry("1"), path(), "'x'", "object"));
  EXPECT_TRUE(mentions(refused_entry("[]"), "object"));
  EXPECT_TRUE(mentions(refused_entry(R"({"shape":[2],"data_offsets":[0,8]})"), "dtype", "missing"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","data_offsets":[0,8]})"), "shape", "missing"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2]})"), "data_offsets", "missing"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"), "'F33'"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})"), "dtype", "string"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "shape", "list"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "shape", "2.0"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "shape", "-2"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})"), "shape", "string"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"), "3 numbers"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8e0]})"), "data_offsets"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "[8, 0)", "before"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})"), "[8, 16)", "beyond the 8 bytes"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775807]})"), "beyond"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})"), "18446744073709551615"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), "8 bytes", "need 12"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})"), "need 16"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), "overflow"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,8]})"), "overflow"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})"), "9223372036854775808"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})"), "overflow"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})"), "whole number"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"strides":[1]})"), "'strides'"));
  EXPECT_TRUE(mentions(refused_entry(R"({"dtype":"BOOL","shape":[8],"data_offsets":[0,8]},"__metadata__":{"a":1})"), "'a'", "string"));
}

TEST_F(SafetensorsTest, RefusesOverlapsHolesAndBools) {
  const auto two = [](const char* first, const char* second, const std::string& data) {
    return file_of(core::join(R"({"a":{"dtype":"BOOL","shape":[4],"data_offsets":)", first,
                              R"(},"b":{"dtype":"BOOL","shape":[4],"data_offsets":)", second, "}}"),
                   data);
  };
  EXPECT_EQ(open(two("[0,4]", "[4,8]", std::string(8, '\1'))).names().size(), 2U);
  EXPECT_TRUE(mentions(refused(two("[0,4]", "[0,4]", std::string(4, '\1'))), "'b'", "overlaps"));
  EXPECT_TRUE(mentions(refused(two("[0,4]", "[3,7]", std::string(7, '\1'))), "'b'", "overlaps"));
  EXPECT_TRUE(mentions(refused(two("[0,4]", "[5,9]", std::string(9, '\1'))), "'b'", "no tensor"));
  EXPECT_TRUE(mentions(refused(two("[1,5]", "[5,9]", std::string(9, '\1'))), "'a'", "no tensor"));
  EXPECT_TRUE(mentions(refused(two("[0,4]", "[4,8]", std::string(9, '\1'))), "at the end", "no tensor"));
  EXPECT_TRUE(mentions(refused(two("[0,4]", "[4,8]", "\1\1\1\1\1\2\1\1")), "'b'", " is 2"));
  EXPECT_TRUE(mentions(refused(file_of("{}", "x")), "no tensor"));
}

// Every single-byte change of a valid file, and random larger ones: either a FormatError or a file whose tensors can all be read.
TEST_F(SafetensorsTest, SurvivesMutations) {
  const std::string valid = file_of(R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                    R"("m":{"dtype":"BOOL","shape":[4],"data_offsets":[24,28]}})",
                                    std::string(28, '\1'));
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uint64_t sum = 0;
  int accepted = 0;
  const auto try_one = [&](const std::string& bytes) {
    try {
      const SafetensorsFile file = open(bytes);
      for (const std::string& name : file.names()) {
        const SafetensorsFile::Info info = file.info(name);
        try {
          const ConstTensorView view = file.tensor(name);
          const auto* data = static_cast<const unsigned char*>(view.data);
          for (std::size_t i = 0; i < info.bytes; ++i) sum += data[i];  // the sanitizer sees a byte outside the file
        } catch (const DTypeError&) {
        } catch (const ShapeError&) {
        }
      }
      ++accepted;
    } catch (const FormatError& error) {
      EXPECT_TRUE(mentions(error.what(), path()));
    }
  };
  for (std::size_t i = 0; i < valid.size(); ++i) {
    std::string bytes = valid;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (random() % 8)));
    try_one(bytes);
    try_one(valid.substr(0, i));
  }
  const std::string alphabet = R"({}[]",:0123456789-.eE\ FBDx)";
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = valid;
    for (std::size_t n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          bytes.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 2:
          bytes.erase(at, 1 + random() % 3);
          break;
        default:
          bytes[at] = static_cast<char>(random());
          break;
      }
      if (bytes.empty()) break;
    }
    try_one(bytes);
  }
  EXPECT_GT(accepted, 0) << "changes of data bytes are no errors; sum " << sum;
}

TEST_F(SafetensorsTest, RoundTripKeepsEveryBit) {
  std::mt19937 random(7);
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  const DType dtypes[] = {DType::Bool, DType::F16, DType::F32, DType::Bf16, DType::I64, DType::F64};
  for (const DType dtype : dtypes) {
    for (const Dims& shape : {Dims{}, Dims{3}, Dims{2, 0}, Dims{2, 3, 5}, Dims{1, 2, 3, 1}}) {
      Tensor tensor(dtype, shape);
      auto* bytes = static_cast<unsigned char*>(tensor.view().data);
      const std::size_t count = static_cast<std::size_t>(element_count(shape)) * size_of(dtype);
      for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(random() & (dtype == DType::Bool ? 1U : 255U));
      tensors.push_back(std::move(tensor));
      named.push_back({core::join("t", named.size(), "é \"\\\n"), tensors.back().view()});
    }
  }
  save_safetensors(path(), named, {{"made by", "a test"}});
  const SafetensorsFile file(path());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"made by", "a test"}}));
  ASSERT_EQ(file.names().size(), named.size());
  for (const NamedTensor& item : named) {
    const ConstTensorView read = file.tensor(item.name);
    EXPECT_EQ(read.dtype, item.tensor.dtype);
    EXPECT_EQ(read.shape, item.tensor.shape);
    const std::size_t bytes = static_cast<std::size_t>(element_count(read.shape)) * size_of(read.dtype);
    EXPECT_EQ(bytes == 0 ? 0 : std::memcmp(read.data, item.tensor.data, bytes), 0) << item.name;
  }
}

TEST_F(SafetensorsTest, SavesAnyStridesDense) {
  Tensor tensor(DType::F32, {2, 3, 4});
  for (int i = 0; i < 24; ++i) tensor.data<float>()[i] = static_cast<float>(i);
  const float one = 5.0F;
  const std::vector<NamedTensor> named = {{"turned", tensor.view().transpose(0, 2)},
                                          {"part", tensor.view().slice(1, 1, 3)},
                                          {"spread", ConstTensorView(&one, DType::F32, {2, 3}, {0, 0})}};
  save_safetensors(path(), named);
  const SafetensorsFile file(path());
  const ConstTensorView turned = file.tensor("turned");
  EXPECT_EQ(turned.shape, (Dims{4, 3, 2}));
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 2; ++k) EXPECT_EQ(turned.as<float>()[(i * 3 + j) * 2 + k], static_cast<float>((k * 3 + j) * 4 + i));
    }
  }
  EXPECT_EQ(file.tensor("part").as<float>()[8], 16.0F);
  EXPECT_EQ(file.tensor("spread").as<float>()[5], 5.0F);
}

TEST_F(SafetensorsTest, SavesAtOnceOrNotAtAll) {
  Tensor tensor(DType::F32, {2});
  const std::vector<NamedTensor> good = {{"x", tensor.view()}};
  save_safetensors(path(), good);
  const std::string before = test::read_bytes(path());
  const auto fails = [&](const std::vector<NamedTensor>& named) { return text_of<FormatError>([&] { save_safetensors(path(), named); }); };
  EXPECT_TRUE(mentions(fails({{"x", tensor.view()}, {"x", tensor.view()}}), path(), "'x'"));
  EXPECT_TRUE(mentions(fails({{"__metadata__", tensor.view()}}), "__metadata__"));
  EXPECT_TRUE(mentions(fails({{"", tensor.view()}}), "named"));
  EXPECT_TRUE(mentions(fails({{"\xFF", tensor.view()}}), "UTF-8"));
  EXPECT_TRUE(mentions(text_of<ShapeError>([&] { save_safetensors(path(), std::vector<NamedTensor>{{"x", {}}}); }), "'x'", "absent"));
  EXPECT_TRUE(mentions(text_of<IoError>([&] { save_safetensors(folder_.file("no/such/folder"), good); }), "no/such/folder"));
  EXPECT_TRUE(mentions(text_of<IoError>([&] { save_safetensors(folder_.path(), good); }), folder_.path()));
  EXPECT_EQ(test::read_bytes(path()), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1) << "a temporary file was left behind";
}

TEST_F(SafetensorsTest, ReadsTheDefaultModel) {
  const std::string folder = test::default_model_folder();
  if (folder.empty()) GTEST_SKIP() << "no default model (MHA_TEST_MODEL names its folder)";
  const SafetensorsFile file(folder + "/model.safetensors");
  EXPECT_EQ(file.tensor("embeddings.word_embeddings.weight").shape, (Dims{30522, 384}));
}

}  // namespace
}  // namespace mha
