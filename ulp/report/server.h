// Serves one report to browsers: its page and its document, and nothing else. No path leads to the
// disk. Only GET is answered.
//
// Who may read it: by default it listens on 127.0.0.1, where other machines do not reach it. On an
// address that others reach every path begins with 128 random bits, which stand in the URL alone. A
// request whose Host is neither this machine's own name for itself nor the address it came in by is
// refused: else a page from elsewhere could point a name of its own at this address, and read.
//
// What clients cannot do: hold it up, or make it grow. One thread waits for all connections at once,
// so one that is slow costs a descriptor and no more. There are at most kMostConnections. Where one
// more comes, the one goes that has waited longest. A head has kHeadSeconds in all, however it
// trickles in, and an answer kAnswerSeconds.
//
// Written by hand, because Debian's cpp-httplib (0.11.4) gives neither of the two: it has a thread a
// connection out of eight and a time limit a read, so that twelve clients which send a field a second
// keep everybody else waiting for as long as they like; and the head of a request grows in memory
// without a limit. It would also load OpenSSL and Brotli into every command.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ulp {

inline constexpr size_t kMostConnections = 64;
inline constexpr double kHeadSeconds = 5, kAnswerSeconds = 60, kIdleSeconds = 30;

struct ServerOptions {
  std::string address = "127.0.0.1";  // in figures
  uint16_t port = 0;                  // 0: one that is free
  std::string policy = {};            // of the page's content, for its Content-Security-Policy field
  // For tests: seconds that a head and an answer may take, and a connection without a request.
  double head_seconds = kHeadSeconds, answer_seconds = kAnswerSeconds, idle_seconds = kIdleSeconds;
};

// Bytes with the tag that tells them from others, in quotes.
struct ServedDocument {
  std::string bytes, tag;

  ServedDocument() : ServedDocument(std::string()) {}
  explicit ServedDocument(std::string text);
};

using DocumentSource = std::function<std::shared_ptr<const ServedDocument>()>;

class ReportServer {
 public:
  // Listens from now on. The page and the document are asked for at every request, by the thread that
  // serves, and must be there quickly. Throws an Error where the address is none, or the port is taken or
  // not allowed.
  ReportServer(const ServerOptions& options, DocumentSource page, DocumentSource document);
  ReportServer(const ReportServer&) = delete;
  ReportServer& operator=(const ReportServer&) = delete;
  ~ReportServer();

  // Where the page is: http://127.0.0.1:8080/ or http://192.168.0.2:8080/TOKEN/.
  const std::string& url() const;
  uint16_t port() const;

  // Answers until `stop` is true, which it sees within a quarter of a second. All connections are
  // closed then.
  void serve(const std::atomic<bool>& stop);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// 128 random bits in 22 letters that a URL takes as they are.
std::string random_token();

}  // namespace ulp
