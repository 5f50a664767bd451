#include "ulp/io/npy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string_view>
#include <thread>

#include "tests/support/temp.h"
#include "ulp/base/error.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

using Shape = std::vector<size_t>;

class Npy : public ::testing::Test {
 protected:
  TempFolder folder_;
};

size_t count_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<>());
}

// Any pattern at all, signalling NaNs among them. The Python side computes the same.
uint32_t pattern(size_t i) { return static_cast<uint32_t>(i * 2654435761u) ^ 0x7fa00001u; }

std::vector<float> floats(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = pattern(i);
    std::memcpy(&values[i], &bits, sizeof bits);
  }
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

// A file with this header, as version 1, 2 or 3.
std::string npy(std::string_view header, std::string_view data = "", int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(header.size() >> (8 * i));
  return file.append(header).append(data);
}

// The message of the Error that reading these bytes throws, without the file's name; "" if they are
// read.
std::string complaint(const std::string& path) {
  try {
    read_npy_floats(path);
    return "";
  } catch (const Error& error) {
    std::string text = error.what();
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    const size_t at = text.find(path);
    EXPECT_NE(at, text.npos) << text << " names no " << path;
    return at == text.npos ? text : text.replace(at, path.size(), "F");
  }
}

TEST_F(Npy, ReadsBackEveryShape) {
  const Shape shapes[] = {{},          {0}, {1}, {7}, {0, 3}, {3, 0}, {2, 3}, {4, 1, 5}, {2, 3, 4, 5, 6},
                          Shape(32, 1)};
  const std::string path = folder_ / "a.npy";
  for (const Shape& shape : shapes) {
    const std::vector<float> values = floats(count_of(shape));
    write_npy(path, shape, values);
    const NpyFloats back = read_npy_floats(path);
    EXPECT_EQ(back.shape, shape);
    EXPECT_TRUE(same_bits(back.values, values));
  }
}

RC_GTEST_PROP(NpyProperty, ReadsBackWhatWasWritten, ()) {
  const TempFolder folder;
  const std::string path = folder / "a.npy";
  const auto shape = *rc::gen::resize(5, rc::gen::container<Shape>(rc::gen::inRange<size_t>(0, 9)));
  const auto bits =
      *rc::gen::container<std::vector<uint32_t>>(count_of(shape), rc::gen::arbitrary<uint32_t>());
  std::vector<float> values(bits.size());
  if (!bits.empty()) std::memcpy(values.data(), bits.data(), 4 * bits.size());
  write_npy(path, shape, values);
  const NpyFloats back = read_npy_floats(path);
  RC_ASSERT(back.shape == shape);
  RC_ASSERT(same_bits(back.values, values));
}

TEST_F(Npy, WritesTheHeaderNumPyWould) {
  const std::string path = folder_ / "a.npy";
  write_npy(path, Shape{2}, std::vector<uint8_t>{7, 255});
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
  header.resize(128 - 10 - 1, ' ');
  EXPECT_EQ(content(path), npy(header + "\n", "\x07\xff"));
}

TEST_F(Npy, WritesVersion2OnlyForAHeaderBeyond65535Bytes) {
  const std::string path = folder_ / "a.npy";
  for (size_t axes = 21800; axes < 21850; ++axes) {  // the border lies in here
    write_npy(path, Shape(axes, 1), floats(1));
    const std::string file = content(path);
    EXPECT_EQ((file.size() - 4) % 64, 0u);
    EXPECT_EQ(file[6], file.size() - 4 - 10 <= 65535 ? 1 : 2) << axes;
    ASSERT_EQ(read_npy_floats(path).shape.size(), axes);
  }
  EXPECT_EQ(content(path)[6], 2);
}

