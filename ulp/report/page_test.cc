#include "ulp/report/page.h"

#include <gtest/gtest.h>

#include "tests/support/temp.h"
#include "ulp/base/json.h"
#include "ulp/report/json_writer.h"

namespace ulp {
namespace {

constexpr std::string_view kPage = "<html><script type=\"application/json\">__DOCUMENT__</script></html>";

std::string json_of(std::string_view text) {
  JsonWriter writer;
  writer.value(text);
  return writer.take();
}

// What stands between the tags.
std::string inside(const std::string& page) {
  const size_t begin = kPage.find("__DOCUMENT__");
  return page.substr(begin, page.size() - (kPage.size() - std::string_view("__DOCUMENT__").size()));
}

TEST(Page, NoTextEndsTheScript) {
  for (const std::string text : {"</script><script>alert(1)</script>", "<!--", "__DOCUMENT__",
                                 "a\u2028b\u2029c", "\"\\\n\t\x01", "\u00e9\u2027"}) {
    const std::string page = make_page(kPage, json_of(text));
    EXPECT_EQ(inside(page).find('<'), std::string::npos) << page;
    EXPECT_EQ(inside(page).find("\u2028"), std::string::npos);
    EXPECT_EQ(inside(page).find("\u2029"), std::string::npos);
    EXPECT_EQ(parse_json(inside(page)).get<std::string>(), text);
    EXPECT_TRUE(page.starts_with("<html><script type") && page.ends_with("</script></html>"));
  }
}

TEST(Page, TheDocumentHasExactlyOnePlace) {
  EXPECT_SAYS(make_page("<html>", "{}"), "must have __DOCUMENT__ once");
  EXPECT_SAYS(make_page("__DOCUMENT__ __DOCUMENT__", "{}"), "must have __DOCUMENT__ once");
  EXPECT_EQ(make_page("a__DOCUMENT__b", ""), "ab");
}

TEST(Page, TheOneOfThisBuildTakesADocument) {
  if (page_template().empty()) GTEST_SKIP() << "built without npm";
  const std::string page = make_page(page_template(), "{\"version\":1}");
  EXPECT_NE(page.find("id=\"document\">{\"version\":1}</script>"), std::string::npos);
}

TEST(JsonText, BytesThatAreNoUtf8BecomeTheReplacement) {
  const auto read = [](std::string_view text) { return parse_json(json_of(text)).get<std::string>(); };
  EXPECT_EQ(read("a\xff\x62"), "a\uFFFDb");
  EXPECT_EQ(read("\xc0\x80"), "\uFFFD\uFFFD");            // longer than it need be
  EXPECT_EQ(read("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(read("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(read("\xe2\x82"), "\uFFFD\uFFFD");  // cut short
  EXPECT_EQ(read("\u00e9\u20ac\U0001F600"), "\u00e9\u20ac\U0001F600");
  EXPECT_EQ(json_of(std::string_view("\0", 1)), "\"\\u0000\"");
}

TEST(JsonText, Numbers) {
  JsonWriter w;
  w.array([&] {
    w.value(0.1);
    w.value(1.0f / 3);
    w.value(-0.0);
    w.value(1e300);
    w.value(std::numeric_limits<double>::quiet_NaN());
    w.value(-std::numeric_limits<float>::infinity());
    w.value(Number());
    w.value(uint64_t{1} << 63);
    w.value(true);
    w.object([&] { w.field("a\"b", int64_t{-3}); });
    w.array([] {});
  });
  EXPECT_EQ(w.text(),
            "[0.1,0.33333334,0,1e+300,\"nan\",\"-inf\",null,9223372036854775808,true,{\"a\\\"b\":-3},[]]");
}

}  // namespace
}  // namespace ulp
