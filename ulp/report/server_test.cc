#include "ulp/report/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/report/http.h"

namespace ulp {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A socket of a client, with no more manners than a test gives it.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { ::close(fd_); }

  bool connected() const { return connected_; }
  bool send(std::string_view text) {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // Until there are so many bytes or the other side ends; -1 where it resets.
  bool read(size_t bytes) {
    std::vector<char> buffer(65536);
    while (text_.size() < bytes) {
      const ssize_t count = ::recv(fd_, buffer.data(), std::min(buffer.size(), bytes - text_.size()), 0);
      if (count <= 0) return count == 0;
      text_.append(buffer.data(), static_cast<size_t>(count));
    }
    return true;
  }
  // One answer, whose content is as long as it says.
  std::string answer() {
    while (head_bytes(text_) == 0) {
      const size_t before = text_.size();
      if (!read(before + 1) || text_.size() == before) return text_;
    }
    const size_t head = head_bytes(text_), field = text_.find("Content-Length: ");
    const size_t length = field < head ? std::stoul(text_.substr(field + 16)) : 0;
    read(head + length);
    const std::string found = text_.substr(0, head + length);
    text_.erase(0, head + length);
    return found;
  }
  std::string all() {
    read(SIZE_MAX);
    return text_;
  }

 private:
  int fd_;
  bool connected_ = false;
  std::string text_;
};

class Server : public testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    const auto page = std::make_shared<const ServedDocument>("<p>page</p>");
    server_ = std::make_unique<ReportServer>(
        options, [page] { return page; },
        [this] {
          const std::lock_guard lock(mutex_);
          return document_;
        });
    thread_ = std::thread([this] { server_->serve(stop_); });
  }
  void TearDown() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void set(const std::string& text) {
    const std::lock_guard lock(mutex_);
    document_ = std::make_shared<const ServedDocument>(text);
  }

  std::string ask(const std::string& head) {
    Client client(server_->port());
    client.send(head);
    return client.answer();
  }
  std::string get(const std::string& path, const std::string& more = {}) {
    return ask("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n");
  }
  int status(const std::string& head) {
    const std::string text = ask(head);
    return text.size() < 12 ? 0 : std::stoi(text.substr(9, 3));
  }
  int status_of(const std::string& path) {
    return status("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }

  std::mutex mutex_;
  std::shared_ptr<const ServedDocument> document_ = std::make_shared<const ServedDocument>("{\"version\":1}");
  std::unique_ptr<ReportServer> server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

std::string body(const std::string& answer) { return answer.substr(head_bytes(answer)); }

size_t descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST_F(Server, ServesThePageAndTheDocument) {
  ServerOptions options;
  options.policy = "default-src 'none'";
  start(options);
  EXPECT_EQ(server_->url(), "http://127.0.0.1:" + std::to_string(server_->port()) + "/");
  const std::string page = get("/");
  EXPECT_TRUE(page.starts_with("HTTP/1.1 200 OK\r\n")) << page;
  EXPECT_EQ(body(page), "<p>page</p>");
  for (const char* field : {"Content-Type: text/html; charset=utf-8\r\n", "Cache-Control: no-store\r\n",
                            "X-Content-Type-Options: nosniff\r\n", "Referrer-Policy: no-referrer\r\n",
                            "Content-Security-Policy: default-src 'none'\r\n"})
    EXPECT_NE(page.find(field), page.npos) << field;
  const std::string document = get("/document.json");
  EXPECT_EQ(body(document), "{\"version\":1}");
  EXPECT_NE(document.find("Content-Type: application/json\r\n"), document.npos);
}

TEST_F(Server, TellsWhatIsNew) {
  start();
  const std::string first = get("/document.json");
  const size_t at = first.find("ETag: ") + 6;
  const std::string tag = first.substr(at, first.find("\r\n", at) - at);
  ASSERT_EQ(tag.front(), '"');
  for (const std::string& match : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const std::string same = get("/document.json", "If-None-Match: " + match + "\r\n");
    EXPECT_TRUE(same.starts_with("HTTP/1.1 304 ")) << match;
    EXPECT_EQ(body(same), "");
    EXPECT_NE(same.find("ETag: " + tag), same.npos);
  }
  set("{\"version\":2}");
  const std::string second = get("/document.json", "If-None-Match: " + tag + "\r\n");
  EXPECT_TRUE(second.starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(body(second), "{\"version\":2}");
}

TEST_F(Server, OtherMethodsAreRefused) {
  start();
  for (const char* method :
       {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "HEAD", "get"}) {
    Client client(server_->port());
    client.send(std::string(method) + " / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const std::string text = client.all();
    EXPECT_TRUE(text.starts_with("HTTP/1.1 405 ")) << method;
    EXPECT_NE(text.find("Allow: GET\r\n"), text.npos) << method;
    // An answer to HEAD is a head alone.
    EXPECT_EQ(body(text), method == std::string_view("HEAD") ? "" : "Method Not Allowed\n") << method;
  }
  // The answer arrives although the content is never read as a request.
  Client client(server_->port());
  client.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\nGET /document.json HTTP/1.1\r\n\r\n");
  const std::string text = client.all();
  EXPECT_TRUE(text.starts_with("HTTP/1.1 405 ")) << text;
  EXPECT_EQ(text.find("200 OK"), text.npos);
}

TEST_F(Server, NoPathLeadsAnywhere) {
  start();
  for (const char* path : {"/..",
                           "/../etc/passwd",
                           "/%2e%2e/etc/passwd",
                           "/%2E%2E%2Fetc%2Fpasswd",
                           "/./",
                           "//",
                           "/document.json/",
                           "/document.json/..",
                           "/x/../document.json",
                           "/%64ocument.json",
                           "/..%00/",
                           "/document.json?x=1",
                           "/index.html",
                           "/config.toml",
                           "/etc/passwd",
                           "/favicon.ico",
                           "http://localhost/",
                           "*",
                           "document.json",
                           "\\..\\"})
    EXPECT_EQ(status_of(path), 404) << path;
}

TEST_F(Server, StrangeHostsAreRefused) {
  start();
  const std::string port = std::to_string(server_->port());
  const auto with = [&](const std::string& host) {
    return status("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const std::string& host : {std::string("localhost"), "LocalHost:" + port, "127.0.0.1:" + port,
                                  std::string("127.0.0.1"), "[::1]:" + port, std::string("localhost:9")})
    EXPECT_EQ(with(host), 200) << host;
  for (const std::string& host :
       {std::string("evil.example"), "evil.example:" + port, std::string("localhost.evil.example"),
        std::string("127.0.0.1.evil.example"), std::string("evil.example#localhost"), std::string("0.0.0.0"),
        std::string("localhost:80:80"), std::string("[::1"), std::string("user@localhost"), std::string()})
    EXPECT_EQ(with(host), 403) << host;
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"), 400);
}

TEST_F(Server, ElsewhereATokenIsAsked) {
  ServerOptions options;
  options.address = "0.0.0.0";
  start(options);
  const std::string url = server_->url();
  const std::string root = url.substr(url.find('/', 7));
  ASSERT_EQ(root.size(), 24u) << url;  // 128 bits, six a letter, between slashes
  EXPECT_EQ(status_of(root), 200);
  EXPECT_EQ(status_of(root + "document.json"), 200);
  std::string wrong = root;
  wrong[5] = wrong[5] == 'A' ? 'B' : 'A';
  for (const std::string& path :
       {std::string("/"), std::string("/document.json"), wrong, wrong + "document.json", root.substr(0, 23),
        root + "x", root + "../document.json"})
    EXPECT_EQ(status_of(path), 404) << path;
  EXPECT_NE(random_token(), random_token());
}

TEST_F(Server, DamagedHeadsAreRefused) {
  start();
  for (const char* head :
       {"GET /\r\n\r\n", "GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n", "GET / HTTP/1.1\nHost: localhost\n\r\n\r\n",
        "\r\n\r\n", "GET / FTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"})
    EXPECT_EQ(status(head), 400) << head;
  EXPECT_EQ(status("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n"), 505);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(kMostHead, 'a') + "\r\n\r\n"),
            431);
  EXPECT_EQ(status("GET /" + std::string(2 * kMostHead, 'a')), 431);
}

TEST_F(Server, OneConnectionServesManyRequests) {
  start();
  Client client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(body(client.answer()), "<p>page</p>");
  }
  // In pieces, and two at a time.
  for (const char letter :
       std::string("GET /document.json HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.0\r\nHost:")) {
    ASSERT_TRUE(client.send(std::string(1, letter)));
  }
  client.send(" localhost\r\n\r\n");
  EXPECT_EQ(body(client.answer()), "{\"version\":1}");
  const std::string last = client.all();
  EXPECT_EQ(body(last), "<p>page</p>");
  EXPECT_NE(last.find("Connection: close\r\n"), last.npos);
}

TEST_F(Server, LeaksNoDescriptor) {
  set(std::string(300000, 'x'));
  start();
  EXPECT_EQ(status_of("/"), 200);
  const auto settled = [&](size_t wanted) {
    const auto begin = Clock::now();
    while (descriptors() != wanted && seconds_since(begin) < 10)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return descriptors();
  };
  // The connection of that request goes in its own time.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const size_t before = descriptors();
  for (int i = 0; i < 1000; ++i) {
    Client client(server_->port());
    ASSERT_TRUE(client.connected());
    // Whole requests, torn ones, and clients that go away before the answer.
    if (i % 4 == 0) {
      client.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
      ASSERT_EQ(body(client.all()), "<p>page</p>");
    }
    if (i % 4 == 1) {
      client.send("POST / HTTP/1.1\r\n\r\n");
      ASSERT_TRUE(client.all().starts_with("HTTP/1.1 405 "));
    }
    if (i % 4 == 2) client.send("GET /document.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
    if (i % 4 == 3) client.send("GET /docu");
  }
  EXPECT_EQ(settled(before), before);
  EXPECT_EQ(status_of("/"), 200);
}

TEST_F(Server, SlowClientsHoldNobodyUp) {
  ServerOptions options;
  options.head_seconds = 0.6;
  options.idle_seconds = 0.6;
  options.answer_seconds = 0.6;
  set(std::string(30 << 20, 'x'));
  start(options);
  std::vector<std::unique_ptr<Client>> slow;
  for (size_t i = 0; i < 3 * kMostConnections; ++i) {
    slow.push_back(std::make_unique<Client>(server_->port()));
    ASSERT_TRUE(slow.back()->connected());
    // A third never ends its head, a third never reads its answer, a third says nothing.
    if (i % 3 == 0) slow.back()->send("GET / HTTP/1.1\r\nHo");
    if (i % 3 == 1) slow.back()->send("GET /document.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  const auto begin = Clock::now();
  EXPECT_EQ(status_of("/"), 200);
  EXPECT_LT(seconds_since(begin), 0.5);
  // A head that trickles in has no more time than one that stops.
  Client trickle(server_->port());
  const auto first = Clock::now();
  trickle.send("GET / HTTP/1.1\r\n");
  while (seconds_since(first) < 5 && trickle.send("A: b\r\n"))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(seconds_since(first), 2);
  EXPECT_GT(seconds_since(first), 0.5);
}

TEST_F(Server, SlowReadersGetAllOfIt) {
  const std::string large(20 << 20, 'y');
  set(large);
  start();
  Client client(server_->port());
  client.send("GET /document.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  set("{}");  // what is being sent stays what it was
  EXPECT_EQ(body(client.answer()), large);
}

TEST_F(Server, EndsWhileClientsWait) {
  start();
  Client idle(server_->port());
  EXPECT_EQ(status_of("/"), 200);
  stop_ = true;
  const auto begin = Clock::now();
  thread_.join();
  EXPECT_LT(seconds_since(begin), 2);
  EXPECT_EQ(idle.all(), "");
}

TEST_F(Server, RefusesWhatItCannotListenOn) {
  start();
  const auto says = [](ServerOptions options) {
    try {
      ReportServer other(options, nullptr, nullptr);
    } catch (const Error& error) {
      return std::string(error.message());
    }
    return std::string();
  };
  ServerOptions taken;
  taken.port = server_->port();
  EXPECT_NE(says(taken).find("is taken"), std::string::npos) << says(taken);
  for (const char* address : {"nonsense", "", "256.0.0.1", "localhost", "127.0.0.1:80", "192.0.2.77"}) {
    ServerOptions bad;
    bad.address = address;
    EXPECT_NE(says(bad), "") << address;
  }
}

}  // namespace
}  // namespace ulp