TEST_F(Npy, RefusesToWriteAShapeThatDoesNotFitTheValues) {
  const std::string path = folder_ / "a.npy";
  const auto complain = [&](const Shape& shape, size_t count) -> std::string {
    try {
      write_npy(path, shape, floats(count));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(complain({2, 3}, 5), "[npy] cannot write " + path + ": shape (2, 3) takes 6 values, got 5");
  EXPECT_EQ(complain({}, 0), "[npy] cannot write " + path + ": shape () takes 1 values, got 0");
  EXPECT_NE(complain({size_t{1} << 32, size_t{1} << 32}, 0).find("overflows"), std::string::npos);
  EXPECT_NE(complain({size_t{1} << 62}, 0).find("overflows"), std::string::npos);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Npy, ReadsEveryWayToSpellAHeader) {
  const std::pair<const char*, Shape> headers[] = {
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }         \n", {2, 3}},
      {"{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2, 3)}", {2, 3}},
      {"{'shape':(2,3,),'fortran_order':False,'descr':'<f4'}\n", {2, 3}},
      {" { 'fortran_order' : False , 'shape' : ( 6 , ) , 'descr' : '<f4' , } \n\n", {6}},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", {6}},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }", {2, 3}},
      {"{'descr': '<f4',\n\t'fortran_order': False,\r\n'shape': (1, 6)}", {1, 6}},
  };
  const std::string path = folder_ / "a.npy";
  const std::vector<float> values = floats(6);
  const std::string_view data(reinterpret_cast<const char*>(values.data()), 24);
  for (const auto& [header, shape] : headers) {
    for (int version : {1, 2, 3}) {
      put(path, npy(header, data, version));
      EXPECT_EQ(complaint(path), "") << header;
      const NpyFloats got = read_npy_floats(path);
      EXPECT_EQ(got.shape, shape) << header;
      EXPECT_TRUE(same_bits(got.values, values)) << header;
    }
  }
  put(path, npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", data.substr(0, 4)));
  EXPECT_EQ(read_npy_floats(path).shape, Shape{});
}

// Each header is wrong, and the message holds the text beside it.
TEST_F(Npy, RefusesABadHeader) {
  const std::pair<const char*, const char*> headers[] = {
      {"", "expected '{' at its byte 0, found ''"},
      {"   \n", "expected '{' at its byte 4, found ''"},
      {"[]", "expected '{' at its byte 0, found '[]'"},
      {"\n\x01\xff", "found '\\x01\\xff'"},
      {"{}", "expected 'descr', 'fortran_order' and 'shape' before the end at its byte 2"},
      {"{,}", "expected a string at its byte 1, found ',}'"},
      {"{'descr': '<f4', 'fortran_order': False}", "'descr', 'fortran_order' and 'shape' before the end"},
      {"{'descr': '<f4', 'descr': '<f4'}", "once each at its byte 17"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}", "once each at its byte 54"},
      {"{'descr': '<f4' 'shape': ()}", "expected '}' at its byte 16"},
      {"{'descr' '<f4'}", "expected ':'"},
      {"{'descr': '<f4", "expected a string without escapes"},
      {"{'descr': '<f4\"}", "expected a string without escapes"},
      {"{'descr': '\\x3cf4'}", "expected a string without escapes"},
      {"{'descr': <f4}", "expected a string at its byte 10"},
      {"{'fortran_order': 0}", "expected True or False"},
      {"{'fortran_order': Falsey}", "expected '}'"},
      {"{'shape': 3}", "expected '('"},
      {"{'shape': (3)}", "expected a comma, as in (3,)"},
      {"{'shape': (,)}", "expected a whole number"},
      {"{'shape': (3,,)}", "expected a whole number"},
      {"{'shape': (3 4)}", "expected a comma"},
      {"{'shape': (3, 4 5)}", "expected ')'"},
      {"{'shape': (3, -4)}", "expected a whole number"},
      {"{'shape': (03, 4)}", "expected a whole number"},
      {"{'shape': (3.0, 4)}", "expected a comma"},
      {"{'shape': (3, 4LL)}", "expected ')'"},
      {"{'shape': (3", "expected a comma"},
      {"{'shape': (18446744073709551616,)}", "expected an axis below 2^64"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", "expected nothing more at its byte 54"},
      {"{'descr': [('x', '<f4')]}", "structured dtype, not '<f4': save a field"},
      {"{'descr': ('<f4', (2,))}", "structured dtype"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': ()}",
       "holds dtype '<f8', not '<f4': save it with np.save(path, x.astype('<f4'))"},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': ()}", "holds dtype '>f4'"},
      {"{'descr': '=f4', 'fortran_order': False, 'shape': ()}", "holds dtype '=f4'"},
      {"{'descr': '|f4', 'fortran_order': False, 'shape': ()}", "holds dtype '|f4'"},
      {"{'descr': 'f4', 'fortran_order': False, 'shape': ()}", "holds dtype 'f4'"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': ()}", "holds dtype '|O'"},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': ()}", "np.ascontiguousarray(x)"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615,)}", "overflows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "overflows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0)}", "overflows"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2305843009213693952,)}", "overflows"},
  };
  const std::string path = folder_ / "a.npy";
  for (const auto& [header, expected] : headers) {
    put(path, npy(header));
    const std::string got = complaint(path);
    EXPECT_NE(got.find(expected), got.npos) << header << "\n  gives " << got << "\n  and not " << expected;
  }
}

TEST_F(Npy, RefusesWhatIsNoNpyFile) {
  const std::string path = folder_ / "a.npy";
  const auto of = [&](std::string_view bytes) {
    put(path, bytes);
    return complaint(path);
  };
  EXPECT_EQ(of(""), "[npy] F is not an .npy file: it starts with '', not '\\x93NUMPY'");
  EXPECT_EQ(of("1.0, 2.0"), "[npy] F is not an .npy file: it starts with '1.0, 2', not '\\x93NUMPY'");
  EXPECT_EQ(of("PK\3\4 and so on"),
            "[npy] F is an .npz or zip archive: save one array with np.save(path, x)");
  EXPECT_EQ(of(npy("", "", 4)), "[npy] F has .npy version 4.0: it must be 1.0, 2.0 or 3.0");
  EXPECT_EQ(of("\x93NUMPY\x01\x01"), "[npy] F has .npy version 1.1: it must be 1.0, 2.0 or 3.0");
  EXPECT_EQ(of("\x93NUMPY\xff"), "[npy] F is cut short: its version needs 2 bytes, 1 there");
  EXPECT_EQ(of(std::string_view("\x93NUMPY\2\0\1\0", 10)),
            "[npy] F is cut short: its header's length needs 4 bytes, 2 there");
  EXPECT_EQ(of(std::string_view("\x93NUMPY\1\0\x76\0{", 11)),
            "[npy] F is cut short: its header needs 118 bytes, 1 there");
  EXPECT_EQ(of(std::string_view("\x93NUMPY\2\0\xff\xff\xff\xff{", 13)),
            "[npy] F is cut short: its header needs 4294967295 bytes, 1 there");
  EXPECT_EQ(of(npy(std::string((1 << 20) + 1, ' '), "", 2)),
            "[npy] F has a header of 1048577 bytes: it must have at most 1048576");
}

TEST_F(Npy, RefusesTooFewAndTooManyBytes) {
  const std::string path = folder_ / "a.npy";
  write_npy(path, Shape{2, 3}, floats(6));
  const std::string whole = content(path);
  put(path, whole.substr(0, whole.size() - 1));
  EXPECT_EQ(complaint(path), "[npy] F is cut short: shape (2, 3) needs 24 bytes of data, 23 there");
  put(path, whole + "x");
  EXPECT_EQ(complaint(path), "[npy] F has bytes left over after the 24 of its shape (2, 3)");
  // Neither address space nor memory for the claim, only for the bytes that are there.
  put(path, npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2305843009213693951,)}", "abcd"));
  EXPECT_EQ(
      complaint(path),
      "[npy] F is cut short: shape (2305843009213693951,) needs 9223372036854775804 bytes of data, 4 there");
}

TEST_F(Npy, SaysWhyAFileCannotBeRead) {
  EXPECT_EQ(complaint(folder_ / "none.npy"), "[npy] cannot read F: No such file or directory");
  EXPECT_EQ(complaint(folder_ / ""), "[npy] cannot read F: it is a folder, name an .npy file");
  put(folder_ / "file", "");
  EXPECT_EQ(complaint(folder_ / "file/a.npy"), "[npy] cannot read F: Not a directory");
}

TEST_F(Npy, ReadsFromAPipe) {
  const size_t count = (16 << 20) / 4 + 1000;  // more than one chunk
  const std::vector<float> values = floats(count);
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { write_npy(pipe, Shape{count}, values); });
  const NpyFloats got = read_npy_floats(pipe);
  writer.join();
  EXPECT_EQ(got.shape, Shape{count});
  EXPECT_TRUE(same_bits(got.values, values));
}

// Whatever is done to a file, it is read or refused with an Error; anything else ends the test.
TEST_F(Npy, SurvivesDamage) {
  const std::string path = folder_ / "a.npy";
  write_npy(path, Shape{2, 3}, floats(6));
  const std::string whole = content(path);
  const std::string tokens[] = {"(",        ")",          "{",       "}",       "[",     ",",       "'",
                                "\"",       ":",          "L",       "True",    "False", "'descr'", "'shape'",
                                "'<f4'",    "\\",         "0",       "-1",      "\n",    " ",       "9",
                                "99999999", "4294967296", "(2, 3,)", "1e9, 1,", "\xff"};
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  int read = 0, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = whole;
    for (size_t times = 1 + below(3); times > 0 && !file.empty(); --times) {
      // Mostly in the part of the header that is not padding.
      const size_t at = below(std::min<size_t>(file.size(), below(4) ? 70 : file.size()));
      switch (below(5)) {
        case 0:
          file[at] = static_cast<char>(below(256));
          break;
        case 1:
          file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
          break;
        case 2:
          file.resize(at);
          break;
        case 3:
          file.insert(at, tokens[below(std::size(tokens))]);
          break;
        case 4:
          file.erase(at, 1 + below(8));
          break;
      }
    }
    put(path, file);
    try {
      const NpyFloats got = read_npy_floats(path);
      ASSERT_EQ(got.values.size(), count_of(got.shape));
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 10000);
}

// Runs Debian's Python, the one python3-numpy is for, on a script with the folder as its argument.
// -I keeps other NumPys out, which PYTHONPATH or the user's own packages would bring.
int run_python(const std::string& script, const std::string& folder) {
  put(folder + "/script.py", script);
  return std::system(("/usr/bin/python3 -I '" + folder + "/script.py' '" + folder + "'").c_str());
}

constexpr std::string_view kPythonPattern = R"py(
import sys
import numpy as np

folder = sys.argv[1] + '/'
shapes = [(), (0,), (7,), (0, 3), (2, 3), (2, 3, 4, 5, 6)]

def pattern(shape):
    i = np.arange(np.prod(shape, dtype=int), dtype=np.uint64)
    bits = (i * np.uint64(2654435761)).astype(np.uint32) ^ np.uint32(0x7fa00001)
    return bits.reshape(shape)
)py";

const Shape kPythonShapes[] = {{}, {0}, {7}, {0, 3}, {2, 3}, {2, 3, 4, 5, 6}};

TEST_F(Npy, ReadsWhatNumPyWrites) {
  const std::string script = std::string(kPythonPattern) + R"py(
for n, shape in enumerate(shapes):
    x = pattern(shape).view('<f4')
    np.save(f'{folder}0_{n}.npy', x)
    for version in 1, 2, 3:
        with open(f'{folder}{version}_{n}.npy', 'wb') as f:
            np.lib.format.write_array(f, x, (version, 0))
x = np.zeros((2, 3), '<f4')
np.save(folder + 'f8.npy', x.astype('<f8'))
np.save(folder + 'big.npy', x.astype('>f4'))
np.save(folder + 'fortran.npy', np.asfortranarray(x))
np.save(folder + 'fields.npy', np.zeros(3, [('a', '<f4'), ('b', '<i4')]))
np.save(folder + 'object.npy', np.array([{}]), allow_pickle=True)
np.savez(folder + 'archive.npz', x)
)py";
  ASSERT_EQ(run_python(script, folder_ / "."), 0) << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  for (size_t n = 0; n < std::size(kPythonShapes); ++n) {
    for (int version : {0, 1, 2, 3}) {
      const NpyFloats got = read_npy_floats(folder_ / fmt::format("{}_{}.npy", version, n));
      EXPECT_EQ(got.shape, kPythonShapes[n]);
      EXPECT_TRUE(same_bits(got.values, floats(count_of(kPythonShapes[n]))));
    }
  }
  for (const char* name : {"f8.npy", "big.npy", "fortran.npy", "fields.npy", "object.npy", "archive.npz"}) {
    const std::string said = complaint(folder_ / name);
    EXPECT_NE(said.find("np.save("), said.npos) << name << ": " << said;
  }
}

TEST_F(Npy, WritesWhatNumPyReads) {
  for (size_t n = 0; n < std::size(kPythonShapes); ++n) {
    const std::vector<float> values = floats(count_of(kPythonShapes[n]));
    write_npy(folder_ / fmt::format("f_{}.npy", n), kPythonShapes[n], values);
    std::vector<uint8_t> bytes(values.size());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(pattern(i) >> 24);
    write_npy(folder_ / fmt::format("u_{}.npy", n), kPythonShapes[n], bytes);
  }
  const std::string script = std::string(kPythonPattern) + R"py(
for n, shape in enumerate(shapes):
    expected = pattern(shape)
    x = np.load(f'{folder}f_{n}.npy')
    assert x.dtype == np.dtype('<f4') and x.shape == shape and x.flags.c_contiguous, (x.dtype, x.shape, shape)
    assert np.array_equal(x.view(np.uint32), expected), shape
    x = np.load(f'{folder}u_{n}.npy')
    assert x.dtype == np.uint8 and x.shape == shape, (x.dtype, x.shape, shape)
    assert np.array_equal(x, expected >> np.uint32(24)), shape
)py";
  EXPECT_EQ(run_python(script, folder_ / "."), 0) << "needs /usr/bin/python3 with NumPy (python3-numpy)";
}

}  // namespace
}  // namespace ulp
